package server

import (
	"context"
	"io"
	"sync"
)

// gate bounds how many file operations are in system calls, since each takes a thread while it
// blocks. A nil gate does not bound them.
type gate chan struct{}

func newGate(size int) gate {
	if size <= 0 {
		return nil
	}
	return make(gate, size)
}

// acquire waits for a slot and takes it.
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

// slot is a slot of the gate. Its operation gives it up while it waits for the network, and at its
// end. A nil slot does nothing.
type slot struct {
	gate     gate
	mu       sync.Mutex
	held     bool
	released bool
}

// pause gives the slot up until resume.
func (s *slot) pause() {
	if s == nil || s.gate == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free()
}

// resume waits for a slot again, unless the operation has ended meanwhile.
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
	s.gate <- struct{}{} // operations that hold the gate wait for the system only
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

// release gives the slot up for good.
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

// reader returns r as a reader that gives the slot up during a Read.
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
