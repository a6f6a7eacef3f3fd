package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

func TestInputsInSequence(t *testing.T) {
	m := &model{answers: []answer{{text: "one"}, {text: "two"}}}
	s := newSession(t, config(m))
	for _, want := range []string{"one", "two"} {
		res, err := s.Submit(t.Context(), "say "+want)
		if err != nil || res.Final != want {
			t.Fatalf("%q, %v", res.Final, err)
		}
	}
	var texts []string
	for _, msg := range m.request(t, 1).Messages {
		texts = append(texts, msg.Text())
	}
	if want := []string{"say one", "one", "say two"}; !slices.Equal(texts, want) {
		t.Errorf("the second request holds %q", texts)
	}
}

func TestLimits(t *testing.T) {
	endless := func() *model {
		m := &model{}
		for i := range 30 {
			m.answers = append(m.answers, answer{
				calls: []llm.ToolCall{call("", "look", object{"i": i})}, usage: llm.Usage{
					Input: 900, Output: 100,
				},
			})
		}
		return m
	}
	tests := []struct {
		name   string
		limits agent.Limits
		limit  string
		rounds int
	}{
		{"rounds", agent.Limits{MaxToolRounds: 3}, "tool_rounds", 3},
		{"turns", agent.Limits{MaxTurns: 2}, "turns", 2},
		{"calls", agent.Limits{MaxToolCalls: 4}, "tool_calls", 4},
		{"tokens", agent.Limits{MaxTokens: 4500}, "tokens", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var n callLog
			cfg := config(endless(), n.tool("look", true))
			cfg.Limits = tt.limits
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go on")
			if err != nil || res.Status != agent.StatusLimit || res.Limit != tt.limit {
				t.Fatalf("ended with %v %q, %v", res.Status, res.Limit, err)
			}
			if len(n.calls()) != tt.rounds || ev.count(event.KindTurnLimit) != 1 {
				t.Errorf("%d calls ran, %d events of a limit", len(n.calls()), ev.count(event.KindTurnLimit))
			}
			if s.State() != agent.SessionIdle {
				t.Errorf("the session is %s after a limit", s.State())
			}
			checkPairs(t, s.History())
		})
	}
}

func TestMaxTurnsCountsAllInputs(t *testing.T) {
	cfg := config(&model{})
	cfg.Limits.MaxTurns = 2
	s := newSession(t, cfg)
	for _, want := range []agent.Status{
		agent.StatusCompleted, agent.StatusCompleted, agent.StatusLimit,
	} {
		if res, err := s.Submit(t.Context(), "again"); err != nil || res.Status != want {
			t.Fatalf("ended with %v, %v; want %v", res.Status, err, want)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	m := &model{answers: []answer{{before: func(ctx context.Context, _ llm.Request) { <-ctx.Done() }}}}
	cfg := config(m)
	cfg.Limits.MaxDuration = 20 * time.Millisecond
	s := newSession(t, cfg)
	res, err := s.Submit(t.Context(), "take your time")
	if res.Status != agent.StatusTimedOut || !errors.Is(err, agent.ErrTimeLimit) {
		t.Fatalf("ended with %v, %v", res.Status, err)
	}
	if s.State() != agent.SessionIdle {
		t.Errorf("the session is %s", s.State())
	}
}

func TestAbortKeepsEarlierHistory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &model{answers: []answer{{text: "one"}, {text: "half an ans", before: func(context.Context,
		llm.Request,
	) {
		cancel()
	}}}}
	s := newSession(t, config(m))
	submit(t, s, "first")
	before := s.History()
	res, err := s.Submit(ctx, "second")
	if res.Status != agent.StatusAborted || !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v, %v", res.Status, err)
	}
	after := s.History()
	if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
		t.Errorf("the abort changed the history:\n%s", diff)
	}
	for _, turn := range after {
		if strings.Contains(turn.Text(), "half") {
			t.Error("a piece of an unfinished answer is in the history")
		}
	}
}

func TestSteering(t *testing.T) {
	m := &model{}
	var s *agent.Session
	steerer := newTool("steerer", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Text: "ok"}, s.Steer("turn left")
	})
	m.answers = []answer{
		calls(call("a", "steerer", nil)),
		{text: "turned", before: func(context.Context, llm.Request) {
			if err := s.Steer("late word"); err != nil {
				t.Error(err)
			}
		}},
	}
	cfg := config(m, steerer)
	ev := watch(&cfg)
	s = newSession(t, cfg)
	if err := s.Steer("sent while idle"); !errors.Is(err, agent.ErrIdle) {
		t.Errorf("before the run: %v", err)
	}
	submit(t, s, "drive")
	var got []string
	for _, turn := range s.History() {
		got = append(got, string(turn.Kind)+" "+turn.Text())
	}
	want := []string{
		"user drive", "assistant ", "tool_results ", "steering turn left",
		"assistant turned", "steering late word", "assistant done",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	last := m.request(t, 1).Messages
	if msg := last[len(last)-1]; msg.Role != llm.RoleUser || msg.Text() != "turn left" {
		t.Errorf("the steering message reached the model as %v", msg)
	}
	if ev.count(event.KindSteeringInjected) != 2 {
		t.Errorf("%d steering events", ev.count(event.KindSteeringInjected))
	}
}

