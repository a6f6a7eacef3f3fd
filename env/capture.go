package env

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"
)

// DefaultCapture is the default number of bytes that a Capture keeps at each end: 64 KiB.
const DefaultCapture = 64 << 10

// CaptureOptions configure a Capture. The zero value keeps DefaultCapture bytes at each end.
type CaptureOptions struct {
	// Head and Tail are the numbers of bytes to keep of the start and of the end. Zero means
	// DefaultCapture, a negative number none.
	Head, Tail int
	// Spool, if set, receives every byte. Writes to it never overlap.
	Spool io.Writer
}

// Capture is a writer for output of any length. It keeps the start and the end in memory, counts
// and hashes all bytes, and writes them to an optional spool. Its memory grows with the output, up
// to the two limits. The zero value has the default options. All methods may be called
// concurrently, and wait for a running write to the spool; the results of two calls fit together if
// no Write comes between them.
type Capture struct {
	opts CaptureOptions

	mu   sync.Mutex
	head []byte
	tail []byte // A ring once it is full: the oldest byte is then at next.
	next int
	size int64
	hash hash.Hash // Nil until the first byte.
	err  error
}

var _ io.Writer = (*Capture)(nil)

// NewCapture returns an empty capture.
func NewCapture(opts CaptureOptions) *Capture {
	return &Capture{opts: opts}
}

// Write fails only if the spool does. Bytes that the spool did not take are not counted, hashed or
// kept, so that the capture describes the spool's content; every later Write returns the same
// error.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	n := len(p)
	if c.opts.Spool != nil {
		taken, err := c.opts.Spool.Write(p)
		n = max(0, min(taken, len(p)))
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		if err != nil {
			c.err = fmt.Errorf("write to spool: %w", err)
		}
	}
	c.keep(p[:n])
	return n, c.err
}

// Head returns a copy of the start, which is the whole output if that fits into its limit.
func (c *Capture) Head() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte{}, c.head...)
}

// Tail returns a copy of the end, without the bytes of Head.
func (c *Capture) Tail() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.appendTail([]byte{})
}

// Bytes returns a copy of Head followed by Tail. It is the whole output if Omitted is 0; otherwise
// the gap follows the bytes of Head, possibly within a character.
func (c *Capture) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.appendTail(append(make([]byte, 0, len(c.head)+len(c.tail)), c.head...))
}

// Size returns the number of bytes written.
func (c *Capture) Size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// Omitted returns the number of bytes between start and end that are not kept.
func (c *Capture) Omitted() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size - int64(len(c.head)) - int64(len(c.tail))
}

// Sum returns the hex SHA-256 of all bytes written.
func (c *Capture) Sum() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hash == nil {
		empty := sha256.Sum256(nil)
		return hex.EncodeToString(empty[:])
	}
	return hex.EncodeToString(c.hash.Sum(nil))
}

// keep counts and hashes p and keeps as much of it as the limits allow.
func (c *Capture) keep(p []byte) {
	if len(p) == 0 {
		return
	}
	if c.hash == nil {
		c.hash = sha256.New()
	}
	c.hash.Write(p)
	c.size += int64(len(p))

	head, tail := captureLimit(c.opts.Head), captureLimit(c.opts.Tail)
	n := min(head-len(c.head), len(p))
	c.head = appendLimited(c.head, p[:n], head)
	p = p[n:]
	if len(p) >= tail {
		// Everything in the ring is overwritten.
		p = p[len(p)-tail:]
		c.tail, c.next = c.tail[:0], 0
	}
	n = min(tail-len(c.tail), len(p))
	c.tail = appendLimited(c.tail, p[:n], tail)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		n = copy(c.tail[c.next:], p)
		c.next = (c.next + n) % tail
	}
}

func (c *Capture) appendTail(b []byte) []byte {
	b = append(b, c.tail[c.next:]...)
	return append(b, c.tail[:c.next]...)
}

func captureLimit(n int) int {
	if n == 0 {
		return DefaultCapture
	}
	return max(0, n)
}

// appendLimited appends p to b, whose capacity grows to limit bytes at most.
func appendLimited(b, p []byte, limit int) []byte {
	if need := len(b) + len(p); need > cap(b) {
		b = append(make([]byte, 0, min(limit, max(need, 2*cap(b)))), b...)
	}
	return append(b, p...)
}
