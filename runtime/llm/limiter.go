package llm

import (
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Waits of a Limiter after a failure without a wait of the server: half of it fixed and half
// random, pauseBase × 2ⁿ after n failures without an answer in between, at most pauseCap.
const (
	pauseBase = 500 * time.Millisecond
	pauseCap  = 10 * time.Second
)

// Limiter keeps the requests of many agents to one server at what the server can take. The number
// of requests at the same time is halved when the server rejects one for its traffic or fails, and
// rises by one with each round of answers (additive increase, multiplicative decrease, as TCP's
// congestion avoidance, RFC 5681). While the server wants to be left alone (Retry-After), nobody
// sends. Its methods may be called concurrently.
type Limiter struct {
	clock Clock
	// maxWait is the longest pause that a server may request.
	maxWait time.Duration

	mu sync.Mutex
	// allowed is the number of requests at the same time; infinite until the first failure.
	allowed float64
	running int
	// until is the end of the pause.
	until time.Time
	// era counts the reductions. The failure of a request that an earlier era has sent reduces
	// nothing.
	era, failures int
	// changed is closed when a request ends.
	changed chan struct{}
}

// NewLimiter returns a limiter for clients with a policy, of which it uses MaxWait and Clock: a
// server that wants a longer pause gets none, since its requests fail.
func NewLimiter(policy RetryPolicy) *Limiter {
	policy = policy.complete()
	return &Limiter{
		clock: policy.Clock, maxWait: policy.MaxWait, allowed: math.Inf(1),
		changed: make(chan struct{}),
	}
}

// Limit returns a client whose requests wait for the limiter. Put Retry around it, not below.
func (l *Limiter) Limit(inner Client) Client {
	return ClientFunc(func(ctx context.Context, req Request) iter.Seq2[Delta, error] {
		return func(yield func(Delta, error) bool) {
			era, err := l.enter(ctx)
			if err != nil {
				yield(Delta{}, canceled(ctx))
				return
			}
			var failed error
			done := false
			defer func() { l.leave(era, done, failed) }()
			for d, err := range inner.Stream(ctx, req) {
				failed, done = err, done || d.Kind == DeltaDone
				if !yield(d, err) {
					return
				}
			}
		}
	})
}

// enter waits until a request may be sent. The error is that of ctx.
func (l *Limiter) enter(ctx context.Context) (era int, err error) {
	for {
		l.mu.Lock()
		pause, changed := l.until.Sub(l.clock.Now()), l.changed
		if pause <= 0 && float64(l.running) < l.allowed {
			l.running++
			era = l.era
			l.mu.Unlock()
			return era, nil
		}
		l.mu.Unlock()
		if pause > 0 {
			if err := l.clock.Sleep(ctx, pause); err != nil {
				return 0, err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// leave ends a request that an era has sent.
func (l *Limiter) leave(era int, done bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	var e *Error
	switch {
	case done:
		l.failures = 0
		l.allowed += 1 / l.allowed
	case errors.As(failed, &e) && e.Retryable():
		l.reduce(era, e)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// reduce follows a failure. The caller holds the lock.
func (l *Limiter) reduce(era int, e *Error) {
	pause := time.Duration(0)
	if era == l.era {
		l.era++
		l.allowed = max(min(l.allowed, float64(l.running+1))/2, 1)
		limit := min(pauseBase<<min(l.failures, 10), pauseCap)
		l.failures++
		pause = limit/2 + time.Duration(rand.Float64()*float64(limit/2))
	}
	if e.HasRetryAfter && e.RetryAfter <= l.maxWait {
		pause = e.RetryAfter
	}
	if until := l.clock.Now().Add(pause); until.After(l.until) {
		l.until = until
	}
}
