package portable

import (
	"io"
	"reflect"
	"sync"
	"time"
)

// afterExit bounds what of a stream is delivered after the command has exited: more than all pipes on the way hold.
const afterExit = 8 << 20

// sink delivers one stream of a command.
type sink struct {
	w  io.Writer
	mu *sync.Mutex // held around calls of w, which both streams may share

	state   sync.Mutex
	off     bool // nothing is delivered any more
	err     error
	exited  bool
	stalled time.Duration // what calls of w have taken since the command exited
	since   time.Time     // when the present call of w began; zero if there is none
	late    int64         // bytes delivered since the command exited
	ended   bool          // the stream has ended
}

// deliver gives data to the writer.
func (s *sink) deliver(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Lock()
	if s.off || s.err != nil || s.w == nil {
		s.state.Unlock()
		return
	}
	s.since = time.Now()
	s.state.Unlock()
	n, err := s.w.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.err = err
	if s.exited {
		s.stalled += time.Since(s.since)
		s.late += int64(len(data))
	}
	s.since = time.Time{}
}

// exit notes that the command has exited.
func (s *sink) exit() {
	s.state.Lock()
	defer s.state.Unlock()
	s.exited = true
	if !s.since.IsZero() {
		s.since = time.Now()
	}
}

// end notes that the stream has ended.
func (s *sink) end() {
	s.state.Lock()
	defer s.state.Unlock()
	s.ended = true
}

// remaining returns how long the end of the stream may be waited for, if the command exited at t. Time that the writer
// takes does not count, as long as there can be something that was written before the exit.
func (s *sink) remaining(t time.Time, limit time.Duration) time.Duration {
	s.state.Lock()
	defer s.state.Unlock()
	stalled := s.stalled
	if !s.since.IsZero() {
		stalled += time.Since(s.since)
	}
	if s.late > afterExit {
		stalled = 0
	}
	return limit + stalled - time.Since(t)
}

// finish waits for a call of the writer, ends the delivery and returns the writer's error.
func (s *sink) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Lock()
	defer s.state.Unlock()
	s.off = true
	return s.err
}

// same reports whether two writers are one. Values that cannot be compared are not.
func same(a, b io.Writer) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.Comparable() && vb.Comparable() && a == b
}

func (s *sink) hasEnded() bool {
	s.state.Lock()
	defer s.state.Unlock()
	return s.ended
}
