package event

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Hub numbers the events of one session and delivers them, in order, to every receiver. Sinks are
// lossless: Emit waits for them. Subscribers have a bounded queue: a slow one gets a Gap instead of
// the events that do not fit.
type Hub struct {
	now       func() time.Time
	sessionID string
	log       *slog.Logger

	// order is locked during the delivery of an event, so while a sink runs. mu is never locked for
	// long.
	order sync.Mutex
	seq   int64 // under order

	mu    sync.Mutex
	sinks []*sink
	subs  map[*subscription]struct{}
	done  bool
	wg    sync.WaitGroup
}

type sink struct {
	fn      func(Event) error
	removed atomic.Bool
}

// NewHub returns a Hub for the session id. A nil now means time.Now, a nil log slog.Default.
func NewHub(sessionID string, now func() time.Time, log *slog.Logger) *Hub {
	if now == nil {
		now = time.Now
	}
	if log == nil {
		log = slog.Default()
	}
	return &Hub{now: now, sessionID: sessionID, log: log, subs: map[*subscription]struct{}{}}
}

// AddSink adds a receiver that Emit calls and waits for. The returned function removes it; it gets
// no later event. A sink must not call Emit. Emit returns the error or panic of a sink after
// delivery to the others.
func (h *Hub) AddSink(fn func(Event) error) (remove func()) {
	s := &sink{fn: fn}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sinks = append(h.sinks, s)
	return func() {
		s.removed.Store(true)
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, have := range h.sinks {
			if have == s {
				h.sinks = append(h.sinks[:i:i], h.sinks[i+1:]...)
				return
			}
		}
	}
}

// Emit delivers an event of the session's root agent. It is safe for
// concurrent use; events of one goroutine keep their order. After Close it does nothing.
func (h *Hub) Emit(runID string, data Data) error { return h.EmitFrom(Origin{}, runID, data) }

// EmitFrom is Emit for any agent of the session.
func (h *Hub) EmitFrom(origin Origin, runID string, data Data) error {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	done, sinks, subs := h.done, slices.Clone(h.sinks), slices.Collect(maps.Keys(h.subs))
	h.mu.Unlock()
	if done {
		return nil
	}
	h.seq++
	e := Event{
		Seq: h.seq, Time: h.now(), SessionID: h.sessionID, RunID: runID, Origin: origin,
		Data: data,
	}
	var first error
	for _, s := range sinks {
		if s.removed.Load() {
			continue
		}
		if err := h.callSink(s, e); err != nil && first == nil {
			first = fmt.Errorf("deliver event %s: %w", e.Kind(), err)
		}
	}
	for _, s := range subs {
		s.offer(e)
	}
	return first
}

func (h *Hub) callSink(s *sink, e Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("event sink panicked", "kind", e.Kind(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("sink panicked: %v", p)
		}
	}()
	return s.fn(e)
}

// Subscribe calls fn for each later event in a new goroutine. At most buffer events wait, at least
// one. The returned function ends the subscription without waiting. A panic of fn is logged and
// ends the subscription only.
func (h *Hub) Subscribe(buffer int, fn func(Event)) (cancel func()) {
	s := &subscription{max: max(buffer, 1), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return func() {}
	}
	h.subs[s] = struct{}{}
	h.wg.Add(1)
	go func() {
		defer h.wg.Done()
		defer h.drop(s)
		defer func() {
			if p := recover(); p != nil {
				h.log.Error("event subscriber panicked", "panic", p, "stack", string(debug.Stack()))
			}
		}()
		s.deliver(fn)
	}()
	return func() { h.drop(s) }
}

func (h *Hub) drop(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
	s.end()
}

// Close delivers the queued events of all subscriptions, for at most timeout, and ends them. Emit
// discards later events.
func (h *Hub) Close(timeout time.Duration) {
	h.mu.Lock()
	h.done = true
	for s := range h.subs {
		s.finish()
	}
	h.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(idle)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		h.log.Warn("event subscribers did not finish in time", "timeout", timeout)
	}
}

// subscription is the bounded queue of one subscriber.
type subscription struct {
	max  int
	wake chan struct{}
	stop chan struct{}

	mu       sync.Mutex
	queue    []Event
	missed   int64
	missedAt Event
	last     bool
	ended    bool
}

func (s *subscription) offer(e Event) {
	s.mu.Lock()
	if len(s.queue) >= s.max {
		s.missed++
		s.missedAt = e
	} else {
		s.flushGap()
		s.queue = append(s.queue, e)
	}
	s.mu.Unlock()
	s.signal()
}

// flushGap queues a Gap for the missed events. The caller holds mu.
func (s *subscription) flushGap() {
	if s.missed == 0 {
		return
	}
	gap := s.missedAt
	gap.Data = Gap{Missed: s.missed}
	s.queue = append(s.queue, gap)
	s.missed = 0
}

func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) finish() {
	s.mu.Lock()
	s.last = true
	s.mu.Unlock()
	s.signal()
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.stop)
	}
}

func (s *subscription) deliver(fn func(Event)) {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.flushGap()
		}
		batch := s.queue
		s.queue = nil
		last := s.last
		s.mu.Unlock()
		for _, e := range batch {
			select {
			case <-s.stop:
				return
			default:
			}
			fn(e)
		}
		if len(batch) > 0 {
			continue
		}
		if last {
			return
		}
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
	}
}
