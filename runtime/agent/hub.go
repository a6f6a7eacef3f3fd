package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// hub numbers the events of one session and delivers them, in order, to every receiver. Sinks are
// lossless: emit waits for them. Subscribers have a bounded queue: a slow one gets an event.Gap
// instead of the events that do not fit.
type hub struct {
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
	fn      func(event.Event) error
	removed atomic.Bool
}

func newHub(sessionID string, now func() time.Time, log *slog.Logger) *hub {
	return &hub{now: now, sessionID: sessionID, log: log, subs: map[*subscription]struct{}{}}
}

// addSink adds a receiver that emit calls and waits for. The returned function removes it; it gets
// no later event. A sink must not call emit, which returns the error or panic of a sink after
// delivery to the others.
func (h *hub) addSink(fn func(event.Event) error) (remove func()) {
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

// emit delivers an event of an agent of the session. It is safe for concurrent use; events of one
// goroutine keep their order. After close it does nothing.
func (h *hub) emit(origin event.Origin, runID string, data event.Data) error {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	done, sinks, subs := h.done, slices.Clone(h.sinks), slices.Collect(maps.Keys(h.subs))
	h.mu.Unlock()
	if done {
		return nil
	}
	h.seq++
	e := event.Event{
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

func (h *hub) callSink(s *sink, e event.Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("event sink panicked", "kind", e.Kind(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("sink panicked: %v", p)
		}
	}()
	return s.fn(e)
}

// subscribe calls fn for each later event in a new goroutine. At most buffer events wait, at least
// one. The returned function ends the subscription without waiting. A panic of fn is logged and
// ends the subscription only.
func (h *hub) subscribe(buffer int, fn func(event.Event)) (cancel func()) {
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

func (h *hub) drop(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
	s.end()
}

// close delivers the queued events of all subscriptions, for at most timeout, and ends them. emit
// discards later events.
func (h *hub) close(timeout time.Duration) {
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
	queue    []event.Event
	missed   int64
	missedAt event.Event
	last     bool
	ended    bool
}

func (s *subscription) offer(e event.Event) {
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

// flushGap queues an event.Gap for the missed events. The caller holds mu.
func (s *subscription) flushGap() {
	if s.missed == 0 {
		return
	}
	gap := s.missedAt
	gap.Data = event.Gap{Missed: s.missed}
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

func (s *subscription) deliver(fn func(event.Event)) {
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
