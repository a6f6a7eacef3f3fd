package agent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// within fails the test if fn deadlocks.
func within(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("it does not return")
	}
}

// TestAbortWithinRun aborts a run from each function that the run itself waits for.
func TestAbortWithinRun(t *testing.T) {
	abortOn := func(s **agent.Session, kind event.Kind) func(event.Event) error {
		return func(e event.Event) error {
			if e.Kind() == kind {
				(*s).Abort()
			}
			return nil
		}
	}
	tests := map[string]func(cfg *agent.Config, s **agent.Session){
		"sink": func(cfg *agent.Config, s **agent.Session) {
			cfg.Sinks = append(cfg.Sinks, abortOn(s, event.KindTextEnd))
		},
		"observer": func(cfg *agent.Config, s **agent.Session) {
			abort := abortOn(s, event.KindToolCallStart)
			cfg.Observers = append(cfg.Observers, func(e event.Event) { _ = abort(e) })
		},
		"tool": func(cfg *agent.Config, s **agent.Session) {
			cfg.Tools[0].Run = func(context.Context, *tool.Call) (tool.Result, error) {
				(*s).Abort()
				return tool.Result{Text: "ok"}, nil
			}
		},
		"question": func(cfg *agent.Config, s **agent.Session) {
			cfg.Tools[0].Run = func(context.Context, *tool.Call) (tool.Result, error) {
				return tool.Result{Question: "?"}, nil
			}
			cfg.Answer = func(context.Context, string) (string, error) { (*s).Abort(); return "yes", nil }
		},
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			block := newTool("block", false, func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			})
			cfg := config(&model{answers: []answer{
				{text: "x", calls: []llm.ToolCall{call("a", "block", nil)}},
			}}, block)
			var s *agent.Session
			arrange(&cfg, &s)
			s = newSession(t, cfg)
			within(t, func() {
				if res, err := s.Submit(t.Context(), "go"); res.Status != agent.StatusAborted ||
					!errors.Is(err, agent.ErrAborted) {
					t.Errorf("ended with %s, %v", res.Status, err)
				}
			})
			if s.State() != agent.SessionIdle {
				t.Errorf("the session is %s", s.State())
			}
			checkPairs(t, s.History())
		})
	}
}

func TestStreamBodyMayUseTheSession(t *testing.T) {
	a := newAgent(t, config(&model{}))
	s, err := a.NewSession(t.Context(), agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	within(t, func() {
		for e, err := range a.RunStream(t.Context(), agent.Input{
			Text: "go", SessionID: s.ID(), RunID: "r",
		}, nil) {
			if err != nil {
				if !errors.Is(err, agent.ErrAborted) {
					t.Error(err)
				}
				break
			}
			s.Subscribe(1, func(event.Event) {})()
			_ = s.History()
			if e.Kind() == event.KindTextDelta && !a.Abort("r") {
				t.Error("the run is not known by its ID")
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPanicInStreamBody(t *testing.T) {
	a := newAgent(t, config(&model{}))
	s, err := a.NewSession(t.Context(), agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		in := agent.Input{Text: "go", SessionID: s.ID()}
		for range a.RunStream(t.Context(), in, nil) { //nolint:errcheck // the body panics
			panic("body")
		}
	}()
	within(t, func() { _ = s.Close() })
}

// TestCloseIsFinal lets inputs and Close come at the same time. In either order nothing runs
// after Close, and the session stays closed.
func TestCloseIsFinal(t *testing.T) {
	for range 300 {
		var mu sync.Mutex
		running := false
		set := func(b bool) { mu.Lock(); running = b; mu.Unlock() }
		work := newTool("work", false, func(context.Context, *tool.Call) (tool.Result, error) {
			set(true)
			defer set(false)
			return tool.Result{Text: "ok"}, nil
		})
		s := newSession(t, config(&model{answers: []answer{
			calls(call("", "work", nil)),
			{err: &llm.Error{Kind: llm.KindAuth}},
		}}, work))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _, _ = s.Submit(t.Context(), "go") })
		}
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if running {
				t.Error("a tool runs after Close")
			}
		})
		wg.Wait()
		if s.State() != agent.SessionClosed {
			t.Fatalf("after Close the session is %s", s.State())
		}
		if _, err := s.Submit(t.Context(), "more"); !errors.Is(err, agent.ErrClosed) {
			t.Fatalf("an input after Close: %v", err)
		}
	}
}

func TestAgentClose(t *testing.T) {
	block := newTool("block", false, func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	})
	started := make(chan struct{}, 5)
	m := &model{}
	for range 5 {
		m.answers = append(m.answers, answer{
			calls:  []llm.ToolCall{call("", "block", nil)},
			before: func(context.Context, llm.Request) { started <- struct{}{} },
		})
	}
	a := newAgent(t, config(m, block))
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if res, _ := a.Run(context.WithoutCancel(t.Context()),
				agent.Input{Text: "go"}); res.Status != agent.StatusAborted {
				t.Errorf("ended with %s", res.Status)
			}
		})
	}
	for range 5 {
		<-started
	}
	within(t, func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	if _, err := a.NewSession(t.Context(), agent.SessionOptions{}); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("a session after Close: %v", err)
	}
}

