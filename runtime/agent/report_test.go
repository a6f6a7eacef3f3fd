package agent_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// exitTool ends a run with a code and a reason.
func exitTool(code int, reason string) tool.Tool {
	return newTool("exit", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Exit: &tool.Exit{Code: code, Reason: reason}}, nil
	})
}

// reports are the requests of a model that ask for a final answer.
func reports(m *model) (list []llm.Request) {
	for _, req := range m.requests {
		if req.NoToolCalls {
			list = append(list, req)
		}
	}
	return list
}

// warnings returns the messages of the warnings with a code.
func (e *events) warnings(code string) (list []string) {
	for _, ev := range e.all {
		if w, ok := ev.Data.(event.Warning); ok && w.Code == code {
			list = append(list, w.Message)
		}
	}
	return list
}

// TestFinalAnswer has runs that end without an answer, which one more request gets, and others.
func TestFinalAnswer(t *testing.T) {
	use := llm.Usage{Input: 1000, Output: 10}
	exit := calls(call("e", "exit", nil))
	begin := answer{text: "I begin.", calls: []llm.ToolCall{call("l", "look", nil)}}
	said := answer{text: "I stop.", calls: exit.calls}
	fails := answer{err: &llm.Error{Kind: llm.KindAuth}}
	noReplans := agent.Limits{MaxReplans: -1}
	for name, tt := range map[string]struct {
		answers  []answer
		limits   agent.Limits
		code     int
		reason   string
		status   agent.Status
		reported bool
	}{
		"turns":  {looks(2, use), agent.Limits{MaxTurns: 2}, 0, "", agent.StatusLimit, true},
		"rounds": {looks(2, use), agent.Limits{MaxToolRounds: 2}, 0, "", agent.StatusLimit, true},
		"calls":  {looks(2, use), agent.Limits{MaxToolCalls: 2}, 0, "", agent.StatusLimit, true},
		"tokens": {looks(4, use), agent.Limits{MaxTokens: 4000}, 0, "", agent.StatusLimit, false},
		"output limit": {
			slices.Repeat([]answer{{text: "a", finish: llm.FinishLength}}, 3),
			agent.Limits{},
			0, "",
			agent.StatusLimit, false,
		},
		"silent exit": {
			[]answer{begin, exit}, agent.Limits{}, 0, " ", agent.StatusCompleted, true,
		},
		"silent defeat": {[]answer{exit}, noReplans, 1, "", agent.StatusTaskFailed, true},
		"silence":       {[]answer{{}, {}}, agent.Limits{}, 0, "", agent.StatusModelError, true},
		"reason":        {[]answer{exit}, agent.Limits{}, 0, "done", agent.StatusCompleted, false},
		"text":          {[]answer{said}, noReplans, 1, "", agent.StatusTaskFailed, false},
		"no time":       {[]answer{exit}, agent.Limits{}, -1, "", agent.StatusGaveUpTime, false},
		"a human":       {[]answer{exit}, agent.Limits{}, 2, "", agent.StatusAwaitingHuman, false},
		"done":          {[]answer{{text: "ok"}}, agent.Limits{}, 0, "", agent.StatusCompleted, false},
		"model error":   {[]answer{fails}, agent.Limits{}, 0, "", agent.StatusModelError, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: append(slices.Clone(tt.answers), answer{text: "the report", usage: use})}
			var n callLog
			cfg := config(m, n.tool("look", true), exitTool(tt.code, tt.reason))
			cfg.Limits, cfg.FinalAnswer = tt.limits, true
			cfg.Profile.ContextWindow, cfg.Profile.MaxOutputTokens = 100_000, 50_000
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, _ := s.Submit(t.Context(), "go")
			got := reports(m)
			if res.Status != tt.status || res.Reported != tt.reported || (len(got) == 1) != tt.reported ||
				(res.Final == "the report") != tt.reported {
				t.Fatalf("%s, reported %t, %d requests, %q", res.Status, res.Reported, len(got), res.Final)
			}
			if said := ev.warnings("final_answer"); (len(said) == 1) != (name == "tokens") {
				t.Errorf("warnings: %q", said)
			}
			if !tt.reported {
				return
			}
			if len(got[0].Tools) == 0 || got[0].MaxOutputTokens != 16_000 {
				t.Errorf("the request has %d tools, %d tokens", len(got[0].Tools), got[0].MaxOutputTokens)
			}
			last := got[0].Messages[len(got[0].Messages)-1].Text()
			if !strings.Contains(last, "final report") ||
				strings.Contains(last, "its limit of") != (res.Status == agent.StatusLimit) {
				t.Errorf("the model was told %q", last)
			}
			if res.ModelCalls != len(tt.answers)+1 || res.Turns != res.ModelCalls {
				t.Errorf("%d calls, %d turns", res.ModelCalls, res.Turns)
			}
			states := res.Transitions[len(res.Transitions)-2:]
			if states[0].To != agent.StateReporting || states[1].From != agent.StateReporting {
				t.Errorf("states %+v", states)
			}
			checkPairs(t, s.History())
		})
	}
}

