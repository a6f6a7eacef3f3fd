package llm_test

import (
	"cmp"
	"context"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// busyServer answers at most most requests at the same time, each after a second, and rejects more.
type busyServer struct {
	most  int
	after time.Duration // Retry-After; zero sends none
	slow  time.Duration // the time until a rejection
	kind  llm.ErrorKind // of a rejection; default llm.KindRateLimit

	mu                         sync.Mutex
	running, answered, refused int
	peak                       int       // the most requests that were answered at the same time
	closed                     time.Time // no request is allowed before
	early                      int
}

func (s *busyServer) Stream(ctx context.Context, _ llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		s.mu.Lock()
		if time.Now().Before(s.closed) {
			s.early++
		}
		if s.running >= s.most {
			s.refused++
			if s.after > 0 {
				s.closed = time.Now().Add(s.after)
			}
			s.mu.Unlock()
			time.Sleep(s.slow)
			yield(llm.Delta{}, &llm.Error{
				Kind: cmp.Or(s.kind, llm.KindRateLimit), RetryAfter: s.after, HasRetryAfter: s.after > 0,
			})
			return
		}
		s.running++
		s.peak = max(s.peak, s.running)
		s.mu.Unlock()
		err := llm.SystemClock().Sleep(ctx, time.Second)
		s.mu.Lock()
		s.running--
		s.answered++
		s.mu.Unlock()
		if err != nil {
			yield(llm.Delta{}, &llm.Error{Kind: llm.KindCanceled, Err: err})
			return
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{}}, nil)
	}
}

// send has workers that send requests at the same time, and returns how many of them failed in the
// end.
func send(ctx context.Context, client llm.Client, workers, each int) (failed int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for range workers {
		all.Go(func() {
			for range each {
				for _, err := range client.Stream(ctx, llm.Request{}) {
					if err != nil {
						mu.Lock()
						failed++
						mu.Unlock()
					}
				}
			}
		})
	}
	all.Wait()
	return failed
}

// TestLimiter has 50 workers and a server that can take 5 requests at the same time.
func TestLimiter(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		kind  llm.ErrorKind
	}{
		"backoff": {}, "failures": {0, llm.KindServer}, "Retry-After": {20 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := tt.after
			const workers, each = 50, 10
			refused := map[bool]int{}
			for _, limited := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					s := &busyServer{most: 5, after: after, kind: tt.kind}
					var client llm.Client = s
					if limited {
						client = llm.NewLimiter(llm.RetryPolicy{}).Limit(s)
					}
					client = llm.Retry(client, llm.RetryPolicy{MaxRetries: 1000})
					if failed := send(t.Context(), client, workers, each); failed > 0 {
						t.Errorf("%d requests failed", failed)
					}
					refused[limited] = s.refused
					if s.answered != workers*each {
						t.Errorf("%d requests were answered", s.answered)
					}
					// those that were under way at the first refusal
					if limited && after > 0 && s.early > workers {
						t.Errorf("%d requests came before the time of Retry-After", s.early)
					}
				})
			}
			if refused[true]*4 > refused[false] || refused[true] > workers*each/2 {
				t.Errorf("the server rejected %d requests, without a limiter %d", refused[true],
					refused[false])
			}
		})
	}
}

// TestLimiterKeepsPace has a server that rejects nothing: the limiter delays no request.
func TestLimiterKeepsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client := llm.NewLimiter(llm.RetryPolicy{}).Limit(&busyServer{most: 1000})
		if failed := send(t.Context(), client, 500, 2); failed > 0 || time.Since(start) > 2*time.Second {
			t.Errorf("%d failed, in %s", failed, time.Since(start))
		}
	})
}

// TestLimiterRecovers has a server that fails for a while, and then takes all requests again.
func TestLimiterRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &busyServer{}
		client := llm.Retry(llm.NewLimiter(llm.RetryPolicy{}).Limit(s), llm.RetryPolicy{MaxRetries: 1000})
		done := make(chan int)
		go func() { done <- send(t.Context(), client, 20, 30) }()
		time.Sleep(time.Minute)
		s.mu.Lock()
		down := s.refused
		s.most = 1000
		s.mu.Unlock()
		start := time.Now()
		if failed := <-done; failed > 0 || time.Since(start) > 3*time.Minute {
			t.Errorf("%d failed, %s after the end of the outage", failed, time.Since(start))
		}
		if down > 20+20 {
			t.Errorf("%d requests in an outage of a minute", down)
		}
	})
}

// TestLimiterHalvesOnce has requests that fail at the same time: only the first failure counts.
func TestLimiterHalvesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &busyServer{after: time.Minute, slow: time.Second}
		client := llm.Retry(llm.NewLimiter(llm.RetryPolicy{}).Limit(s), llm.RetryPolicy{MaxRetries: 9})
		done := make(chan int)
		go func() { done <- send(t.Context(), client, 64, 1) }()
		time.Sleep(30 * time.Second)
		s.mu.Lock()
		s.most = 1000
		s.mu.Unlock()
		if failed := <-done; failed > 0 || s.refused != 64 || s.peak < 16 || s.peak > 33 {
			t.Errorf("%d failed, %d were rejected, then %d at a time", failed, s.refused, s.peak)
		}
	})
}

// TestLimiterEnds has a request that waits when its context ends.
func TestLimiterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := llm.NewLimiter(llm.RetryPolicy{})
		s := &busyServer{after: 4 * time.Minute}
		send(t.Context(), l.Limit(s), 1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range l.Limit(s).Stream(ctx, llm.Request{}) {
			if llm.KindOf(err) != llm.KindCanceled {
				t.Errorf("got %v", err)
			}
		}
		if s.refused != 1 {
			t.Errorf("%d requests were sent", s.refused)
		}
	})
}

// TestLimiterGivesUp has a server that wants a longer pause than is allowed: nobody waits for it.
func TestLimiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client := llm.NewLimiter(llm.RetryPolicy{}).Limit(&busyServer{after: time.Hour})
		if failed := send(t.Context(), client, 1, 5); failed != 5 || time.Since(start) > time.Minute {
			t.Errorf("%d failed, in %s", failed, time.Since(start))
		}
	})
}
