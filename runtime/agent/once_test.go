package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// flakyStore fails or panics at the first entry of one type only.
type flakyStore struct {
	recorder
	at    string
	panic bool
	once  sync.Once
}

func (o *flakyStore) Append(typ string, data any) error {
	var err error
	if typ == o.at {
		o.once.Do(func() { err = errDisk })
	}
	if err != nil && o.panic {
		panic("store")
	}
	if err != nil {
		return err
	}
	return o.recorder.Append(typ, data)
}

// TestOneStoreFailureEndsTheRun lets the store fail or panic once, in calls one after the
// other and concurrently.
func TestOneStoreFailureEndsTheRun(t *testing.T) {
	for _, at := range []string{
		"turn", "tool_started", "tool_result", "prompt", "model_request", "run_started", "run_ended",
	} {
		for _, panics := range []bool{false, true} {
			for _, name := range []string{"change", "look"} {
				t.Run(fmt.Sprint(at, panics, name), func(t *testing.T) {
					var n callLog
					cfg := config(&model{answers: []answer{calls(call("a", name, nil), call("b", name, nil))}},
						n.tool("change", false), n.tool("look", true))
					cfg.Log = discard()
					cfg.Store = func(string) (session.Store, error) {
						return &flakyStore{at: at, panic: panics}, nil
					}
					s := newSession(t, cfg)
					res, err := s.Submit(t.Context(), "go")
					if at == "tool_started" && name == "look" {
						if err != nil { // read-only calls have no such entry
							t.Error(err)
						}
						return
					}
					if res.Status != agent.StatusInternalError || err == nil || s.State() != agent.SessionClosed {
						t.Errorf("ended with %s, %v, session %s", res.Status, err, s.State())
					}
					if at == "tool_started" && len(n.calls()) > 0 {
						t.Errorf("the calls %v ran", n.calls())
					}
					checkPairs(t, answered(s.History()))
				})
			}
		}
	}
}

// TestRefusedCallsDoNotRun has answers whose later calls must not run, for each reason.
func TestRefusedCallsDoNotRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result := func(r tool.Result, err error) func(context.Context, *tool.Call) (tool.Result, error) {
		return func(context.Context, *tool.Call) (tool.Result, error) { return r, err }
	}
	var n callLog
	tools := []tool.Tool{
		n.tool("change", false),
		newTool("ask", false, result(tool.Result{Question: "?"}, nil)),
		newTool("exit", false, result(tool.Result{Exit: &tool.Exit{}}, nil)),
		newTool("gone", false, result(tool.Result{}, env.ErrGone)),
		newTool("stop", false, func(context.Context, *tool.Call) (tool.Result, error) {
			cancel()
			return tool.Result{}, nil
		}),
	}
	tests := []struct {
		first  llm.ToolCall
		ctx    context.Context
		status agent.Status
	}{
		{call("a", "ask", nil), t.Context(), agent.StatusAwaitingHuman},
		{call("a", "exit", nil), t.Context(), agent.StatusCompleted},
		{call("a", "gone", nil), t.Context(), agent.StatusEnvironmentError},
		{call("a", "stop", nil), ctx, agent.StatusAborted},
	}
	for _, tt := range tests {
		t.Run(tt.first.Name, func(t *testing.T) {
			s := newSession(t, config(&model{answers: []answer{calls(tt.first, call("b", "change", nil))}},
				tools...))
			res, _ := s.Submit(tt.ctx, "go")
			if res.Status != tt.status || len(n.calls()) > 0 {
				t.Errorf("ended with %s, calls %v ran", res.Status, n.calls())
			}
			checkPairs(t, s.History())
		})
	}
}

func TestCallLimitHoldsForParallelCalls(t *testing.T) {
	var n callLog
	a := answer{}
	for i := range 8 {
		a.calls = append(a.calls, call(fmt.Sprint(i), "look", nil))
	}
	cfg := config(&model{answers: []answer{a}}, n.tool("look", true))
	cfg.Limits.MaxToolCalls = 2
	s := newSession(t, cfg)
	res, err := s.Submit(t.Context(), "go")
	ran := n.calls()
	slices.Sort(ran)
	if err != nil || res.Status != agent.StatusLimit || !slices.Equal(ran, []string{"0", "1"}) {
		t.Errorf("ended with %s, %v; calls %v ran", res.Status, err, ran)
	}
	for i, c := range res.ToolCalls {
		if c.CallID != fmt.Sprint(i) {
			t.Errorf("call %d of the result is %s", i, c.CallID)
		}
	}
}