// TestNoFinalAnswer has requests for a final answer that bring none. The outcome stays.
func TestNoFinalAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		last answer
		want string
	}{
		"error": {answer{err: &llm.Error{Kind: llm.KindServer, Message: "down"}}, "down"},
		"calls": {calls(call("more", "look", nil)), "without text"},
		"blank": {answer{text: " \n"}, "without text"},
	} {
		t.Run(name, func(t *testing.T) {
			var n callLog
			m := &model{answers: append(looks(1, llm.Usage{}), tt.last)}
			cfg := config(m, n.tool("look", true))
			cfg.FinalAnswer, cfg.Limits.MaxTurns = true, 1
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go")
			said := ev.warnings("final_answer")
			if err != nil || res.Status != agent.StatusLimit || res.Limit != "turns" || res.Reported ||
				len(m.requests) != 2 || len(said) != 1 || !strings.Contains(said[0], tt.want) ||
				ev.count(event.KindError) > 0 {
				t.Errorf("%+v, %v, %q", res, err, said)
			}
			if len(n.calls()) != 1 || s.State() != agent.SessionIdle {
				t.Errorf("calls %v, the session is %s", n.calls(), s.State())
			}
			checkPairs(t, s.History())
		})
	}
}

// TestFinalAnswerCalls has a server that lets the model call tools nevertheless.
func TestFinalAnswerCalls(t *testing.T) {
	var n callLog
	m := &model{answers: append(looks(1, llm.Usage{}), answer{
		text: "the report", calls: []llm.ToolCall{call("more", "look", nil)},
	})}
	cfg := config(m, n.tool("look", true))
	cfg.FinalAnswer, cfg.Limits.MaxTurns = true, 1
	s := newSession(t, cfg)
	if res := submit(t, s, "go"); res.Final != "the report" || len(n.calls()) != 1 {
		t.Errorf("%q, calls %v", res.Final, n.calls())
	}
	checkPairs(t, s.History())
}

// TestNoFinalAnswerAfterAbort aborts a run in its request for a final answer, and before it.
func TestNoFinalAnswerAfterAbort(t *testing.T) {
	var n callLog
	var s *agent.Session
	abort := func(context.Context, llm.Request) { s.Abort() }
	m := &model{answers: append(looks(1, llm.Usage{}), answer{before: abort})}
	cfg := config(m, n.tool("look", true))
	cfg.FinalAnswer, cfg.Limits.MaxTurns = true, 1
	s = newSession(t, cfg)
	if res := submit(t, s, "go"); res.Status != agent.StatusLimit || res.Reported {
		t.Errorf("%s, reported %t", res.Status, res.Reported)
	}
	m = &model{answers: []answer{{before: abort}}}
	cfg.Client = m
	s = newSession(t, cfg)
	if res, _ := s.Submit(t.Context(), "go"); res.Status != agent.StatusAborted ||
		len(m.requests) != 1 {
		t.Errorf("%s after %d requests", res.Status, len(m.requests))
	}
}

