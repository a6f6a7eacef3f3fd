package integration_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// stopwatch is a clock on which waiting takes no time and is written down.
type stopwatch struct {
	mu    sync.Mutex
	waits []time.Duration
}

func (w *stopwatch) Now() time.Time { return time.Now() }

func (w *stopwatch) Sleep(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, d)
	return context.Cause(ctx)
}

func (w *stopwatch) all() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.waits)
}

// The longest waits without a wish of the server, of the first try and the ones after it.
var (
	capsAnswered = []time.Duration{500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000}
	capsSilent   = []time.Duration{500, 1000, 2000, 2000, 2000, 2000, 2000, 2000}
)

func millis(list []time.Duration) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, d := range list {
		out[i] = d * time.Millisecond
	}
	return out
}

func proveWaits(t *testing.T, w wire) {
	exactly := func(d time.Duration) []time.Duration {
		return slices.Repeat([]time.Duration{d}, len(capsAnswered))
	}
	always := func(f llmtest.Fault) func() llmtest.Fault { return func() llmtest.Fault { return f } }
	type test struct {
		fault func() llmtest.Fault
		// least and most bound the waits. Least is nil for waits that are random between zero and most.
		least, most []time.Duration
	}
	tests := map[string]test{
		"Retry-After-Ms": {
			always(llmtest.TooMany("1500", "7")), exactly(1500 * time.Millisecond),
			exactly(1500 * time.Millisecond),
		},
		"Retry-After, seconds": {
			always(llmtest.TooMany("", "7")), exactly(7 * time.Second), exactly(7 * time.Second),
		},
		"Retry-After, zero": {always(llmtest.TooMany("", "0")), exactly(0), exactly(0)},
		"Retry-After, the most": {
			always(llmtest.TooMany("", "300")), exactly(5 * time.Minute), exactly(5 * time.Minute),
		},
		"Retry-After, date": {func() llmtest.Fault {
			return llmtest.TooMany("", time.Now().Add(100*time.Second).UTC().Format(http.TimeFormat))
		}, exactly(90 * time.Second), exactly(101 * time.Second)},
		"Retry-After of a 503": {
			always(llmtest.Fault{Status: 503, Header: http.Header{"Retry-After": {"3"}}}),
			exactly(3 * time.Second), exactly(3 * time.Second),
		},
		"429 without": {always(llmtest.TooMany("", "")), nil, millis(capsAnswered)},
		"500":         {always(llmtest.Fault{Status: 500}), nil, millis(capsAnswered)},
		"503":         {always(llmtest.Fault{Status: 503}), nil, millis(capsAnswered)},
		"529":         {always(llmtest.Fault{Status: 529}), nil, millis(capsAnswered)},
		"no answer":   {always(llmtest.Fault{Reset: true}), nil, millis(capsSilent)},
	}
	for name, wait := range w.waits {
		tests[name] = test{always(wait.fault), exactly(wait.wait), exactly(wait.wait)}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shares := []float64{-1, 0, math.Nextafter(1, 0)}
			if w.name != wires()[0].name {
				shares = shares[:1] // no wire changes the random part
			}
			for _, share := range shares {
				var clock stopwatch
				s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
					if r.Number < len(capsAnswered) {
						return llmtest.Reply{Fault: tt.fault()}
					}
					return llmtest.Say("calm")
				}, func(c *agent.Config) {
					c.Retry = llm.RetryPolicy{MaxRetries: len(capsAnswered), Clock: &clock}
					if share >= 0 {
						c.Retry.Rand = func() float64 { return share }
					}
				})
				if res := s.submit("go"); res.Final != "calm" || res.ModelCalls != 1 {
					t.Errorf("%q after %d answers", res.Final, res.ModelCalls)
				}
				least, most := tt.least, tt.most
				if least == nil && share > 0 {
					least = make([]time.Duration, len(most))
					for i := range most {
						least[i] = most[i] - time.Microsecond
					}
				} else if least == nil {
					least = make([]time.Duration, len(most))
				}
				if tt.least == nil && share == 0 {
					most = least
				}
				checkWaits(t, s, clock.all(), least, most)
			}
		})
	}
}

