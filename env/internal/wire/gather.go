package wire

import (
	"io"
	"runtime"
	"sync"
	"time"
)

const (
	// gatherSize is how many bytes of small writes wait at most.
	gatherSize = 4 << 10
	// flushTime bounds the wait for what is still to be written when a stream is closed.
	flushTime = 100 * time.Millisecond
)

// gatherer gathers small writes. net/http writes the headers and the content of a small request, or of its answer, one
// right after the other, and each write wakes everybody on a way that may lead through several processes. A write is thus
// done by a goroutine of its own, which lets those run first that are ready to write more. An error of it is that of the
// next call.
type gatherer struct {
	w io.Writer

	order sync.Mutex // held while w is written to

	mu      sync.Mutex
	waiting []byte
	spare   []byte // what waiting was the last time
	due     bool   // a goroutine is going to write what waits
	err     error
}

// Write implements io.Writer. Calls may overlap.
func (g *gatherer) Write(p []byte) (int, error) {
	g.mu.Lock()
	if g.err != nil {
		defer g.mu.Unlock()
		return 0, g.err
	}
	if len(g.waiting)+len(p) <= gatherSize {
		g.waiting = append(g.waiting, p...)
		if !g.due {
			g.due = true
			go g.writeSoon()
		}
		g.mu.Unlock()
		return len(p), nil
	}
	g.mu.Unlock()
	g.order.Lock()
	defer g.order.Unlock()
	if err := g.write(); err != nil {
		return 0, err
	}
	return g.w.Write(p)
}

// writeSoon writes what waits when nobody else is ready to run.
func (g *gatherer) writeSoon() {
	runtime.Gosched()
	_ = g.flush() // the next call returns it
}

// flush writes what waits.
func (g *gatherer) flush() error {
	g.order.Lock()
	defer g.order.Unlock()
	return g.write()
}

// write is flush while order is held.
func (g *gatherer) write() error {
	g.mu.Lock()
	g.due = false
	if g.err != nil || len(g.waiting) == 0 {
		defer g.mu.Unlock()
		return g.err
	}
	data := g.waiting
	g.waiting, g.spare = g.spare[:0], nil
	g.mu.Unlock()
	_, err := g.w.Write(data)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spare = data
	if g.err == nil {
		g.err = err
	}
	return g.err
}

// linger returns when all is written, unless that takes long.
func (g *gatherer) linger() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = g.flush() // the stream is being closed
	}()
	select {
	case <-written:
	case <-time.After(flushTime):
	}
}