// TestFinalAnswerIsStored resumes a session after a final answer.
func TestFinalAnswerIsStored(t *testing.T) {
	var n callLog
	use := llm.Usage{Input: 100, Output: 10}
	m := &model{answers: append(looks(1, use), answer{text: "the report", usage: use})}
	cfg := config(m, n.tool("look", true))
	dir := t.TempDir()
	cfg.FinalAnswer, cfg.Limits.MaxTurns, cfg.Store = true, 1, session.OnDisk(dir)
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := session.Load(filepath.Join(dir, s.ID()))
	if err != nil || r.Spent.Turns != 2 || r.Turns[len(r.Turns)-1].Text() != "the report" ||
		res.Usage.Total() != 220 {
		t.Errorf("%+v, %v", r, err)
	}
	cfg.Limits.MaxTurns = 9
	submit(t, resume(t, cfg, filepath.Join(dir, s.ID())), "go on")
	before, after := m.request(t, 1), m.request(t, 2)
	if after.NoToolCalls {
		t.Error("the next run may call no tools")
	}
	for i, msg := range before.Messages {
		if msg.Text() != after.Messages[i].Text() {
			t.Errorf("message %d was %q, and is %q", i, msg.Text(), after.Messages[i].Text())
		}
	}
}

// TestFinalAnswerOfSubagent has a sub-agent whose limit is its own, and one whose parent has no
// turns left.
func TestFinalAnswerOfSubagent(t *testing.T) {
	for name, tt := range map[string]struct {
		turns, requests int
	}{"own limit": {0, 2}, "limit of the parent": {3, 1}} {
		t.Run(name, func(t *testing.T) {
			var n callLog
			c := one(object{"max_turns": 1}, append(looks(1, llm.Usage{}), answer{text: "so far"})...)
			waiting := make(chan struct{})
			c.scripts[""][1].before = func(context.Context, llm.Request) { close(waiting) }
			c.scripts["agent_1"][0].before = func(context.Context, llm.Request) { <-waiting }
			cfg := treeConfig(c, n.tool("look", true))
			cfg.FinalAnswer, cfg.Limits.MaxTurns = true, tt.turns
			s := newSession(t, cfg)
			if _, err := s.Submit(t.Context(), "go"); err != nil {
				t.Fatal(err)
			}
			if got := c.sent("agent_1"); got != tt.requests {
				t.Errorf("the sub-agent sent %d requests, not %d", got, tt.requests)
			}
		})
	}
}

// TestFinalAnswerStopsAgents has a sub-agent that still runs at a limit of its parent.
func TestFinalAnswerStopsAgents(t *testing.T) {
	started, stopped := make(chan struct{}), make(chan struct{})
	wait := answer{before: func(ctx context.Context, _ llm.Request) {
		close(started)
		<-ctx.Done()
		close(stopped)
	}}
	look := looks(1, llm.Usage{})[0]
	look.before = func(context.Context, llm.Request) { <-started }
	report := answer{text: "the report", before: func(context.Context, llm.Request) {
		select {
		case <-stopped:
		default:
			t.Error("the agent still runs")
		}
	}}
	c := &cast{scripts: map[string][]answer{
		"": {calls(spawn("a", nil)), look, report}, "agent_1": {wait},
	}}
	var n callLog
	cfg := treeConfig(c, n.tool("look", true))
	cfg.FinalAnswer, cfg.Limits.MaxToolRounds = true, 2
	if res := submit(t, newSession(t, cfg), "go"); res.Final != "the report" {
		t.Errorf("%s, %q", res.Status, res.Final)
	}
}