// checkWaits checks what was waited for and told.
func checkWaits(t *testing.T, s *session, waits, least, most []time.Duration) {
	t.Helper()
	if len(waits) != len(most) {
		t.Fatalf("waited %d times: %v", len(waits), waits)
	}
	told := data[event.Retry](s)
	for i, d := range waits {
		if d < least[i] || d > most[i] {
			t.Errorf("wait %d is %s, want between %s and %s", i, d, least[i], most[i])
		}
		if i < len(told) && (told[i].DelayMS != d.Milliseconds() || told[i].Attempt != i+2) {
			t.Errorf("wait %d is told as %+v", i, told[i])
		}
	}
	if len(told) != len(waits) {
		t.Errorf("%d waits were told", len(told))
	}
}

// proveStorm has more failures than retries. The session outlives it.
func proveStorm(t *testing.T, w wire) {
	tests := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
	}{
		"429": {llmtest.TooMany("", "1"), llm.KindRateLimit}, "503": {llmtest.Fault{Status: 503}, w.busy},
		"529": {
			llmtest.Fault{Status: 529, Type: "overloaded_error", Message: "Overloaded"},
			llm.KindOverloaded,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock stopwatch
			s := wireSession(t, w, llmtest.Storm(1+llm.DefaultMaxRetries, tt.fault,
				llmtest.Sequence(llmtest.Say("calm"))), retryOn(&clock))
			res, err := s.Submit(t.Context(), "go")
			var e *llm.Error
			if res.Status != agent.StatusModelError || !errors.As(err, &e) || e.Kind != tt.kind ||
				e.Status != tt.fault.Status {
				t.Errorf("ended with %s, %v", res.Status, err)
			}
			if n := len(s.server.Requests()); n != 1+llm.DefaultMaxRetries ||
				len(clock.all()) != llm.DefaultMaxRetries {
				t.Errorf("%d requests and %d waits", n, len(clock.all()))
			}
			if errs := data[event.Error](s); len(errs) != 1 || errs[0].Code != string(tt.kind) {
				t.Errorf("errors %+v", errs)
			}
			if res := s.submit("once more"); res.Final != "calm" {
				t.Errorf("%q", res.Final)
			}
		})
	}
}

func proveNoRetry(t *testing.T, w wire) {
	tests := map[string]refusal{
		"400": {
			llmtest.Fault{Status: 400, Message: "no such field"},
			llm.KindInvalid,
			agent.StatusModelError, "no such field",
		},
		"400, too long": {
			llmtest.Fault{Status: 400, Code: "context_length_exceeded", Message: "This is too long."},
			llm.KindContextLength, agent.StatusContextOverflow, "This is too long.",
		},
		"401": {
			llmtest.Fault{Status: 401, Message: "wrong key"},
			llm.KindAuth,
			agent.StatusModelError, "wrong key",
		},
		"no money": {
			llmtest.Fault{Status: 429, Code: "insufficient_quota", Message: "pay"},
			llm.KindQuota, agent.StatusModelError, "pay",
		},
		"wait of 301 s": {
			llmtest.TooMany("", "301"), llm.KindRateLimit, agent.StatusModelError,
			"longer than the limit of 5m0s (--max-retry-wait)",
		},
		"wait of 300.001 s": {
			llmtest.TooMany("300001", ""), llm.KindRateLimit, agent.StatusModelError, "--max-retry-wait",
		},
		"wait of a day": {
			llmtest.TooMany("", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat)),
			llm.KindRateLimit, agent.StatusModelError, "--max-retry-wait",
		},
		"long wait of a 503": {
			llmtest.Fault{Status: 503, Header: http.Header{"Retry-After": {"3600"}}},
			w.busy,
			agent.StatusModelError, "requests a wait of 1h0m0s",
		},
	}
	maps.Copy(tests, w.refusals)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock stopwatch
			s := wireSession(t, w, llmtest.Sequence(llmtest.Use(shell("echo once >> counter")),
				llmtest.Reply{Fault: tt.fault}), retryOn(&clock))
			res, err := s.Submit(t.Context(), "go")
			var e *llm.Error
			if res.Status != tt.status || !errors.As(err, &e) || e.Kind != tt.kind ||
				e.Status != tt.fault.Status {
				t.Fatalf("ended with %s, %v", res.Status, err)
			}
			wantContains(t, "the error", err.Error(), tt.text)
			if len(s.server.Requests()) != 2 || len(clock.all()) != 0 || len(data[event.Retry](s)) != 0 {
				t.Errorf("%d requests, waits %v", len(s.server.Requests()), clock.all())
			}
			if s.read("counter") != "once\n" || len(res.ToolCalls) != 1 || len(s.History()) < 3 {
				t.Errorf("what was done before is lost: %d calls, %d turns", len(res.ToolCalls),
					len(s.History()))
			}
		})
	}
}

