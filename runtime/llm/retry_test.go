package llm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// fakeClock keeps the waits and does not wait.
type fakeClock struct {
	waits []time.Duration
	// end is called instead of the wait, if it is set.
	end func()
	now time.Duration
}

func (c *fakeClock) Now() time.Time { return time.Unix(0, 0).Add(c.now) }

func (c *fakeClock) Sleep(ctx context.Context, d time.Duration) error {
	c.waits = append(c.waits, d)
	c.now += d
	if c.end != nil {
		c.end()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func almostOne() float64 { return 1 }

func TestRetryWaits(t *testing.T) {
	after := func(d time.Duration) error {
		return &llm.Error{Kind: llm.KindRateLimit, Status: 429, HasRetryAfter: true, RetryAfter: d}
	}
	tests := map[string]struct {
		err    error
		policy llm.RetryPolicy
		waits  []time.Duration
	}{
		"rises": {
			&llm.Error{Kind: llm.KindServer, Status: 500},
			llm.RetryPolicy{},
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second},
		},
		"cap if the server answered": {
			&llm.Error{Kind: llm.KindStream, Status: 200}, llm.RetryPolicy{MaxRetries: 7}, []time.Duration{
				500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
				8 * time.Second, 10 * time.Second, 10 * time.Second,
			},
		},
		"cap if it did not": {
			&llm.Error{Kind: llm.KindNetwork}, llm.RetryPolicy{MaxRetries: 5}, []time.Duration{
				500 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second,
			},
		},
		"all of it is random": {
			&llm.Error{Kind: llm.KindTimeout},
			llm.RetryPolicy{MaxRetries: 2, Rand: func() float64 { return 0.01 }},
			[]time.Duration{5 * time.Millisecond, 10 * time.Millisecond},
		},
		"the server's wish is kept to exactly": {
			after(7 * time.Second), llm.RetryPolicy{MaxRetries: 1}, []time.Duration{7 * time.Second},
		},
		"also above the cap": {
			after(5 * time.Minute), llm.RetryPolicy{MaxRetries: 1}, []time.Duration{5 * time.Minute},
		},
		"at once":                     {after(0), llm.RetryPolicy{MaxRetries: 2}, []time.Duration{0, 0}},
		"not longer than the default": {after(5*time.Minute + 1), llm.RetryPolicy{}, nil},
		"not longer than allowed": {
			after(2 * time.Second),
			llm.RetryPolicy{MaxWait: time.Second},
			nil,
		},
		"no wait allowed": {after(time.Millisecond), llm.RetryPolicy{MaxWait: -1}, nil},
		"no retries": {
			&llm.Error{Kind: llm.KindServer},
			llm.RetryPolicy{MaxRetries: -1},
			nil,
		},
		"many retries": {&llm.Error{Kind: llm.KindServer}, llm.RetryPolicy{
			MaxRetries: 80,
			Rand:       func() float64 { return 0 },
		}, make([]time.Duration, 80)},
		"wrapped": {
			fmt.Errorf("x: %w", &llm.Error{Kind: llm.KindServer}),
			llm.RetryPolicy{MaxRetries: 1},
			[]time.Duration{500 * time.Millisecond},
		},
		"foreign error": {errors.New("x"), llm.RetryPolicy{}, nil},
		"longer than the count, with the cap, and once more at the end": {
			&llm.Error{Kind: llm.KindNetwork}, llm.RetryPolicy{For: 31 * time.Second}, []time.Duration{
				500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
				8 * time.Second, 10 * time.Second, 5500 * time.Millisecond,
			},
		},
		"the count is longer": {
			&llm.Error{Kind: llm.KindServer, Status: 500},
			llm.RetryPolicy{For: time.Second},
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second},
		},
		"only for a time": {
			&llm.Error{Kind: llm.KindServer, Status: 503},
			llm.RetryPolicy{MaxRetries: -1, For: 3 * time.Second},
			[]time.Duration{500 * time.Millisecond, time.Second, 1500 * time.Millisecond},
		},
		"a wish that ends after the time": {
			after(20 * time.Second),
			llm.RetryPolicy{MaxRetries: 1, For: 50 * time.Second},
			[]time.Duration{20 * time.Second, 20 * time.Second},
		},
		"not of an error that stays": {
			&llm.Error{Kind: llm.KindAuth}, llm.RetryPolicy{For: time.Hour}, nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clock := &fakeClock{}
			tt.policy.Clock = clock
			if tt.policy.Rand == nil {
				tt.policy.Rand = almostOne
			}
			inner := &attempts{list: []attempt{{err: tt.err}}}
			_, err := llm.Complete(t.Context(), llm.Retry(inner, tt.policy), llm.Request{})
			if diff := cmp.Diff(tt.waits, clock.waits); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if inner.sent != len(tt.waits)+1 {
				t.Errorf("%d requests were sent, want %d", inner.sent, len(tt.waits)+1)
			}
			if err == nil {
				t.Error("no error in the end")
			}
		})
	}
}

