package agent_test

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestTurnsOfSubagents counts the requests of a sub-agent that never ends.
func TestTurnsOfSubagents_9_9_1(t *testing.T) {
	tests := map[string]struct {
		call, kind, config, parent int
		want                       int
	}{
		"default":                 {want: 50},
		"configuration":           {config: 7, want: 7},
		"kind":                    {kind: 9, config: 7, want: 9},
		"call":                    {call: 5, kind: 9, config: 7, want: 5},
		"no more than the parent": {call: 90, parent: 11, want: 11},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var n callLog
			args := object{"agent_type": "runner"}
			if tt.call > 0 {
				args["max_turns"] = tt.call
			}
			var endless []answer
			for i := range 100 {
				endless = append(endless, calls(call(fmt.Sprint(i), "look", object{"n": i})))
			}
			c := one(args, endless...)
			cfg := treeConfig(c, n.tool("look", true))
			cfg.Limits.MaxTurns = tt.parent
			cfg.Subagents = agent.Subagents{MaxTurns: tt.config, Kinds: []agent.Kind{{
				Name: "runner", Description: "runs", MaxTurns: tt.kind,
			}}}
			res, err := newSession(t, cfg).Submit(t.Context(), "go")
			if err != nil || (res.Status == agent.StatusLimit) != (tt.parent > 0) {
				t.Fatalf("ended with %s, %v", res.Status, err)
			}
			got := c.sent("agent_1")
			if tt.parent > 0 {
				got += c.sent("")
			}
			if got != tt.want {
				t.Errorf("%d requests, not %d", got, tt.want)
			}
			if len(res.Agents) != 1 || res.Agents[0].Status != string(tool.AgentFailed) {
				t.Errorf("the agents are %+v", res.Agents)
			}
		})
	}
}

// TestTokensOfSubagents has sub-agents that use up the tokens of their parent.
func TestTokensOfSubagents(t *testing.T) {
	tests := map[string]struct {
		unreported bool
		session    agent.Limits
		run        *agent.Limits
		nested     bool
	}{
		"session's limit": {session: agent.Limits{MaxTokens: 20_000}},
		"run's limit": {
			session: agent.Limits{MaxTokens: 1 << 40}, run: &agent.Limits{MaxTokens: 20_000},
		},
		"estimated tokens":   {session: agent.Limits{MaxTokens: 3000}, unreported: true},
		"agents below":       {session: agent.Limits{MaxTokens: 20_000}, nested: true},
		"run's limit, below": {run: &agent.Limits{MaxTokens: 20_000}, nested: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var n callLog
			use := llm.Usage{Input: 1000}
			if tt.unreported {
				use = llm.Usage{}
			}
			var endless []answer
			for i := range 300 {
				endless = append(endless, answer{calls: []llm.ToolCall{call(fmt.Sprint(i), "look",
					object{"n": i})}, usage: use})
			}
			c := &cast{scripts: map[string][]answer{
				"": {
					{calls: []llm.ToolCall{
						spawn("a", object{"max_turns": 1000}), spawn("b", object{"max_turns": 1000}),
					}, usage: use},
					{calls: []llm.ToolCall{onAgent("wait", "agent_1"), onAgent("wait", "agent_2")}, usage: use},
				},
				"agent_1": endless, "agent_2": endless, "agent_1_1": endless,
			}}
			if tt.nested {
				c.scripts["agent_1"] = []answer{
					{
						calls: []llm.ToolCall{spawn("a", object{"max_turns": 1000})}, usage: use,
					}, {calls: []llm.ToolCall{onAgent("wait", "agent_1_1")}, usage: use},
				}
			}
			cfg := treeConfig(c, n.tool("look", true))
			cfg.Limits = tt.session
			cfg.Subagents.MaxDepth = 2
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, err := s.Run(t.Context(), agent.Input{Text: "go", Limits: tt.run})
			if err != nil || res.Status != agent.StatusLimit || res.Limit != "tokens" {
				t.Fatalf("the run ended with %s of %s, %v", res.Status, res.Limit, err)
			}
			for _, a := range res.Agents {
				if a.Status != string(tool.AgentFailed) {
					t.Errorf("the agents are %+v", res.Agents)
				}
			}
			asked := c.sent("") + c.sent("agent_1") + c.sent("agent_2") + c.sent("agent_1_1")
			// No request is sent that may exceed the limit, and all are that cannot.
			if used := s.Usage().Total(); !tt.unreported && (used < 17_000 || used > 20_000 ||
				used != int64(asked*1000) || res.Usage != s.Usage()) {
				t.Errorf("the model got %d requests, for %d tokens, of which the run reports %d", asked, used,
					res.Usage.Total())
			}
			if tt.unreported && asked > 100 {
				t.Errorf("the model got %d requests", asked)
			}
			if ev.count(event.KindTurnLimit) == 0 {
				t.Error("no event has the limit")
			}
		})
	}
}

