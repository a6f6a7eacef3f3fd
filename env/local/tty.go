package local

import (
	"os"

	"github.com/sandboxagent/sandboxagent/env"
)

// terminal is the terminal of a command. A pump carries its output and a feeder its input; this is
// the rest.
type terminal struct {
	// tty is the command's side. It is held open until the command has ended: a command may close all
	// its streams and open its terminal again later, so that a terminal which nobody has open is not
	// at its end.
	tty *os.File
	// control is this side. It belongs to the pump.
	control *os.File

	stop, done chan struct{} // closed when follow is to return, and when it has
}

func newTerminal(tty, control *os.File) *terminal {
	return &terminal{tty: tty, control: control, stop: make(chan struct{}), done: make(chan struct{})}
}

// startSize returns the size that a terminal starts with where s is asked for.
func startSize(s env.TTYSize) env.TTYSize {
	if s.Columns == 0 {
		s.Columns = 80
	}
	if s.Rows == 0 {
		s.Rows = 24
	}
	return s
}

// follow gives the terminal the sizes that come from a channel, which may be nil, until the channel
// is closed or end is called.
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
				_ = setSize(t.control, size) // a terminal that is gone has no size
			}
		}
	}
}

// end is called when the command has ended. Afterwards no size is received any more, and the
// terminal is at its end once no descendant has it open.
func (t *terminal) end() {
	close(t.stop)
	<-t.done
	_ = t.tty.Close()
}