func TestRetryKinds(t *testing.T) {
	retried := map[llm.ErrorKind]bool{
		llm.KindNetwork: true, llm.KindTimeout: true, llm.KindRateLimit: true, llm.KindOverloaded: true,
		llm.KindServer: true,
		llm.KindStream: true, llm.KindAuth: false, llm.KindQuota: false, llm.KindNotFound: false,
		llm.KindContextLength: false,
		llm.KindInvalid:       false, llm.KindContentFilter: false, llm.KindReplay: false,
		llm.KindCanceled: false,
	}
	for kind, want := range retried {
		inner := &attempts{list: []attempt{
			{err: &llm.Error{Kind: kind}}, {deltas: list(done(llm.FinishStop))},
		}}
		_, err := llm.Complete(t.Context(), llm.Retry(inner, llm.RetryPolicy{Clock: &fakeClock{}}),
			llm.Request{})
		if got := inner.sent == 2; got != want || got != (err == nil) {
			t.Errorf("%s: sent %d times, error %v; retried should be %t", kind, inner.sent, err, want)
		}
	}
}

func TestRetryStream(t *testing.T) {
	first, second := &llm.Error{Kind: llm.KindStream, Status: 200}, &llm.Error{Kind: llm.KindNetwork}
	inner := &attempts{list: []attempt{
		{deltas: list(text("a"), call(0, "1", "x")), err: first},
		{err: second},
		{deltas: list(text("c"), text("d"), done(llm.FinishStop))},
	}}
	clock := &fakeClock{}
	var got []llm.Delta
	for d, err := range llm.Retry(inner, llm.RetryPolicy{
		Clock: clock, Rand: almostOne,
	}).Stream(t.Context(), llm.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind == llm.DeltaRetry && len(clock.waits) != d.Retry.Attempt-2 {
			t.Errorf("the notice of attempt %d comes after its wait", d.Retry.Attempt)
		}
		got = append(got, d)
	}
	notice := func(attempt int, delay time.Duration, err error) llm.Delta {
		return llm.Delta{Kind: llm.DeltaRetry, Retry: &llm.RetryNotice{
			Attempt: attempt, Delay: delay, Err: err,
		}}
	}
	want := list(text("a"), call(0, "1", "x"), notice(2, 500*time.Millisecond, first),
		notice(3, time.Second, second),
		text("c"), text("d"), done(llm.FinishStop))
	sameError := cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })
	if diff := cmp.Diff(want, got, sameError); diff != "" {
		t.Errorf("deltas (-want +got):\n%s", diff)
	}
}

func TestRetryAfterAnAnswerWithoutEnd(t *testing.T) {
	inner := &attempts{list: []attempt{
		{deltas: []llm.Delta{text("a")}},
		{deltas: []llm.Delta{text("b"), text("c"), done(llm.FinishStop)}},
	}}
	resp, err := llm.Complete(t.Context(), llm.Retry(inner, llm.RetryPolicy{Clock: &fakeClock{}}),
		llm.Request{})
	if err != nil || resp.Message.Text() != "bc" {
		t.Errorf("got %q, %v; want the second answer", resp.Message.Text(), err)
	}
}

func TestErrorAfterTheEndIsNotRetried(t *testing.T) {
	inner := &attempts{list: []attempt{{
		deltas: list(text("a"), done(llm.FinishStop)), err: &llm.Error{Kind: llm.KindStream},
	}}}
	resp, err := llm.Complete(t.Context(), llm.Retry(inner, llm.RetryPolicy{Clock: &fakeClock{}}),
		llm.Request{})
	if err != nil || resp.Message.Text() != "a" || inner.sent != 1 {
		t.Errorf("got %q, %v after %d requests", resp.Message.Text(), err, inner.sent)
	}
}

