package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// checkPairs checks that every call of a history has exactly one result, right after the answer
// that made it.
func checkPairs(t *testing.T, history []session.Turn) {
	t.Helper()
	var open []string
	seen := map[string]bool{}
	for i, turn := range history {
		switch turn.Kind {
		case session.TurnAssistant:
			for _, c := range (llm.Message{Parts: turn.Parts}).ToolCalls() {
				if c.ID == "" || seen[c.ID] {
					t.Errorf("turn %d: the call id %q is empty or was used before", i, c.ID)
				}
				seen[c.ID] = true
				open = append(open, c.ID)
			}
		case session.TurnToolResults:
			var got []string
			for _, r := range turn.Results {
				got = append(got, r.CallID)
			}
			if !slices.Equal(got, open) {
				t.Errorf("turn %d: results for %v, calls were %v", i, got, open)
			}
			open = nil
		default:
			if len(open) > 0 {
				t.Errorf("turn %d is %s while the calls %v have no result", i, turn.Kind, open)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("the calls %v have no result", open)
	}
}

// answered returns a history without an answer at its end whose calls have no results, since the
// store has failed.
func answered(history []session.Turn) []session.Turn {
	if n := len(history) - 1; n >= 0 && history[n].Kind == session.TurnAssistant &&
		len((llm.Message{Parts: history[n].Parts}).ToolCalls()) > 0 {
		return history[:n]
	}
	return history
}

// TestEveryCallGetsOneResult plays random answers: unknown tools, broken arguments, reused and
// missing ids, failing and panicking tools, questions, exits, limits and aborts.
func TestEveryCallGetsOneResult(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cfg := config(randomModel(rnd), randomTools(rnd, cancel)...)
			cfg.Log = discard()
			if rnd.IntN(3) == 0 {
				cfg.Limits.MaxToolCalls = 1 + rnd.IntN(6)
			}
			rec := &recorder{}
			cfg.Store = func(string) (session.Store, error) { return rec, nil }
			cfg.Profile.SupportsParallelToolCalls = rnd.IntN(2) == 0
			s := newSession(t, cfg)
			for range 3 {
				if _, err := s.Submit(ctx, "go"); errors.Is(err, agent.ErrClosed) {
					break
				}
			}
			checkPairs(t, s.History())
			checkJournal(t, rec)
		})
	}
}

func randomModel(rnd *rand.Rand) *model {
	m := &model{}
	names := []string{"look", "change", "fail", "crash", "nobody", "", "exit", "ask_user", "stop"}
	args := []string{`{}`, ``, `{"a":1}`, `{"a":`, `[]`, `null`, `"x"`, "\x00", `{"a":1}{"b":2}`}
	for range 12 {
		a := answer{text: []string{"", "text"}[rnd.IntN(2)]}
		for range rnd.IntN(7) {
			name := names[rnd.IntN(len(names))]
			if (name == "stop" || name == "exit" || name == "ask_user") && rnd.IntN(4) > 0 {
				name = "look"
			}
			a.calls = append(a.calls, llm.ToolCall{
				ID: []string{"", "x", "y", "call_0", fmt.Sprint(rnd.IntN(50))}[rnd.IntN(5)], Name: name,
				Arguments: args[rnd.IntN(len(args))],
			})
		}
		m.answers = append(m.answers, a)
	}
	return m
}

func randomTools(rnd *rand.Rand, cancel func()) []tool.Tool {
	var n callLog
	return []tool.Tool{
		n.tool("look", true), n.tool("change", false),
		newTool("fail", rnd.IntN(2) == 0, func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{}, errors.New("it went wrong")
		}),
		newTool("crash", rnd.IntN(2) == 0, func(context.Context, *tool.Call) (tool.Result, error) {
			panic("crash")
		}),
		newTool("exit", false, func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{Exit: &tool.Exit{Code: rnd.IntN(4) - 1}}, nil
		}),
		newTool("ask_user", false, func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{Question: "why?"}, nil
		}),
		newTool("stop", false, func(context.Context, *tool.Call) (tool.Result, error) {
			cancel()
			return tool.Result{Text: "stopping"}, nil
		}),
	}
}

// checkJournal checks that the journal has an entry before every call that may change something,
// and a result after it.
func checkJournal(t *testing.T, r *recorder) {
	t.Helper()
	started := map[string]bool{}
	for i, e := range r.entries {
		switch e.typ {
		case "tool_started":
			var d struct {
				CallID string `json:"call_id"`
			}
			if err := json.Unmarshal([]byte(e.data), &d); err != nil || started[d.CallID] {
				t.Fatalf("entry %d: %s, %v", i, e.data, err)
			}
			started[d.CallID] = true
		case "tool_result":
			var d struct {
				Result struct {
					CallID string `json:"call_id"`
				}
			}
			if err := json.Unmarshal([]byte(e.data), &d); err != nil {
				t.Fatal(err)
			}
			delete(started, d.Result.CallID)
		}
	}
	if len(started) > 0 {
		t.Errorf("started calls without a result in the journal: %v", started)
	}
}

