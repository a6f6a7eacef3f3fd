//go:build unix

package sandboxd

import (
	"context"
	"sync"
	"time"
)

// leaseSteps is the number of steps of a lease. A step counts as one however long it took, so that
// a frozen process resumes with its lease nearly unchanged.
const leaseSteps = 12

// clock is monotonic time, which does not jump like the wall clock.
type clock interface {
	// elapsed is the time since a fixed moment.
	elapsed() time.Duration
	after(time.Duration) <-chan time.Time
}

// systemClock does not advance while the machine is suspended.
type systemClock struct{ start time.Time }

func (c systemClock) elapsed() time.Duration                 { return time.Since(c.start) }
func (c systemClock) after(d time.Duration) <-chan time.Time { return time.After(d) }

// lease ends after ttl without a client. A machine or a process that was stopped for longer gives
// its clients the whole ttl again.
type lease struct {
	ttl time.Duration
	// first is the time until the first client; 0 means ttl.
	first time.Duration
	clock clock

	changed chan struct{}
	mu      sync.Mutex
	clients int
	renewed bool // a client was connected since the last poll
}

func newLease(ttl time.Duration, c clock) *lease {
	return &lease{ttl: ttl, clock: c, changed: make(chan struct{}, 1)}
}

// set sets the number of clients.
func (l *lease) set(clients int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = clients
	l.renewed = l.renewed || clients > 0
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// poll returns the number of clients, and whether it was above 0 since the last call.
func (l *lease) poll() (clients int, renewed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clients, renewed = l.clients, l.renewed
	l.renewed = false
	return clients, renewed
}

// wait returns true when the lease has ended, and false if ctx ended before.
func (l *lease) wait(ctx context.Context) bool {
	step := max(l.ttl/leaseSteps, 1)
	for left := max(l.ttl, l.first); ; {
		clients, renewed := l.poll()
		switch {
		case renewed:
			left = l.ttl
		case left <= 0:
			return true
		}
		var tick <-chan time.Time
		if clients == 0 {
			tick = l.clock.after(step)
		}
		start := l.clock.elapsed()
		select {
		case <-ctx.Done():
			return false
		case <-l.changed:
			continue
		case <-tick:
		}
		if left -= step; l.clock.elapsed()-start >= step+l.ttl {
			left = l.ttl
		}
	}
}