// TestFollowUpStays has a run that is aborted: the follow-up comes after the next one.
func TestFollowUpStays(t *testing.T) {
	m := &model{answers: []answer{{}, {text: "one"}, {text: "two"}}}
	s := newSession(t, config(m))
	m.answers[0].before = func(context.Context, llm.Request) { s.Abort() }
	s.FollowUp("and then")
	if res, err := s.Submit(t.Context(), "first"); res.Status != agent.StatusAborted {
		t.Fatalf("ended with %s, %v", res.Status, err)
	}
	if res, err := s.Submit(t.Context(), "again"); err != nil || res.Final != "two" {
		t.Fatalf("ended with %q, %v", res.Final, err)
	}
}

func TestRunIDs(t *testing.T) {
	var s *agent.Session
	var a *agent.Agent
	m := &model{answers: []answer{{text: "one"}, {text: "two", before: func(context.Context,
		llm.Request,
	) {
		if _, err := a.Run(t.Context(), agent.Input{Text: "x", RunID: "mine"}); !errors.Is(err,
			agent.ErrConfig) {
			t.Errorf("an ID that is in use: %v", err)
		}
		if !a.Abort("mine") {
			t.Error("the run is not known by its ID once a follow-up works")
		}
	}}}}
	var err error
	if a, err = agent.New(config(m)); err != nil {
		t.Fatal(err)
	}
	if s, err = a.NewSession(t.Context(), agent.SessionOptions{}); err != nil {
		t.Fatal(err)
	}
	s.FollowUp("and then")
	if res, _ := s.Run(t.Context(), agent.Input{
		Text: "go", RunID: "mine",
	}); res.Status != agent.StatusAborted {
		t.Errorf("ended with %s", res.Status)
	}
	if res, err := s.Run(t.Context(), agent.Input{Text: "go on", RunID: "mine"}); err != nil ||
		res.Status != agent.StatusCompleted {
		t.Errorf("after the abort: %s, %v", res.Status, err)
	}
}

func TestNamedSession(t *testing.T) {
	a := newAgent(t, config(&model{}))
	res, err := a.Run(t.Context(), agent.Input{Text: "go", SessionID: "mine", CreateSession: true})
	if err != nil || res.SessionID != "mine" {
		t.Errorf("%q, %v", res.SessionID, err)
	}
	s, err := a.NewSession(t.Context(), agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it is of no concern here
	if _, err := s.Run(t.Context(), agent.Input{Text: "go", SessionID: "another"}); !errors.Is(err,
		agent.ErrConfig) {
		t.Errorf("an input for another session: %v", err)
	}
}