func TestModelOfSubagents(t *testing.T) {
	kinds := []agent.Kind{{Name: "cheap", Description: "costs little", Model: "small"}}
	tests := map[string]struct {
		args map[string]any
		want string
	}{
		"the parent's": {nil, "own"},
		"empty":        {object{"model": ""}, "own"},
		"the kind's":   {object{"agent_type": "cheap"}, "small"},
		"the call's":   {object{"agent_type": "cheap", "model": "big"}, "big"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{"": {
				calls(spawn("a", tt.args)), calls(onAgent("wait", "agent_1")),
			}}}
			cfg := treeConfig(c)
			cfg.Subagents.Kinds = kinds
			ev := watch(&cfg)
			s := newSession(t, cfg)
			s.Update(func(s *agent.Settings) { s.Model = "own" })
			submit(t, s, "go")
			if req := c.request(t, "agent_1", 0); req.Model != tt.want ||
				!strings.Contains(req.System, tt.want) {
				t.Errorf("the sub-agent used the model %q with the prompt %q", req.Model, req.System)
			}
			for _, e := range ev.all {
				if d, ok := e.Data.(event.SessionStart); ok && e.AgentID != "" && d.Model != tt.want {
					t.Errorf("the event has the model %q", d.Model)
				}
			}
			if again := c.request(t, "", 2); again.Model != "own" {
				t.Errorf("the parent went on with %q", again.Model)
			}
		})
	}
}

// TestInstructionsOfSubagents checks that an agent gets the instructions of the user and of its
// kind, and of no other kind.
func TestInstructionsOfSubagents(t *testing.T) {
	for _, run := range []string{"", "RUN"} {
		c := one(object{"agent_type": "first"},
			calls(spawn("b", object{"agent_type": "second"})), calls(onAgent("wait", "agent_1_1")))
		cfg := treeConfig(c)
		cfg.Settings.Instructions = "USER"
		cfg.Subagents = agent.Subagents{MaxDepth: 2, Kinds: []agent.Kind{
			{Name: "first", Description: "d", Instructions: "FIRST"}, {
				Name: "second", Description: "d", Instructions: "SECOND",
			},
		}}
		if _, err := newSession(t, cfg).Run(t.Context(), agent.Input{
			Text: "go", Instructions: run,
		}); err != nil {
			t.Fatal(err)
		}
		user := cmp.Or(run, "USER")
		for id, want := range map[string]string{
			"": user, "agent_1": user + "\n\nFIRST", "agent_1_1": user + "\n\nSECOND",
		} {
			system := c.request(t, id, 0).System
			if !strings.HasSuffix(strings.TrimSpace(system), want) || strings.Contains(want, "SECOND") &&
				strings.Contains(system, "FIRST") || run != "" && strings.Contains(system, "USER") {
				t.Errorf("the agent %q gets %q, which does not end with %q", id, system, want)
			}
		}
	}
}

