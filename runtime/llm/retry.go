package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// Waits between attempts if the server requests none: a random part of base × 2ⁿ, at most the cap.
const (
	retryBase = 500 * time.Millisecond
	// retryCapAnswered applies after an answer, since the server is up and has too much traffic, and
	// to retries beyond RetryPolicy.MaxRetries.
	retryCapAnswered = 10 * time.Second
	// retryCapSilent applies to other retries if no answer came.
	retryCapSilent = 2 * time.Second
)

// Defaults of RetryPolicy.
const (
	DefaultMaxRetries = 3
	DefaultMaxWait    = 5 * time.Minute
)

// RetryPolicy bounds the retries and waits of Retry. The zero value has the defaults.
type RetryPolicy struct {
	// MaxRetries is the number of attempts after the first; zero means DefaultMaxRetries, a negative
	// number none.
	MaxRetries int
	// For is how long a request is sent again beyond MaxRetries, from its first failure on, so that an
	// outage of some minutes loses no run; the default is none. A wait that the server requests must
	// end within it.
	For time.Duration
	// MaxWait is the longest wait that a server may request; zero means DefaultMaxWait, a negative
	// duration no wait at all.
	MaxWait time.Duration
	// Clock waits; nil means SystemClock.
	Clock Clock
	// Rand returns a random number in [0, 1); nil means a shared random source. It may be called
	// concurrently.
	Rand func() float64
}

// Retry returns a Client that sends a request again after a retryable error (Error.Retryable).
// Before each wait it yields DeltaRetry, which discards the deltas of the failed attempt.
//
// It waits exactly as long as the server requests. If that is more than MaxWait, it returns the
// error at once, with a *WaitError as the cause. Without such a request the wait is random, up to
// 500 ms × 2ⁿ, at most 10 s after an answer and 2 s without one; beyond MaxRetries at most 10 s.
func Retry(inner Client, policy RetryPolicy) Client {
	return &retry{inner: inner, policy: policy.complete()}
}

// complete returns the policy with its defaults.
func (policy RetryPolicy) complete() RetryPolicy {
	if policy.MaxRetries == 0 {
		policy.MaxRetries = DefaultMaxRetries
	}
	if policy.MaxWait == 0 {
		policy.MaxWait = DefaultMaxWait
	}
	if policy.Clock == nil {
		policy.Clock = SystemClock()
	}
	if policy.Rand == nil {
		policy.Rand = rand.Float64
	}
	return policy
}

type retry struct {
	inner  Client
	policy RetryPolicy
}

var _ Client = (*retry)(nil)

// Stream implements Client.
func (r *retry) Stream(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		emit := func(d Delta) bool { return yield(d, nil) }
		var first time.Time // when the first attempt failed
		for retries := 0; ; retries++ {
			if ctx.Err() != nil {
				yield(Delta{}, canceled(ctx))
				return
			}
			more, err := r.attempt(ctx, req, emit)
			if !more || err == nil {
				return
			}
			now := r.policy.Clock.Now()
			if retries == 0 {
				first = now
			}
			wait, final := r.next(err, retries, first.Add(r.policy.For).Sub(now))
			if final != nil {
				yield(Delta{}, final)
				return
			}
			if !emit(Delta{Kind: DeltaRetry, Retry: &RetryNotice{
				Attempt: retries + 2, Delay: wait,
				Err: err,
			}}) {
				return
			}
			if err := r.policy.Clock.Sleep(ctx, wait); err != nil {
				yield(Delta{}, &Error{Kind: KindCanceled, Err: err})
				return
			}
		}
	}
}

// attempt sends req once. More is false if the receiver has left the iteration. A nil error means a
// complete answer.
func (r *retry) attempt(
	ctx context.Context, req Request, emit func(Delta) bool,
) (more bool, err error) {
	done := false
	for d, err := range r.inner.Stream(ctx, req) {
		if done {
			// The answer is complete, even if the connection fails after it.
			continue
		}
		if err != nil {
			return true, err
		}
		done = d.Kind == DeltaDone
		if !emit(d) {
			return false, nil
		}
	}
	switch {
	case done:
		return true, nil
	case ctx.Err() != nil:
		return true, canceled(ctx)
	}
	return true, &Error{Kind: KindStream, Message: "the answer ended before it was complete"}
}

// next returns the wait before the next attempt, or the final error. Left is the rest of
// RetryPolicy.For.
func (r *retry) next(err error, retries int, left time.Duration) (time.Duration, error) {
	var e *Error
	beyond := retries >= r.policy.MaxRetries
	if !errors.As(err, &e) || !e.Retryable() || beyond && left <= 0 {
		return 0, err
	}
	if !e.HasRetryAfter {
		wait := r.backoff(e.Status != 0 || beyond, retries)
		if beyond {
			wait = min(wait, left) // with one more attempt at the end
		}
		return wait, nil
	}
	limit := max(r.policy.MaxWait, 0)
	switch {
	case e.RetryAfter > limit:
		return 0, tooLong(e, limit)
	case beyond && e.RetryAfter > left:
		return 0, err
	}
	wait := max(e.RetryAfter, 0)
	if beyond { // a server that always says "now" gets no flood
		wait = min(max(wait, r.backoff(true, retries)), max(left, wait))
	}
	return wait, nil
}

// backoff returns a random wait. All of it is random, so that many sessions that failed at once do
// not return at once.
func (r *retry) backoff(answered bool, retries int) time.Duration {
	limit := retryCapSilent
	if answered {
		limit = retryCapAnswered
	}
	// The shift is bounded, for a policy may allow any number of retries.
	limit = min(limit, retryBase<<min(retries, 10))
	return time.Duration(r.policy.Rand() * float64(limit))
}

// WaitError is the cause of the error of a server that requests a wait longer than
// RetryPolicy.MaxWait.
type WaitError struct {
	Wait, Limit time.Duration
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("the server requests a wait of %s, longer than the limit of %s", e.Wait,
		e.Limit)
}

// tooLong returns e with a *WaitError as its cause and in its text.
func tooLong(e *Error, limit time.Duration) *Error {
	long := *e
	if long.Message == "" && long.Err != nil {
		long.Message = long.Err.Error()
	}
	if long.Message != "" {
		long.Message += "; "
	}
	long.Err = &WaitError{Wait: e.RetryAfter, Limit: limit}
	long.Message += long.Err.Error()
	return &long
}
