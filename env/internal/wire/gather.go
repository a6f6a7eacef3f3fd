package wire

import (
	"io"
	"runtime"
	"sync"
	"time"
)

const (
	// gatherSize bounds the bytes of small writes that wait.
	gatherSize = 4 << 10
	// flushTime bounds the wait for the last writes when a stream is closed.
	flushTime = 100 * time.Millisecond
)

// gatherer combines small writes. net/http writes the headers and the content of a small request,
// or of its response, in two writes, and each may wake several processes on its way. A goroutine of
// its own writes them, after those that are ready to write more. Its error is that of the next
// call.
type gatherer struct {
	w io.Writer

	order sync.Mutex // held while w is written to

	mu      sync.Mutex
	waiting []byte
	spare   []byte // the array of waiting before, to reuse
	due     bool   // a goroutine is going to write
	err     error
}

// Write implements io.Writer. Calls may be concurrent.
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

// writeSoon writes the waiting bytes when no other goroutine is ready to run.
func (g *gatherer) writeSoon() {
	runtime.Gosched()
	_ = g.flush() // the next call returns it
}

// flush writes the waiting bytes.
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

// linger waits for the last writes, at most flushTime.
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
