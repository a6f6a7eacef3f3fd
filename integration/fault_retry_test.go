package integration_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// stopwatch is a clock that records waits, which take no time but count as if they did.
type stopwatch struct {
	mu    sync.Mutex
	waits []time.Duration
}

func (w *stopwatch) Now() time.Time { return time.Now().Add(w.waited()) }

// waited returns the sum of the waits.
func (w *stopwatch) waited() (sum time.Duration) {
	for _, d := range w.all() {
		sum += d
	}
	return sum
}

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

// The longest waits before each try if the server requests none.
var (
	capsAnswered = millis(500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000)
	capsSilent   = millis(500, 1000, 2000, 2000, 2000, 2000, 2000, 2000)
)

func millis(list ...time.Duration) []time.Duration {
	for i := range list {
		list[i] *= time.Millisecond
	}
	return list
}

// proveWaits has servers that request a wait, or none, before each of eight retries.
func proveWaits(t *testing.T, w wire) {
	exactly := func(d time.Duration) []time.Duration {
		return slices.Repeat([]time.Duration{d}, len(capsAnswered))
	}
	date := time.Now().Add(290 * time.Second).UTC().Format(http.TimeFormat)
	after3s := llmtest.Fault{Status: 503, Header: http.Header{"Retry-After": {"3"}}}
	type test struct {
		fault llmtest.Fault
		most  []time.Duration
		// less is the largest difference of a wait from most.
		less time.Duration
	}
	tests := map[string]test{
		"Retry-After-Ms":        {llmtest.TooMany("1500", "7"), exactly(1500 * time.Millisecond), 0},
		"Retry-After, seconds":  {llmtest.TooMany("", "7"), exactly(7 * time.Second), 0},
		"Retry-After, zero":     {llmtest.TooMany("", "0"), exactly(0), 0},
		"Retry-After, the most": {llmtest.TooMany("", "300"), exactly(5 * time.Minute), 0},
		"Retry-After, date": {
			llmtest.TooMany("", date), exactly(290 * time.Second), 200 * time.Second,
		},
		"Retry-After of a 503": {after3s, exactly(3 * time.Second), 0},
		"429 without":          {llmtest.TooMany("", ""), capsAnswered, time.Microsecond},
		"500":                  {llmtest.Fault{Status: 500}, capsAnswered, time.Microsecond},
		"503":                  {llmtest.Fault{Status: 503}, capsAnswered, time.Microsecond},
		"529":                  {llmtest.Fault{Status: 529}, capsAnswered, time.Microsecond},
		"no answer":            {llmtest.Fault{Reset: true}, capsSilent, time.Microsecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock stopwatch
			s := wireSession(t, w, llmtest.Storm(len(tt.most), tt.fault,
				llmtest.Sequence(llmtest.Text("calm"))), func(c *agent.Config) {
				c.Retry = llm.RetryPolicy{
					MaxRetries: len(tt.most), Clock: &clock,
					Rand: func() float64 { return math.Nextafter(1, 0) }, // the longest wait
				}
			})
			if res := s.submit("go"); res.Final != "calm" || res.ModelCalls != 1 {
				t.Errorf("%q after %d answers", res.Final, res.ModelCalls)
			}
			waits, events := clock.all(), data[event.Retry](s)
			if len(waits) != len(tt.most) || len(events) != len(waits) {
				t.Fatalf("waited %v, events %+v", waits, events)
			}
			for i, d := range waits {
				if d < tt.most[i]-tt.less || d > tt.most[i] {
					t.Errorf("wait %d is %s, want at most %s less than %s", i, d, tt.less, tt.most[i])
				}
				if events[i].DelayMS != d.Milliseconds() || events[i].Attempt != i+2 {
					t.Errorf("the event of wait %d is %+v", i, events[i])
				}
			}
		})
	}
}

// proveStorm has more failures than retries. Nothing of broken answers happens, and the session
// goes on afterwards.
func proveStorm(t *testing.T, w wire) {
	tests := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
	}{
		"429": {llmtest.TooMany("", "1"), llm.KindRateLimit},
		"503": {llmtest.Fault{Status: 503}, w.busy},
		"529": {
			llmtest.Fault{Status: 529, Type: "overloaded_error"}, llm.KindOverloaded,
		},
		"cut in arguments":          {streamFaults["cut in arguments"].fault, llm.KindStream},
		"cut after whole arguments": {streamFaults["cut after whole arguments"].fault, llm.KindStream},
		"no gzip":                   {streamFaults["no gzip"].fault, llm.KindStream},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock stopwatch
			s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
				if r.Number > llm.DefaultMaxRetries {
					return llmtest.Text("calm")
				}
				reply := llmtest.Use(shell("echo never >> counter"), shell("echo never >> counter"))
				reply.Fault, reply.Usage = tt.fault, llm.Usage{Input: 100, Output: 10}
				return reply
			}, retryOn(&clock))
			res, err := s.Submit(t.Context(), "go")
			var e *llm.Error
			if res.Status != agent.StatusModelError || !errors.As(err, &e) || e.Kind != tt.kind ||
				e.Status != cmp.Or(tt.fault.Status, 200) || res.Usage != (llm.Usage{}) {
				t.Errorf("ended with %s, %v, usage %+v", res.Status, err, res.Usage)
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
			if starts := data[event.ToolCallStart](s); len(starts) > 0 {
				t.Errorf("calls of broken answers ran: %+v", starts)
			}
		})
	}
}

