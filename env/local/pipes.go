package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxEmpty is how often in a row a reader may give nothing without an error.
const maxEmpty = 100

// pump copies one output stream of a command from its pipe to the caller's writer. Its goroutine
// reads until end of file, even after the delivery has ended, so that a process never dies of a
// closed pipe.
type pump struct {
	r    *os.File
	name string
	done chan struct{} // closed when nothing more will be delivered
	// terminal is set if r is a terminal, whose number of unread bytes is unknown.
	terminal bool

	// until is the end of the wait for end of file, set before a read is interrupted.
	until atomic.Pointer[time.Time]

	mu   sync.Mutex // held while the writer is called
	w    io.Writer  // nil after it failed
	err  error      // of the writer
	over bool       // done is closed
	eof  bool       // the delivery ended with end of file

	returned bool // run has returned; guarded by the environment
}

func newPump(r *os.File, w io.Writer, name string) *pump {
	return &pump{r: r, w: w, name: name, done: make(chan struct{})}
}

// run delivers the output, and discards the rest.
func (p *pump) run(buf []byte) {
	eof := p.deliver(buf)
	p.finish(eof)
	if !eof {
		_ = p.r.SetReadDeadline(time.Time{})
		for {
			if _, err := p.r.Read(buf); err != nil {
				break
			}
		}
	}
	_ = p.r.Close()
}

// deliver copies until end of file, or until the time that expire set; then it still delivers the
// bytes that were in the pipe when the command exited. It reports whether it reached end of file.
func (p *pump) deliver(buf []byte) (eof bool) {
	exited, owed := false, 0
	for {
		n, err := p.r.Read(buf)
		p.write(buf[:n])
		owed -= n
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return true
		case !exited: // woken by expire
			exited, owed = true, p.pending()
			_ = p.r.SetReadDeadline(*p.until.Load())
		default:
			_ = p.r.SetReadDeadline(time.Time{})
			for owed > 0 {
				n, err := readNow(p.r, buf[:min(owed, len(buf))])
				p.write(buf[:n])
				owed -= n
				if err != nil {
					return !errors.Is(err, os.ErrDeadlineExceeded)
				}
			}
			return false
		}
	}
}

// pending returns the largest number of unread bytes in the pipe or the terminal.
func (p *pump) pending() int {
	if p.terminal {
		return bufferSize // which is more than a terminal holds on any system
	}
	return pending(p.r)
}

// write hands data to the caller's writer unless that failed or the delivery is over.
func (p *pump) write(data []byte) {
	if len(data) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.w == nil {
		return
	}
	n, err := p.w.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	if err != nil {
		p.err, p.w = err, nil
	}
}

// expire is called when the command has exited. It bounds the wait for end of file.
func (p *pump) expire(until time.Time) {
	select {
	case <-p.done:
		return
	default:
	}
	p.until.Store(&until)
	if err := p.r.SetReadDeadline(time.Unix(1, 0)); errors.Is(err, os.ErrNoDeadline) {
		// Reads of this system's pipes cannot be interrupted: the delivery ends by the clock.
		time.AfterFunc(time.Until(until), func() { p.finish(false) })
	}
}

// finish ends the delivery.
func (p *pump) finish(eof bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over, p.eof = true, eof
		close(p.done)
	}
}

// result returns the writer's error and whether something still held the pipe when the delivery was
// over.
func (p *pump) result() (detached bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		err = fmt.Errorf("%s: %w", p.name, p.err)
	}
	return p.over && !p.eof, err
}

// feeder copies the caller's reader to the standard input of a command.
type feeder struct {
	w io.WriteCloser
	// end, if set, signals the end of the input where closing w does not.
	end  func()
	mu   sync.Mutex
	over bool
	err  error // of the reader
}

// run copies until the reader ends or the command takes no more.
func (f *feeder) run(r io.Reader, buf []byte) {
	for empty := 0; !f.stopped(); {
		n, err := r.Read(buf)
		if n > 0 {
			empty = 0
			if _, werr := f.w.Write(buf[:n]); werr != nil {
				_ = f.w.Close()
				return // a command need not read all of its input
			}
		} else if empty++; empty == maxEmpty && err == nil {
			err = io.ErrNoProgress
		}
		if err != nil {
			f.mu.Lock()
			if !errors.Is(err, io.EOF) && !f.over {
				f.err = fmt.Errorf("stdin: %w", err)
			}
			f.mu.Unlock()
			break
		}
	}
	if f.end != nil {
		f.end()
	}
	_ = f.w.Close()
}

func (f *feeder) stopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// stop ends the copying and returns the reader's error. It does not wait for a read in progress.
func (f *feeder) stop() error {
	_ = f.w.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	return f.err
}