// TestFailingStoreOfSubagents has a store of the parent or of a sub-agent that fails from one entry
// on.
func TestFailingStoreOfSubagents(t *testing.T) {
	for failAt := 1; failAt <= 12; failAt++ {
		t.Run(fmt.Sprint(failAt), func(t *testing.T) {
			c := one(nil, answer{text: "well"})
			cfg := treeConfig(c)
			cfg.Store = stores(&recorder{}, &recorder{failAt: failAt})
			ev := watch(&cfg)
			s := newSession(t, cfg)
			submit(t, s, "go")
			// Entries 1 and 2 start the session, 12 ends it when the parent closes it.
			spawned, waited := c.result(t, "", 1, 0), c.result(t, "", 2, 0)
			switch {
			case failAt <= 2 && (!strings.Contains(spawned, errDisk.Error()) ||
				!strings.Contains(waited, "no agent has this ID")):
				t.Errorf("spawn_agent returned %q, wait %q", spawned, waited)
			case failAt > 2 && failAt < 12 && (!strings.Contains(waited, "status: failed") ||
				!strings.Contains(waited, errDisk.Error())):
				t.Errorf("wait returned %q", waited)
			case failAt == 12 && !strings.Contains(waited, "status: completed"):
				t.Errorf("wait returned %q", waited)
			}
			if err := s.Close(); failAt > 2 && !errors.Is(err, errDisk) {
				t.Errorf("Close returns %v", err)
			}
			if ends := ev.count(event.KindSessionEnd); ends != ev.count(event.KindSessionStart) {
				t.Errorf("%d sessions started and %d ended", ev.count(event.KindSessionStart), ends)
			}
		})
	}
	t.Run("none at all", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a", nil))}}}
		cfg := treeConfig(c)
		cfg.Store = func(id string) (session.Store, error) {
			if strings.Contains(id, "agent") {
				return nil, errDisk
			}
			return &recorder{}, nil
		}
		submit(t, newSession(t, cfg), "go")
		c.returned(t, "", 1, 0, errDisk.Error())
	})
	t.Run("at the end of the run", func(t *testing.T) {
		b := newBlocker()
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a", nil)), {
			text: "end", before: b.runs(1),
		}}, "agent_1": {calls(b.call("x"))}}}
		cfg := treeConfig(c, b.tool())
		cfg.Store = stores(&recorder{}, &flakyStore{at: "session_ended"})
		s := newSession(t, cfg)
		submit(t, s, "go")
		if err := s.Close(); !errors.Is(err, errDisk) {
			t.Errorf("Close returns %v", err)
		}
	})
	t.Run("the parent's", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a", nil))}}}
		cfg := treeConfig(c)
		cfg.Log = discard()
		cfg.Store = stores(&flakyStore{at: "agent"}, &recorder{})
		ev := watch(&cfg)
		s := newSession(t, cfg)
		_, _ = s.Submit(t.Context(), "go")
		_ = s.Close()
		if c.sent("agent_1") > 0 {
			t.Error("an agent runs that is not in the journal")
		}
		checkTreeEvents(t, ev, "agent_1")
	})
}

// TestBrokenSinkEndsTheTree has a sink that fails for an event of a sub-agent, while the parent
// waits for the agent, and while the parent ends.
func TestBrokenSinkEndsTheTree(t *testing.T) {
	for name, next := range map[string]func(b *blocker) answer{
		"waits": func(b *blocker) answer { return calls(onAgent("wait", "agent_1")) },
		"ends": func(b *blocker) answer {
			return answer{text: "end", before: b.runs(1)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlocker()
			c := &cast{scripts: map[string][]answer{
				"":        {calls(spawn("a", nil)), next(b)},
				"agent_1": {calls(b.call("x"))},
			}}
			if name == "waits" {
				close(b.free)
			}
			cfg := treeConfig(c, b.tool())
			cfg.Log = discard()
			cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
				if e.Kind() == event.KindToolCallEnd && e.AgentID != "" {
					return errDisk
				}
				return nil
			})
			s := newSession(t, cfg)
			var res agent.RunResult
			var err error
			within(t, func() { res, err = s.Submit(t.Context(), "go") })
			if res.Status != agent.StatusInternalError || !errors.Is(err, errDisk) ||
				!strings.Contains(err.Error(), "agent_1") {
				t.Errorf("the run ended with %s, %v", res.Status, err)
			}
			if len(res.Agents) != 1 || res.Agents[0].Status != string(tool.AgentFailed) {
				t.Errorf("the agents are %+v", res.Agents)
			}
		})
	}
}