func TestRetryTooLongWait(t *testing.T) {
	sent := &llm.Error{
		Kind: llm.KindRateLimit, Status: 429, Message: "slow down", HasRetryAfter: true,
		RetryAfter: time.Hour,
	}
	inner := &attempts{list: []attempt{{err: sent}}}
	_, err := llm.Complete(t.Context(), llm.Retry(inner, llm.RetryPolicy{Clock: &fakeClock{}}),
		llm.Request{})
	if llm.KindOf(err) != llm.KindRateLimit {
		t.Fatalf("got %v, want the server's error", err)
	}
	for _, want := range []string{"slow down", "1h0m0s", "5m0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	var long *llm.WaitError
	if !errors.As(err, &long) || long.Wait != time.Hour || long.Limit != llm.DefaultMaxWait {
		t.Errorf("the cause is %+v", long)
	}
	if sent.Message != "slow down" {
		t.Errorf("the inner error was changed to %q", sent.Message)
	}
}

func TestRetryEndsWithTheContext(t *testing.T) {
	cause := errors.New("enough")
	t.Run("while waiting", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		inner := &attempts{list: []attempt{{err: &llm.Error{Kind: llm.KindServer}}}}
		clock := &fakeClock{end: func() { cancel(cause) }}
		_, err := llm.Complete(ctx, llm.Retry(inner, llm.RetryPolicy{Clock: clock}), llm.Request{})
		if llm.KindOf(err) != llm.KindCanceled || !errors.Is(err, cause) || inner.sent != 1 {
			t.Errorf("got %v after %d requests", err, inner.sent)
		}
	})
	t.Run("before the first request", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		inner := &attempts{list: []attempt{{deltas: list(done(llm.FinishStop))}}}
		_, err := llm.Complete(ctx, llm.Retry(inner, llm.RetryPolicy{}), llm.Request{})
		if llm.KindOf(err) != llm.KindCanceled || !errors.Is(err, cause) || inner.sent != 0 {
			t.Errorf("got %v after %d requests", err, inner.sent)
		}
	})
}

func TestRetryStopsWithItsReceiver(t *testing.T) {
	for stop := range 3 {
		inner := &attempts{list: []attempt{{
			deltas: list(text("a")), err: &llm.Error{Kind: llm.KindServer},
		}}}
		seen := 0
		for _, err := range llm.Retry(inner, llm.RetryPolicy{Clock: &fakeClock{}}).Stream(t.Context(),
			llm.Request{}) {
			if err != nil {
				t.Error(err)
			}
			if seen == stop {
				break
			}
			seen++
		}
		if want := stop/2 + 1; inner.sent != want {
			t.Errorf("stopped at delta %d: %d requests, want %d", stop, inner.sent, want)
		}
	}
}

// Sessions that failed together must not come back together.
func TestRetrySpreadsSessions(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 64 {
		clock := &fakeClock{}
		inner := &attempts{list: []attempt{{err: &llm.Error{Kind: llm.KindServer, Status: 503}}}}
		_, err := llm.Complete(t.Context(), llm.Retry(inner, llm.RetryPolicy{
			Clock: clock, MaxRetries: 1,
		}), llm.Request{})
		if err == nil {
			t.Fatal("no error")
		}
		if w := clock.waits[0]; w < 0 || w > 500*time.Millisecond {
			t.Errorf("wait %s is out of bounds", w)
		}
		seen[clock.waits[0]] = true
	}
	if len(seen) < 60 {
		t.Errorf("64 sessions chose only %d waits", len(seen))
	}
}

func TestSystemClock(t *testing.T) {
	clock := llm.SystemClock()
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := clock.Sleep(ctx, time.Nanosecond); err != nil {
		t.Error(err)
	}
	cause := errors.New("enough")
	cancel(cause)
	for _, d := range []time.Duration{0, time.Hour} {
		if err := clock.Sleep(ctx, d); !errors.Is(err, cause) {
			t.Errorf("sleep %s after the end: %v, want the cause", d, err)
		}
	}
	if clock.Now().IsZero() {
		t.Error("now is never")
	}
}
