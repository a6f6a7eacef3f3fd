package wire

import (
	"fmt"
	"io"
	"reflect"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
)

// sink takes one output of a command to the caller's writer.
type sink struct {
	name  string
	w     io.Writer
	busy  func(int)
	taken int64 // how many bytes have arrived, delivered or not
	err   error // of the writer, after which it is not called any more

	// queue is there if the command has another sink, which this one is not to hold up: a goroutine delivers from it.
	queue *queue
	done  chan struct{} // closed when that goroutine ends; nil before it has begun
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

// count returns how many bytes have arrived. A nil sink has none.
func (s *sink) count() int64 {
	if s == nil {
		return 0
	}
	return s.taken
}

// finish delivers what is left and returns the writer's error. The writer is not called after it.
func (s *sink) finish() error {
	if s.done != nil {
		s.queue.end()
		<-s.done
	}
	return s.err
}

// sinks returns the sinks for the outputs that the caller wants; nil for others. If both have the same writer there is
// one, for both.
func sinks(cmd env.Command, busy func(int)) (stdout, stderr *sink, merged bool) {
	merged = cmd.Stdout != nil && cmd.Stderr != nil && sameWriter(cmd.Stdout, cmd.Stderr)
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

// sameWriter reports whether two writers are one. Values that cannot be compared are not.
func sameWriter(a, b io.Writer) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.Comparable() && vb.Comparable() && a == b
}

// queue hands bytes from one goroutine to another. It holds one window of them at most, with those that were taken last.
type queue struct {
	mu     sync.Mutex
	change sync.Cond
	data   []byte
	spare  []byte // what was taken last
	over   bool   // nothing more is put
	given  bool   // nothing more is taken
}

func newQueue() *queue {
	q := &queue{}
	q.change.L = &q.mu
	return q
}

// put adds a copy of p, once there is room for it. It reports false if nothing is taken any more.
func (q *queue) put(p []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.given && len(q.data) > 0 && len(q.spare)+len(q.data)+len(p) > Window {
		q.change.Wait()
	}
	if q.given {
		return false
	}
	q.data = append(q.data, p...)
	q.change.Signal()
	return true
}

// end says that nothing more is put.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	q.change.Signal()
}

// take waits for data and returns all there is, with whether it was the last. It is valid until the next call.
func (q *queue) take() (data []byte, end bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = q.spare[:0]
	q.change.Signal()
	for len(q.data) == 0 && !q.over && !q.given {
		q.change.Wait()
	}
	if q.given {
		return nil, true
	}
	data, q.data, q.spare = q.data, q.spare, q.data
	return data, q.over
}

// leave says that nothing more is taken, also to a take that waits.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.given, q.data, q.spare = true, nil, nil
	q.change.Broadcast()
}
