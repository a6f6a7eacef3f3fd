package local

import (
	"os"

	"github.com/sandboxagent/sandboxagent/env"
)

// terminal is the terminal of a command. A pump copies its output and a feeder its input.
type terminal struct {
	// tty is the command's side. It stays open until the command has ended, since a command may close
	// all its streams and open its terminal again.
	tty *os.File
	// control is the other side. The pump closes it.
	control *os.File

	stop, done chan struct{} // closed when follow is to return, and when it has
}

func newTerminal(tty, control *os.File) *terminal {
	return &terminal{tty: tty, control: control, stop: make(chan struct{}), done: make(chan struct{})}
}

// startSize returns s with the default for each zero field.
func startSize(s env.TTYSize) env.TTYSize {
	if s.Columns == 0 {
		s.Columns = 80
	}
	if s.Rows == 0 {
		s.Rows = 24
	}
	return s
}

// follow sets the sizes from a channel, which may be nil, until the channel is closed or end is
// called.
func (t *terminal) follow(sizes <-chan env.TTYSize) {
	defer close(t.done)
	for {
		select {
		case <-t.stop:
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if size.Columns > 0 && size.Rows > 0 {
				_ = setSize(t.control, size) // it fails once the terminal is closed
			}
		}
	}
}

// end is called when the command has ended. It stops receiving sizes. The terminal reaches end of
// file once no descendant has it open.
func (t *terminal) end() {
	close(t.stop)
	<-t.done
	_ = t.tty.Close()
}