// TestMaxParallel has bounds of a session and of a run, the lower of which holds.
func TestMaxParallel(t *testing.T) {
	for _, tt := range []struct {
		parallel           bool
		session, run, want int
	}{
		{true, 3, 0, 3}, {true, 3, 2, 2}, {true, 0, 5, 5}, {true, 2, 4, 2}, {false, 3, 2, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			inside := 0
			release := make(chan struct{})
			look := newTool("look", true, func(context.Context, *tool.Call) (tool.Result, error) {
				mu.Lock()
				inside++
				mu.Unlock()
				<-release
				return tool.Result{Text: "ok"}, nil
			})
			a := answer{}
			for range 10 {
				a.calls = append(a.calls, call("", "look", nil))
			}
			cfg := config(&model{answers: []answer{a}}, look)
			cfg.Policy.MaxParallel = tt.session
			cfg.Profile.SupportsParallelToolCalls = tt.parallel
			s := newSession(t, cfg)
			done := make(chan error)
			go func() {
				_, err := s.Run(t.Context(), agent.Input{
					Text: "go", Policy: &agent.ToolPolicy{MaxParallel: tt.run},
				})
				done <- err
			}()
			synctest.Wait()
			mu.Lock()
			if inside != tt.want {
				t.Errorf("%+v: %d calls ran at once", tt, inside)
			}
			mu.Unlock()
			close(release)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestJournalHoldsThePrompt changes the parts of a request outside the history, and finds each
// change in the journal.
func TestJournalHoldsThePrompt(t *testing.T) {
	rec := &recorder{}
	var n callLog
	cfg := config(&model{}, n.tool("look", true))
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	s := newSession(t, cfg)
	steps := []func(){
		func() {},
		func() {},
		func() { s.Update(func(x *agent.Settings) { x.Instructions = "be brief" }) },
		func() { s.Update(func(x *agent.Settings) { x.ReasoningEffort = "high" }) },
		func() { s.Tools().Unregister("look") },
	}
	for _, step := range steps {
		step()
		submit(t, s, "go")
	}
	if got := strings.Count(strings.Join(rec.types(), " "), "prompt"); got != 4 {
		t.Errorf("%d entries of a prompt, want one for each of 4 states: %v", got, rec.types())
	}
}

func TestSessionsHaveSeparateSettings(t *testing.T) {
	cfg := config(&model{})
	cfg.Settings.ToolLimits = map[string]tool.Limit{}
	a := newAgent(t, cfg)
	defer a.Close() //nolint:errcheck // it is of no concern here
	var sessions []*agent.Session
	for range 2 {
		s, err := a.NewSession(t.Context(), agent.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	sessions[0].Update(func(x *agent.Settings) { x.ToolLimits["shell"] = tool.Limit{Chars: 7} })
	sessions[1].Update(func(x *agent.Settings) {
		if len(x.ToolLimits) > 0 {
			t.Error("a change in one session is seen in another")
		}
	})
}

// TestPanicOfStoreAtTheEnd lets the store of a session and of a sub-agent's panic at their last
// entry.
func TestPanicOfStoreAtTheEnd(t *testing.T) {
	for _, whose := range []string{"own", "sub-agent's"} {
		t.Run(whose, func(t *testing.T) {
			b := newBlocker()
			cfg := treeConfig(&cast{scripts: map[string][]answer{
				"":        {calls(spawn("a", nil)), {text: "end", before: b.runs(1)}},
				"agent_1": {calls(b.call("x"))},
			}}, b.tool())
			cfg.Log = discard()
			cfg.Store = stores(&recorder{}, &flakyStore{at: "session_ended", panic: true})
			if whose == "own" {
				cfg.Store = stores(&flakyStore{at: "session_ended", panic: true}, &recorder{})
			}
			s := newSession(t, cfg)
			within(t, func() { _, _ = s.Submit(t.Context(), "go") })
			var err error
			within(t, func() { err = s.Close() })
			if err == nil || !strings.Contains(err.Error(), "panic: store") {
				t.Errorf("Close returns %v", err)
			}
		})
	}
}