// proveOutage has a server that fails for 90 seconds, in turn in all the ways of an outage.
func proveOutage(t *testing.T, w wire) {
	const outage = 90 * time.Second
	ways := []llmtest.Fault{
		{Status: 500},
		{Status: 503},
		{Status: 408},
		{Reset: true},
		llmtest.TooMany("", "2"),
		streamFaults["cut in a token"].fault,
		{Status: 529, Type: "overloaded_error"},
	}
	for name, tt := range map[string]struct {
		lasts time.Duration
		final string
	}{"shorter": {2 * time.Minute, "calm"}, "longer": {80 * time.Second, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock stopwatch
			s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
				if clock.waited() >= outage {
					return llmtest.Text("calm")
				}
				reply := llmtest.Use(shell("echo never >> counter"))
				reply.Text, reply.Fault = "half of an answer", ways[r.Number%len(ways)]
				return reply
			}, func(c *agent.Config) { c.Retry = llm.RetryPolicy{Clock: &clock, For: tt.lasts} })
			res, err := s.Submit(t.Context(), "go")
			if res.Final != tt.final || (err == nil) != (tt.final != "") || res.ModelCalls != 1 {
				t.Errorf("%q after %d answers, %v", res.Final, res.ModelCalls, err)
			}
			if res.Err != nil && res.Status != agent.StatusModelError {
				t.Errorf("ended with %s", res.Status)
			}
			requests, events := len(s.server.Requests()), data[event.Retry](s)
			if len(events) != requests-1 || requests < 10 || requests > 100 {
				t.Errorf("%d requests, %d events", requests, len(events))
			}
			if waited := clock.waited(); waited > tt.lasts {
				t.Errorf("waited %s", waited)
			}
			if starts := data[event.ToolCallStart](s); len(starts) > 0 {
				t.Errorf("calls of broken answers ran: %+v", starts)
			}
		})
	}
}

// proveNoRetry has errors after which the request is not sent again. How each service words its
// errors is proven beside its client.
func proveNoRetry(t *testing.T, w wire) {
	tests := map[string]struct {
		fault  llmtest.Fault
		kind   llm.ErrorKind
		status agent.Status
		// text is part of the error.
		text string
	}{
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
			"longer than the limit of 5m0s",
		},
		"wait of 300.001 s": {
			llmtest.TooMany("300001", ""), llm.KindRateLimit, agent.StatusModelError, "longer than",
		},
		"wait of a day": {
			llmtest.TooMany("", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat)),
			llm.KindRateLimit, agent.StatusModelError, "longer than",
		},
		"long wait of a 503": {
			llmtest.Fault{Status: 503, Header: http.Header{"Retry-After": {"3600"}}},
			w.busy,
			agent.StatusModelError, "requests a wait of 1h0m0s",
		},
	}
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
				t.Errorf("earlier results are lost: %d calls, %d turns", len(res.ToolCalls),
					len(s.History()))
			}
		})
	}
}

// proveDeadline ends a run that waits for a retry, one of endless retries, and one of a silent
// server.
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

// proveWaitOfProgram checks --max-retries, --retry-for, --max-retry-wait and --timeout.
func proveWaitOfProgram(t *testing.T, w wire) {
	tests := map[string]struct {
		fault llmtest.Fault
		flags []string
		code  int
		text  string
		// fails is the number of requests that fail, 1 by default, and requests that of all.
		fails, requests int
	}{
		"longer": {
			llmtest.TooMany("", "60"),
			[]string{"--max-retry-wait=1s"},
			5,
			"longer than the limit of 1s (--max-retry-wait)", 0, 1,
		},
		"no wait": {
			llmtest.TooMany("10", ""),
			[]string{"--max-retry-wait=0s"},
			5,
			"--max-retry-wait",
			0,
			1,
		},
		"shorter": {
			llmtest.TooMany("10", ""),
			[]string{"--max-retry-wait=1s"},
			0,
			"",
			0,
			2,
		},
		"more failures than retries": {llmtest.TooMany("10", ""), nil, 0, "", 5, 6},
		"for a time": {
			llmtest.TooMany("10", ""), []string{"--max-retries=0", "--retry-for=1h"}, 0, "", 5, 6,
		},
		"by count": {
			llmtest.TooMany("10", ""),
			[]string{"--max-retries=2", "--retry-for=0s"},
			5,
			"",
			5,
			3,
		},
		"none": {
			llmtest.TooMany("10", ""),
			[]string{"--max-retries=0", "--retry-for=0s"},
			5,
			"",
			1,
			1,
		},
		"default": {
			llmtest.TooMany("", "301"), nil, 5, "longer than the limit of 5m0s (--max-retry-wait)", 0, 1,
		},
		"deadline": {
			llmtest.TooMany("", "200"),
			[]string{"--timeout=3s"},
			124,
			"the run timed out (--timeout)", 0, 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, llmtest.Storm(max(1, tt.fails), tt.fault,
				llmtest.Sequence(llmtest.Text("calm"))))
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
