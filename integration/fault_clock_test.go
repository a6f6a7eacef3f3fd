package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
)

// TestFault23Clock runs sessions while the time of day jumps.
func TestFault23Clock(t *testing.T) {
	t.Run("F23_order_and_durations", func(t *testing.T) { onFirstWire(t, proveOrderByNumber) })
	t.Run("F23_time_limit_of_the_run", func(t *testing.T) { onFirstWire(t, proveLimitByTimer) })
}

// jumpyClock is right, an hour fast or an hour slow, and another of these at each call. Its times
// have no monotonic part.
type jumpyClock struct{ looks atomic.Int64 }

func (j *jumpyClock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(j.looks.Add(1)%3-1) * time.Hour)
}

func (*jumpyClock) Sleep(ctx context.Context, d time.Duration) error {
	return llm.SystemClock().Sleep(ctx, d)
}

// jumpySession is a session all of whose clocks jump.
func jumpySession(t *testing.T, w wire, brain llmtest.Brain, change func(*agent.Config)) *session {
	t.Helper()
	dir := t.TempDir()
	return wireSession(t, w, brain, func(c *agent.Config) {
		clock := &jumpyClock{}
		c.Clock, c.Retry.Clock = clock, nil
		c.Store = func(id string) (journal.Store, error) {
			return journal.Create(filepath.Join(dir, id), journal.Options{Now: clock.Now})
		}
		if change != nil {
			change(c)
		}
	})
}

const (
	shortTimeout = 300 * time.Millisecond
	tooLong      = `{"command":"sleep 1000","timeout_ms":300}`
)

// proveOrderByNumber lets a command run into its timeout and a request be sent again. Numbers give
// the order, and times that were measured are real ones.
func proveOrderByNumber(t *testing.T, w wire) {
	s := jumpySession(t, w, func(r *llmtest.Request) llmtest.Reply {
		switch r.Number {
		case 0:
			return llmtest.Use(llmtest.Call{Name: "shell", Arguments: tooLong}, use("list_dir",
				map[string]any{"path": "."}), shell("echo here"))
		case 1:
			return llmtest.Reply{Fault: llmtest.TooMany("20", "")}
		}
		return llmtest.Text("done")
	}, nil)
	began := time.Now()
	res := s.submit("go")
	took := time.Since(began)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	within := func(what string, d, least time.Duration) {
		t.Helper()
		if d < least || d > took {
			t.Errorf("%s took %s, want at least %s and at most the %s of the run", what, d, least, took)
		}
	}
	wantContains(t, "the first result", s.shown(1)[0], "more than 300 ms")
	wantContains(t, "the third result", s.shown(1)[2], "here")
	if len(data[event.Retry](s)) != 1 || len(res.ToolCalls) != 3 {
		t.Fatalf("%d retries and %d calls", len(data[event.Retry](s)), len(res.ToolCalls))
	}
	within("the run", res.Duration, shortTimeout)
	for i, c := range res.ToolCalls {
		within(c.Name, c.Duration, map[int]time.Duration{0: shortTimeout}[i])
	}
	for i, e := range data[event.ToolCallEnd](s) {
		within("by its event, "+e.Name, time.Duration(e.DurationMS)*time.Millisecond,
			map[int]time.Duration{0: shortTimeout}[i])
	}

	var times []time.Time
	for i, e := range s.events {
		times = append(times, e.Time)
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has the number %d", i+1, e.Seq)
		}
	}
	wantJumps(t, "the events", times)
	times = nil
	for i, e := range readJournal(t, s.Dir()) {
		times = append(times, e.Time)
		if e.Seq != int64(i+1) {
			t.Errorf("entry %d has the number %d", i+1, e.Seq)
		}
		if e.Type == "tool_result" {
			var d struct {
				DurationMS int64 `json:"duration_ms"`
			}
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
			within("by the journal, a call", time.Duration(d.DurationMS)*time.Millisecond, 0)
		}
	}
	wantJumps(t, "the journal", times)
}

// wantJumps checks that times went back and forth, or a test would prove nothing.
func wantJumps(t *testing.T, what string, times []time.Time) {
	t.Helper()
	back, forth := 0, 0
	for i := 1; i < len(times); i++ {
		switch d := times[i].Sub(times[i-1]); {
		case d < -30*time.Minute:
			back++
		case d > 30*time.Minute:
			forth++
		}
	}
	if back == 0 || forth == 0 {
		t.Errorf("the times of %s went back %d times and forth %d times", what, back, forth)
	}
}

// proveLimitByTimer runs into the time limit of a run while a command may take longer.
func proveLimitByTimer(t *testing.T, w wire) {
	const limit = time.Second
	s := jumpySession(t, w, endless(use("shell", map[string]any{
		"command": "sleep 1000", "timeout_ms": 600_000,
	})), func(c *agent.Config) {
		c.Limits.MaxDuration = limit
	})
	began := time.Now()
	res, err := s.Submit(t.Context(), "go")
	took := time.Since(began)
	if res.Status != agent.StatusTimedOut || !errors.Is(err, agent.ErrTimeLimit) {
		t.Errorf("ended with %s, %v", res.Status, err)
	}
	if took < limit || res.Duration < limit || res.Duration > took {
		t.Errorf("the run ended after %s, and reports %s; its limit is %s", took, res.Duration, limit)
	}
	if n := len(res.ToolCalls); n > 1 { // a slow machine may not get as far as the first
		t.Errorf("%d calls", n)
	}
}
