package client

import (
	"fmt"
	"io"

	"github.com/sandboxagent/sandboxagent/env"
)

// sink writes one output of a command to the caller's writer.
type sink struct {
	name  string
	w     io.Writer
	busy  func(int)
	taken int64 // how many bytes have arrived, delivered or not
	err   error // of the writer, after which it is not called any more

	// queue is set if the command has another sink, which this one must not hold up: a goroutine
	// delivers from it.
	queue *queue
	done  chan struct{} // closed when that goroutine ends; nil before it starts
}

// write takes p, which the caller may reuse.
func (s *sink) write(p []byte) {
	s.taken += int64(len(p))
	if s.queue == nil {
		s.deliver(p)
		return
	}
	if s.done == nil {
		s.done = make(chan struct{})
		go func() {
			defer close(s.done)
			for {
				data, end := s.queue.take()
				s.deliver(data)
				if end {
					return
				}
			}
		}()
	}
	s.queue.put(p)
}

func (s *sink) deliver(p []byte) {
	if len(p) == 0 || s.err != nil {
		return
	}
	s.busy(1)
	n, err := s.w.Write(p)
	s.busy(-1)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.name, err)
	}
}

// count returns how many bytes have arrived; 0 for a nil sink.
func (s *sink) count() int64 {
	if s == nil {
		return 0
	}
	return s.taken
}

// finish delivers the rest and returns the writer's error. The writer is not called afterwards.
func (s *sink) finish() error {
	if s.done != nil {
		s.queue.end()
		<-s.done
	}
	return s.err
}

// sinks returns the sinks of a command, nil without a writer. If both writers are the same there is
// one sink for both.
func sinks(cmd env.Command, busy func(int)) (stdout, stderr *sink, merged bool) {
	merged = cmd.SharesWriter()
	if cmd.Stdout != nil {
		stdout = &sink{name: "stdout", w: cmd.Stdout, busy: busy}
	}
	if cmd.Stderr != nil && !merged {
		stderr = &sink{name: "stderr", w: cmd.Stderr, busy: busy}
	}
	if stdout != nil && stderr != nil {
		stdout.queue, stderr.queue = newQueue(), newQueue()
	}
	return stdout, stderr, merged
}
