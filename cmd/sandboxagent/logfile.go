package main

import (
	"io"
	"sync"
)

// logFile keeps the first error of the file it writes to, which slog discards. It is safe for
// concurrent use.
type logFile struct {
	w io.WriteCloser

	mu     sync.Mutex
	closed bool
	err    error
}

func (f *logFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.w.Write(b)
	f.keep(err)
	return n, err
}

func (f *logFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(f.w.Close())
	f.closed = true
}

// keep stores err if it is the first before close.
func (f *logFile) keep(err error) {
	if f.err == nil && !f.closed {
		f.err = err
	}
}

func (f *logFile) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