// proveDeadline ends a run that waits for a server which asks for patience, and one in a storm that
// the retries outlast.
func proveDeadline(t *testing.T, w wire) {
	for name, fault := range map[string]llmtest.Fault{
		"patience": llmtest.TooMany("", "200"), "storm": llmtest.TooMany("20",
			""), "silence": {Hang: llmtest.AtStart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := wireSession(t, w, func(*llmtest.Request) llmtest.Reply {
				return llmtest.Reply{Text: "x", Fault: fault}
			}, func(c *agent.Config) {
				c.Retry, c.Limits.MaxDuration = llm.RetryPolicy{MaxRetries: 1_000_000}, 500*time.Millisecond
			})
			res, err := s.Submit(t.Context(), "go")
			if res.Status != agent.StatusTimedOut || !errors.Is(err, agent.ErrTimeLimit) {
				t.Errorf("ended with %s, %v", res.Status, err)
			}
		})
	}
}

// proveNoLockstep lets 64 sessions fail at once, three times.
func proveNoLockstep(t *testing.T, w wire) {
	const sessions, failures = 64, 3
	seen := map[string]int{}
	var clock stopwatch
	s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
		name := r.Messages[0].Text()
		if seen[name]++; seen[name] <= failures {
			return llmtest.Reply{Fault: llmtest.Fault{Status: 503}}
		}
		return llmtest.Say(name)
	}, retryOn(&clock))
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			name := "session " + strconv.Itoa(i)
			res, err := s.agent.Run(t.Context(), agent.Input{Text: name})
			if err != nil || res.Final != name {
				t.Errorf("%s ended with %q, %v", name, res.Final, err)
			}
		})
	}
	wg.Wait()
	waits := clock.all()
	if len(waits) != sessions*failures {
		t.Fatalf("%d waits", len(waits))
	}
	slices.Sort(waits)
	if n := len(slices.Compact(slices.Clone(waits))); n < len(waits)*9/10 {
		t.Errorf("of %d waits only %d differ", len(waits), n)
	}
	// The first waits are spread over half a second, the second over one, the third over two.
	buckets := map[time.Duration]int{}
	for _, d := range waits {
		buckets[d/(100*time.Millisecond)]++
	}
	for b, n := range buckets {
		if n > len(waits)/4 {
			t.Errorf("%d of %d sessions come back within 100 ms, after %s", n, len(waits),
				b*100*time.Millisecond)
		}
	}
	if first, last := waits[0], waits[len(waits)-1]; first > 200*time.Millisecond ||
		last < time.Second || last > 2*time.Second {
		t.Errorf("the waits lie between %s and %s", first, last)
	}
}

// proveWaitOfProgram checks --max-retry-wait and --timeout.
func proveWaitOfProgram(t *testing.T, w wire) {
	tests := map[string]struct {
		fault    llmtest.Fault
		flags    []string
		code     int
		text     string
		requests int
	}{
		"longer": {
			llmtest.TooMany("", "60"),
			[]string{"--max-retry-wait=1s"},
			5,
			"longer than the limit of 1s (--max-retry-wait)", 1,
		},
		"no wait": {llmtest.TooMany("10", ""), []string{"--max-retry-wait=0s"}, 5, "--max-retry-wait", 1},
		"shorter": {llmtest.TooMany("10", ""), []string{"--max-retry-wait=1s"}, 0, "", 2},
		"default": {
			llmtest.TooMany("", "301"), nil, 5, "longer than the limit of 5m0s (--max-retry-wait)", 1,
		},
		"deadline": {
			llmtest.TooMany("", "200"),
			[]string{"--timeout=3s"},
			124,
			"the run timed out (--timeout)", 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, llmtest.Storm(1, tt.fault, llmtest.Sequence(llmtest.Say("calm"))))
			args := slices.Concat([]string{"run", "--yes", "go"}, modelFlags(srv, w), tt.flags)
			got := runCommand(t, t.TempDir(), []string{"SANDBOXAGENT_API_KEY=" + srv.Key()}, args...)
			// A slow machine may not get as far as the first request before the deadline.
			n, late := len(srv.Requests()), tt.code == 124
			if got.code != tt.code || n > tt.requests || n < tt.requests && !late {
				t.Errorf("exit code %d after %d requests", got.code, n)
			}
			wantContains(t, "standard error", got.stderr, tt.text)
		})
	}
}

// retryOn replaces the clock that retries wait on.
func retryOn(clock llm.Clock) func(*agent.Config) {
	return func(c *agent.Config) { c.Retry.Clock = clock }
}
