//go:build unix

package sandboxd

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeClock is a clock that advance moves.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Duration
	timers []fakeTimer
	armed  chan struct{} // gets a value when a timer is set
}

type fakeTimer struct {
	at   time.Duration
	fire chan time.Time
}

func newFakeClock() *fakeClock { return &fakeClock{armed: make(chan struct{}, 1000)} }

func (c *fakeClock) elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// after returns a channel that gets the time of the wall clock, which jumps.
func (c *fakeClock) after(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := fakeTimer{at: c.now + d, fire: make(chan time.Time, 1)}
	c.timers = append(c.timers, t)
	c.armed <- struct{}{}
	return t.fire
}

// advance moves the clock when the next timer has been set.
func (c *fakeClock) advance(t *testing.T, d time.Duration, wall time.Time) {
	t.Helper()
	select {
	case <-c.armed:
	case <-time.After(3 * time.Minute):
		t.Fatal("no timer was set")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
	var later []fakeTimer
	for _, timer := range c.timers {
		if timer.at <= c.now {
			timer.fire <- wall
		} else {
			later = append(later, timer)
		}
	}
	c.timers = later
}

// startLease starts a lease of a minute. The channel gets the result of wait.
func startLease(t *testing.T) (*lease, *fakeClock, <-chan bool) {
	t.Helper()
	c := newFakeClock()
	l := newLease(time.Minute, c)
	ended := make(chan bool, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { ended <- l.wait(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return l, c, ended
}

const step = time.Minute / leaseSteps

func mustLast(t *testing.T, c *fakeClock, ended <-chan bool) {
	t.Helper()
	select {
	case <-c.armed:
		c.armed <- struct{}{}
	case <-ended:
		t.Fatal("the lease has ended")
	case <-time.After(3 * time.Minute):
		t.Fatal("the lease neither ends nor goes on")
	}
}

func mustEnd(t *testing.T, ended <-chan bool) {
	t.Helper()
	select {
	case expired := <-ended:
		if !expired {
			t.Error("the lease was cancelled")
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("the lease does not end")
	}
}

// TestF23WallClockJumps lets the wall clock jump by an hour at each step.
func TestF23WallClockJumps(t *testing.T) {
	_, c, ended := startLease(t)
	wall := time.Now()
	for i := range leaseSteps - 1 {
		jump := time.Hour
		if i%2 == 1 {
			jump = -jump
		}
		wall = wall.Add(jump)
		c.advance(t, step, wall)
	}
	mustLast(t, c, ended)
	c.advance(t, step, wall.Add(-time.Hour))
	mustEnd(t, ended)
}

// TestF23Suspend stops everything for ten minutes when the lease has nearly expired. Whether the
// monotonic clock counted them or not, a client has time to reconnect.
func TestF23Suspend(t *testing.T) {
	t.Run("counted", func(t *testing.T) {
		_, c, ended := startLease(t)
		for range leaseSteps - 1 {
			c.advance(t, step, time.Time{})
		}
		c.advance(t, 10*time.Minute, time.Now().Add(10*time.Minute))
		for range leaseSteps - 1 {
			c.advance(t, step, time.Time{})
		}
		mustLast(t, c, ended)
		c.advance(t, step, time.Time{})
		mustEnd(t, ended)
	})
	t.Run("not counted", func(t *testing.T) {
		_, c, ended := startLease(t)
		c.advance(t, step, time.Now().Add(10*time.Minute))
		for range leaseSteps - 2 {
			c.advance(t, step, time.Time{})
		}
		mustLast(t, c, ended)
	})
}

func TestLeaseIsRenewedByClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Minute, systemClock{time.Now()})
		ended := make(chan time.Time, 1)
		go func() {
			l.wait(t.Context())
			ended <- time.Now()
		}()
		time.Sleep(59 * time.Second)
		l.set(1)
		time.Sleep(time.Hour)
		l.set(2)
		l.set(1)
		time.Sleep(time.Hour)
		l.set(0)
		left := time.Now()
		time.Sleep(30 * time.Second)
		l.set(1) // a client that leaves at once
		l.set(0)
		left = left.Add(30 * time.Second)
		if got := (<-ended).Sub(left); got < time.Minute || got > time.Minute+step {
			t.Errorf("the lease has ended %v after the last client", got)
		}
	})
}

func TestLeaseIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Minute, systemClock{time.Now()})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if l.wait(ctx) {
			t.Error("the lease expired early")
		}
	})
}
