package server

import (
	"context"
	"io"
	"sync"
)

// gate bounds how many file operations are in system calls at once, since each that blocks there takes a thread. A nil
// gate does not bound them.
type gate chan struct{}

func newGate(size int) gate {
	if size <= 0 {
		return nil
	}
	return make(gate, size)
}

// enter waits for a place and takes it.
func (g gate) acquire(ctx context.Context) (*slot, error) {
	if g == nil {
		return &slot{}, nil
	}
	select {
	case g <- struct{}{}:
		return &slot{gate: g, held: true}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// slot is a place behind the gate. It is given up while its operation waits for the network, and at its end. A nil slot
// is none.
type slot struct {
	gate     gate
	mu       sync.Mutex
	held     bool
	released bool
}

// pause gives the place up until resume.
func (s *slot) pause() {
	if s == nil || s.gate == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free()
}

// resume waits for a place again, unless the operation has ended meanwhile.
func (s *slot) resume() {
	if s == nil || s.gate == nil {
		return
	}
	s.mu.Lock()
	if s.released || s.held {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.gate <- struct{}{} // those that are inside wait for the system only
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held { // two that waited for the network came back
		<-s.gate
		return
	}
	s.held = true
	if s.released {
		s.free()
	}
}

// leave gives the place up for good.
func (s *slot) release() {
	if s == nil || s.gate == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	s.free()
}

func (s *slot) free() {
	if s.held {
		s.held = false
		<-s.gate
	}
}

// reader returns r as a reader that gives the place up while it reads.
func (s *slot) reader(r io.Reader) io.Reader { return &pausingReader{r: r, slot: s} }

type pausingReader struct {
	r    io.Reader
	slot *slot
}

func (p *pausingReader) Read(b []byte) (int, error) {
	p.slot.pause()
	defer p.slot.resume()
	return p.r.Read(b)
}