// TestFailingStoreStopsTheRun lets the store fail at each entry in turn. Nothing may happen that
// the journal does not hold.
func TestFailingStoreStopsTheRun(t *testing.T) {
	script := func() *model {
		return &model{answers: []answer{calls(call("a", "change", nil)), calls(call("b", "look", nil),
			call("c", "change", nil)), {text: "x"}}}
	}
	whole := &recorder{}
	var n callLog
	cfg := config(script(), n.tool("change", false), n.tool("look", true))
	cfg.Store = func(string) (session.Store, error) { return whole, nil }
	s := newSession(t, cfg)
	submit(t, s, "go")
	for failAt := 1; failAt <= len(whole.entries); failAt++ {
		t.Run(fmt.Sprintf("%d %s", failAt, whole.entries[failAt-1].typ), func(t *testing.T) {
			rec := &recorder{failAt: failAt}
			var n callLog
			cfg := config(script(), n.tool("change", false), n.tool("look", true))
			cfg.Store = func(string) (session.Store, error) { return rec, nil }
			a := newAgent(t, cfg)
			s, err := a.NewSession(t.Context(), agent.SessionOptions{})
			if err != nil {
				if !errors.Is(err, errDisk) {
					t.Errorf("a session that cannot be stored: %v", err)
				}
				return
			}
			res, err := s.Submit(t.Context(), "go")
			if res.Status != agent.StatusInternalError || !errors.Is(err, errDisk) ||
				s.State() != agent.SessionClosed {
				t.Errorf("ended with %v, %v, session %s", res.Status, err, s.State())
			}
			stored := strings.Join(allData(rec), "\n")
			for _, id := range n.calls() {
				if id != "b" && !strings.Contains(stored, `"call_id":"`+id+`"`) {
					t.Errorf("the call %s ran, but the journal holds nothing of it", id)
				}
			}
			checkPairs(t, answered(s.History()))
			for _, turn := range s.History() {
				texts := []string{turn.Text()}
				for _, r := range turn.Results {
					texts = append(texts, `"result":{"call_id":"`+r.CallID+`"`, r.Text())
				}
				for _, text := range texts {
					if !strings.Contains(stored, text) {
						t.Errorf("the history holds %q, the journal does not", text)
					}
				}
			}
		})
	}
}

func allData(r *recorder) []string {
	var out []string
	for _, e := range r.entries {
		out = append(out, e.data)
	}
	return out
}

func TestBrokenSinkEndsTheRun(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errDisk },
		"panic": func() error { panic("sink") },
	} {
		t.Run(name, func(t *testing.T) {
			var n callLog
			cfg := config(&model{answers: []answer{calls(call("a", "change", nil))}}, n.tool("change",
				false))
			cfg.Log = discard()
			cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
				if e.Kind() == event.KindTextEnd {
					return fail()
				}
				return nil
			})
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go")
			if res.Status != agent.StatusInternalError || err == nil {
				t.Errorf("ended with %v, %v", res.Status, err)
			}
			checkPairs(t, s.History())
		})
	}
}

func TestModelErrors(t *testing.T) {
	tests := []struct {
		kind   llm.ErrorKind
		status agent.Status
		state  agent.SessionState
	}{
		{llm.KindAuth, agent.StatusModelError, agent.SessionClosed},
		{llm.KindInvalid, agent.StatusModelError, agent.SessionClosed},
		{llm.KindContextLength, agent.StatusContextOverflow, agent.SessionClosed},
		{llm.KindServer, agent.StatusModelError, agent.SessionIdle},
		{llm.KindStream, agent.StatusModelError, agent.SessionIdle},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			var n callLog
			m := &model{answers: []answer{{
				text: "I will", calls: []llm.ToolCall{call("a", "change", nil)}, err: &llm.Error{
					Kind: tt.kind, Message: "no",
				},
			}}}
			cfg := config(m, n.tool("change", false))
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go")
			if res.Status != tt.status || llm.KindOf(err) != tt.kind || s.State() != tt.state {
				t.Errorf("ended with %v, %v, session %s", res.Status, err, s.State())
			}
			if len(n.calls()) > 0 || len(s.History()) != 1 {
				t.Errorf("an unfinished answer had an effect: calls %v, history %v", n.calls(), s.History())
			}
			if ev.count(event.KindError) != 1 || len(m.requests) != 1 {
				t.Errorf("%d error events, %d requests", ev.count(event.KindError), len(m.requests))
			}
			if warned := ev.count(event.KindWarning) > 0; warned != (tt.kind == llm.KindContextLength) {
				t.Errorf("warning: %v", warned)
			}
		})
	}
}

