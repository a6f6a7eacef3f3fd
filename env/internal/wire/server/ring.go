package server

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// maxOutput bounds a frame of output, and so what a client has read and discards when it is cut within a frame.
	maxOutput = 64 << 10
	// answerBuffer is how many bytes of frames are handed to HTTP/2 at once.
	responseBuffer = 2*(wire.FrameHeader+maxOutput) + 4<<10
	// ringKeep is how much of what was handed to HTTP/2 is kept: what is on its way, in the buffers at both ends, and
	// of a frame that has come in part.
	ringKeep = wire.Window + 256<<10
	// ringSize is how much a ring holds at most: with ringKeep, what was not handed to HTTP/2 yet.
	ringSize = ringKeep + 256<<10
	// ringMin is what a ring starts with.
	ringMin = 512
)

var (
	// errReplaced ends an answer when a later one takes over.
	errReplaced = errors.New("another answer has taken over")
	// errNotHeld refuses to go on at an offset.
	errNotHeld = errors.New("the output at this offset is not held")
)

// ring holds the last bytes of one output of a command. It is an io.Writer for the command, which blocks when it is full,
// and is read by one answer at a time. Memory is taken as output comes.
type ring struct {
	mu    sync.Mutex
	buf   []byte // the byte with offset o is at o modulo its length
	start int64  // the first byte held
	next  int64  // the next byte for the answer
	end   int64  // how many bytes there were
	// reader is the number of the answer that reads.
	reader uint64
	// lossy discards what does not fit instead of blocking.
	lossy bool
	room  chan struct{} // wakes the command, which waits for room
	wake  func()        // tells the answer that there is more
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

// put takes as much of p as there is room for.
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

// attach makes the answer with the given number, which must be greater than that of any before, the one that reads, from
// offset on.
func (r *ring) attach(number uint64, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset < r.start || offset > r.next {
		return errNotHeld
	}
	r.reader, r.next = number, offset
	return nil
}

// take copies what comes next to p. It returns 0 if there is nothing yet.
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

// total returns how many bytes there were.
func (r *ring) total() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// memory returns how many bytes of memory it takes.
func (r *ring) memory() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.buf)
}

// abandon makes the ring discard what does not fit.
func (r *ring) abandon() {
	r.mu.Lock()
	r.lossy = true
	r.mu.Unlock()
	select {
	case r.room <- struct{}{}:
	default:
	}
}
