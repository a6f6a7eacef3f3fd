package server

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// maxOutput bounds a frame of output.
	maxOutput = 64 << 10
	// responseBuffer is how many bytes of frames are passed to HTTP/2 at once.
	responseBuffer = 2*(wire.FrameHeader+maxOutput) + 4<<10
	// ringKeep is how many bytes are kept after they were passed to HTTP/2: those on their way, in
	// the buffers of both ends, and of a frame that has arrived in part.
	ringKeep = wire.Window + 256<<10
	// ringSize bounds a ring: ringKeep and the bytes not yet passed to HTTP/2.
	ringSize = ringKeep + 256<<10
	// ringMin is the first size of a ring.
	ringMin = 512
)

var (
	// errReplaced ends a response when a later one takes over.
	errReplaced = errors.New("another response has taken over")
	// errNotHeld refuses to resume at an offset.
	errNotHeld = errors.New("the output at this offset is not held")
)

// ring holds the last bytes of one output of a command. It is an io.Writer for the command that
// blocks when it is full. One response at a time reads it. It takes memory as output comes.
type ring struct {
	mu    sync.Mutex
	buf   []byte // the byte with offset o is at o modulo its length
	start int64  // the first byte held
	next  int64  // the next byte for the response
	end   int64  // how many bytes were written
	// reader is the number of the response that reads.
	reader uint64
	// lossy discards bytes that do not fit, instead of blocking.
	lossy bool
	room  chan struct{} // wakes the command, which waits for room
	wake  func()        // wakes the response
}

func newRing(wake func()) *ring {
	return &ring{room: make(chan struct{}, 1), wake: wake}
}

// Write implements io.Writer.
func (r *ring) Write(p []byte) (int, error) {
	written := 0
	for {
		r.mu.Lock()
		n := r.put(p[written:])
		lossy := r.lossy
		r.mu.Unlock()
		if n > 0 {
			r.wake()
		}
		written += n
		switch {
		case written == len(p):
			return written, nil
		case lossy:
			return written, fs.ErrClosed
		}
		<-r.room
	}
}

// put takes as much of p as fits.
func (r *ring) put(p []byte) int {
	n := min(len(p), int(ringSize-(r.end-r.start)))
	p = p[:n]
	if held := int(r.end - r.start); held+n > len(r.buf) {
		r.grow(held + n)
	}
	for len(p) > 0 {
		part := copy(r.buf[r.end%int64(len(r.buf)):], p)
		r.end += int64(part)
		p = p[part:]
	}
	return n
}

// grow makes the ring large enough for size bytes.
func (r *ring) grow(size int) {
	length := max(ringMin, 2*len(r.buf))
	for length < size {
		length *= 2
	}
	old := r.buf
	r.buf = make([]byte, min(length, ringSize))
	for o := r.start; o < r.end; {
		from := old[o%int64(len(old)):]
		from = from[:min(int64(len(from)), r.end-o)]
		o += int64(copy(r.buf[o%int64(len(r.buf)):], from))
	}
}

// attach makes the response with the given number the one that reads, from offset on. Numbers
// increase.
func (r *ring) attach(number uint64, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset < r.start || offset > r.next {
		return errNotHeld
	}
	r.reader, r.next = number, offset
	return nil
}

// take copies the next bytes to p. It returns 0 if none has come yet.
func (r *ring) take(number uint64, p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != number {
		return 0, errReplaced
	}
	p = p[:min(int64(len(p)), r.end-r.next)]
	n := len(p)
	for len(p) > 0 {
		part := copy(p, r.buf[r.next%int64(len(r.buf)):])
		r.next += int64(part)
		p = p[part:]
	}
	if first := r.next - ringKeep; first > r.start {
		r.start = first
		select {
		case r.room <- struct{}{}:
		default:
		}
	}
	return n, nil
}

// total returns how many bytes were written.
func (r *ring) total() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// memory returns how many bytes of memory the ring takes.
func (r *ring) memory() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.buf)
}

// abandon discards bytes that do not fit, instead of blocking.
func (r *ring) abandon() {
	r.mu.Lock()
	r.lossy = true
	r.mu.Unlock()
	select {
	case r.room <- struct{}{}:
	default:
	}
}