// TestLateSteering has messages after the last request of a run, which the next run must not get.
func TestLateSteering(t *testing.T) {
	m := &model{answers: []answer{{text: "one"}, {text: "two"}}}
	var s *agent.Session
	cfg := config(m)
	once := false
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		if e.Kind() == event.KindProcessingEnd && !once {
			once = true
			return s.Steer("too late")
		}
		return nil
	})
	s = newSession(t, cfg)
	if res := submit(t, s, "first"); !slices.Equal(res.Undelivered, []string{"too late"}) {
		t.Errorf("undelivered: %q", res.Undelivered)
	}
	if res := submit(t, s, "second"); len(res.Undelivered) > 0 || len(m.requests) != 2 {
		t.Errorf("undelivered: %q, %d requests", res.Undelivered, len(m.requests))
	}
	for _, turn := range s.History() {
		if turn.Kind == session.TurnSteering {
			t.Errorf("the model got %q", turn.Text())
		}
	}
	if err := errors.Join(s.Close(), s.Steer("closed")); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSettingsChangeInMidRun(t *testing.T) {
	m := &model{}
	var s *agent.Session
	change := newTool("change", false, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		s.Update(func(x *agent.Settings) {
			x.ReasoningEffort, x.Model, x.Instructions, x.CommandTimeout = "high", "other", "be brief",
				time.Minute
		})
		return tool.Result{Text: fmt.Sprint(c.DefaultTimeout)}, nil
	})
	m.answers = []answer{calls(call("a", "change", nil)), calls(call("b", "change", nil))}
	cfg := config(m, change)
	cfg.Settings = agent.Settings{ReasoningEffort: "low", CommandTimeout: time.Second}
	s = newSession(t, cfg)
	res := submit(t, s, "go")
	first, second := m.request(t, 0), m.request(t, 1)
	if first.ReasoningEffort != "low" || first.Model != "m" ||
		strings.Contains(first.System, "be brief") {
		t.Errorf("first request: %q %q", first.ReasoningEffort, first.Model)
	}
	if second.ReasoningEffort != "high" || second.Model != "other" ||
		!strings.HasSuffix(strings.TrimSpace(second.System), "be brief") {
		t.Errorf("second request: %q %q", second.ReasoningEffort, second.Model)
	}
	if res.ToolCalls[0].Result != "1s" || res.ToolCalls[1].Result != "1m0s" {
		t.Errorf("timeouts %q, %q", res.ToolCalls[0].Result, res.ToolCalls[1].Result)
	}
}

func TestEqualEntriesMakeEqualRequests(t *testing.T) {
	requests := func() []llm.Request {
		var n callLog
		m := &model{answers: []answer{calls(call("", "look", object{"b": 1, "a": 2}),
			call("", "look", nil)), {text: "x"}, {text: "y"}}}
		s := newSession(t, config(m, n.tool("look", true)))
		for _, text := range []string{"one", "two"} {
			submit(t, s, text)
		}
		return m.requests
	}
	if diff := cmp.Diff(requests(), requests()); diff != "" {
		t.Errorf("the same session sends different requests:\n%s", diff)
	}
}

func TestInvalidUse(t *testing.T) {
	m := &model{}
	s := newSession(t, config(m))
	for _, text := range []string{"", " \n\t"} {
		if _, err := s.Submit(t.Context(), text); !errors.Is(err, agent.ErrConfig) {
			t.Errorf("an empty input: %v", err)
		}
	}
	bad := map[string]func(*agent.Config){
		"client":         func(c *agent.Config) { c.Client = nil },
		"profile":        func(c *agent.Config) { c.Profile.ID = "" },
		"model":          func(c *agent.Config) { c.Profile.Model = "" },
		"limit":          func(c *agent.Config) { c.Limits.MaxTurns = -1 },
		"Verify.Command": func(c *agent.Config) { c.Verify.Command = "true" },
	}
	for name, spoil := range bad {
		cfg := config(m)
		spoil(&cfg)
		a, err := agent.New(cfg)
		if err == nil {
			_, err = a.NewSession(t.Context(), agent.SessionOptions{})
		}
		if !errors.Is(err, agent.ErrConfig) ||
			!strings.Contains(err.Error(), name) && name != "limit" {
			t.Errorf("no %s: %v", name, err)
		}
	}
	var n callLog
	cfg := config(m, n.tool("look", true))
	cfg.Store = session.OnDisk(t.TempDir())
	a := newAgent(t, cfg)
	if _, err := a.Run(t.Context(), agent.Input{
		Text: "x", SessionID: "../x", CreateSession: true,
	}); !errors.Is(err, agent.ErrConfig) || !errors.Is(err, session.ErrInvalidID) {
		t.Errorf("a session ID that is no file name: %v", err)
	}
	if _, err := a.Run(t.Context(), agent.Input{Text: "x", SessionID: "gone"}); !errors.Is(err,
		agent.ErrNoSession) || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("an unknown session: %v", err)
	}
	if _, err := a.Run(t.Context(), agent.Input{
		Text: "x", AllowedTools: []string{"look", "gone"},
	}); !errors.Is(err, agent.ErrConfig) || !strings.Contains(err.Error(), `"gone"`) ||
		!strings.Contains(err.Error(), "has look") {
		t.Errorf("an unknown tool: %v", err)
	}
}

func TestBusy(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	m := &model{answers: []answer{{text: "x", before: func(context.Context, llm.Request) {
		close(in)
		<-out
	}}}}
	s := newSession(t, config(m))
	done := make(chan error)
	go func() {
		_, err := s.Submit(context.WithoutCancel(t.Context()), "first")
		done <- err
	}()
	<-in
	if _, err := s.Submit(t.Context(), "second"); !errors.Is(err, agent.ErrBusy) {
		t.Errorf("a second input meanwhile: %v", err)
	}
	close(out)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