func TestEmptyAndFilteredAnswersAreNoSuccess(t *testing.T) {
	tests := map[string][]answer{
		"empty":  {{}, {}},
		"filter": {{finish: llm.FinishContentFilter}},
	}
	for name, answers := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, config(&model{answers: answers}))
			if res, err := s.Submit(t.Context(), "go"); res.Status != agent.StatusModelError || err == nil {
				t.Errorf("ended with %v, %v", res.Status, err)
			}
		})
	}
	var n callLog
	script := []answer{{}, calls(call("", "look", nil)), {text: " \n"}, {text: "there"}}
	s := newSession(t, config(&model{answers: script}, n.tool("look", true)))
	if res, err := s.Submit(t.Context(), "go"); res.Status != agent.StatusCompleted || err != nil {
		t.Errorf("after empty answers that do not follow each other: %v, %v", res.Status, err)
	}
}

func TestContextWarningOncePerCrossing(t *testing.T) {
	use := func(n int64) answer {
		return answer{
			calls: []llm.ToolCall{call("", "look", object{"n": n})},
			usage: llm.Usage{Input: n - 100, CacheRead: 50, Output: 50},
		}
	}
	var n callLog
	m := &model{answers: []answer{use(799), use(800), use(900), use(500), use(850)}}
	cfg := config(m, n.tool("look", true))
	ev := watch(&cfg)
	s := newSession(t, cfg)
	submit(t, s, "go")
	if got := ev.count(event.KindWarning); got != 2 {
		t.Errorf("%d warnings, want one at 800 and one at 850 of 1000 tokens", got)
	}
	m = &model{answers: []answer{use(599), use(600)}}
	cfg = config(m, n.tool("look", true))
	cfg.Profile.AnswerTokens = 700 // of which a quarter of the context is reserved
	ev = watch(&cfg)
	submit(t, newSession(t, cfg), "go")
	if got := ev.count(event.KindWarning); got != 1 {
		t.Errorf("%d warnings, want one at 600 of the 750 tokens beside the answer", got)
	}
	long := newSession(t, func() agent.Config {
		cfg := config(&model{})
		ev = &events{}
		cfg.Sinks = append(cfg.Sinks, ev.sink)
		return cfg
	}())
	if _, err := long.Submit(t.Context(), strings.Repeat("word ", 700)); err != nil {
		t.Fatal(err)
	}
	if _, err := long.Submit(t.Context(), "a server that counts no tokens gives no reason to warn "+
		"again"); err != nil {
		t.Fatal(err)
	}
	if ev.count(event.KindWarning) != 1 {
		t.Errorf("%d warnings before the first answer", ev.count(event.KindWarning))
	}
}

func TestCutAnswersAreContinued(t *testing.T) {
	cut := func(text string, c ...llm.ToolCall) answer {
		return answer{text: text, calls: c, finish: llm.FinishLength}
	}
	tests := map[string]struct {
		answers  []answer
		status   agent.Status
		final    string
		requests int
	}{
		"continued": {
			[]answer{cut("one, "), cut("two, "), {text: "three"}},
			agent.StatusCompleted,
			"one, two, three", 3,
		},
		"without text": {[]answer{cut(""), {text: "all"}}, agent.StatusCompleted, "all", 2},
		"call": {
			[]answer{
				cut("I look.", call("a", "look", nil)), calls(call("b", "look", nil)),
				cut("ha"), cut("l"),
				{text: "f"},
			}, agent.StatusCompleted, "half", 5,
		},
		"limit": {
			[]answer{cut("one, "), cut("two, "), cut("three")},
			agent.StatusLimit,
			"one, two, three", 3,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var n callLog
			m := &model{answers: tt.answers}
			cfg := config(m, n.tool("look", true))
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go")
			if err != nil || res.Status != tt.status || res.Final != tt.final ||
				len(m.requests) != tt.requests {
				t.Fatalf("ended with %s %q after %d requests, %v", res.Status, res.Final,
					len(m.requests), err)
			}
			if tt.status == agent.StatusLimit && (res.Limit != "output_tokens" ||
				ev.count(event.KindTurnLimit) != 1) {
				t.Errorf("the limit is %q", res.Limit)
			}
			if slices.Contains(n.calls(), "a") {
				t.Error("a call of a cut answer ran")
			}
			checkPairs(t, s.History())
		})
	}
}
