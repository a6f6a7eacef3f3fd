package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestTurnsOfSubagents counts how often a sub-agent that never ends asks the model: once for two
// turns.
func TestTurnsOfSubagents_9_9_1(t *testing.T) {
	tests := map[string]struct {
		call, kind, config, own int
		want                    int
	}{
		"default":                 {want: 25},
		"configuration":           {config: 7, want: 3},
		"kind":                    {kind: 9, config: 7, want: 4},
		"call":                    {call: 5, kind: 9, config: 7, want: 2},
		"no more than the parent": {call: 90, own: 11, want: 5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var n note
			args := map[string]any{"agent_type": "runner"}
			if tt.call > 0 {
				args["max_turns"] = tt.call
			}
			var endless []answer
			for i := range 100 {
				endless = append(endless, calls(call(fmt.Sprint(i), "look", map[string]any{"n": i})))
			}
			c := &cast{scripts: map[string][]answer{"": {
				calls(spawn("a", args)),
				calls(onAgent("wait", "agent_1")),
			}, "agent_1": endless}}
			cfg := family(c, n.tool("look", true))
			cfg.Limits.MaxTurns = tt.own
			cfg.Subagents = agent.Subagents{MaxTurns: tt.config, Kinds: []agent.Kind{{
				Name:        "runner",
				Description: "runs", MaxTurns: tt.kind,
			}}}
			res := submit(t, newSession(t, cfg), "go")
			if got := c.asked("agent_1"); got != tt.want {
				t.Errorf("the sub-agent asked the model %d times, not %d", got, tt.want)
			}
			if len(res.Agents) != 1 || res.Agents[0].Status != string(tool.AgentFailed) {
				t.Errorf("the agents are %+v", res.Agents)
			}
		})
	}
}

// TestTokensOfSubagents lets sub-agents use all tokens that their parent may use.
func TestTokensOfSubagents(t *testing.T) {
	tests := map[string]struct {
		untold  bool
		session agent.Limits
		run     *agent.Limits
		nested  bool
	}{
		"session's limit": {session: agent.Limits{MaxTokens: 1000}},
		"run's limit": {
			session: agent.Limits{MaxTokens: 1 << 40},
			run:     &agent.Limits{MaxTokens: 1000},
		},
		"guessed tokens":     {session: agent.Limits{MaxTokens: 3000}, untold: true},
		"agents below":       {session: agent.Limits{MaxTokens: 1000}, nested: true},
		"run's limit, below": {run: &agent.Limits{MaxTokens: 1000}, nested: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var n note
			use := llm.Usage{Input: 100}
			if tt.untold {
				use = llm.Usage{}
			}
			var endless []answer
			for i := range 300 {
				endless = append(endless, answer{calls: []llm.ToolCall{call(fmt.Sprint(i), "look",
					map[string]any{"n": i})}, usage: use})
			}
			c := &cast{scripts: map[string][]answer{
				"": {
					{calls: []llm.ToolCall{
						spawn("a", map[string]any{"max_turns": 1000}),
						spawn("b", map[string]any{"max_turns": 1000}),
					}, usage: use},
					{calls: []llm.ToolCall{onAgent("wait", "agent_1"), onAgent("wait", "agent_2")}, usage: use},
				},
				"agent_1": endless, "agent_2": endless, "agent_1_1": endless,
			}}
			if tt.nested {
				c.scripts["agent_1"] = []answer{
					{
						calls: []llm.ToolCall{spawn("a", map[string]any{"max_turns": 1000})},
						usage: use,
					}, {calls: []llm.ToolCall{onAgent("wait", "agent_1_1")}, usage: use},
				}
			}
			ev := &events{}
			cfg := family(c, n.tool("look", true))
			cfg.Limits = tt.session
			cfg.Subagents.MaxDepth = 2
			cfg.Sinks = append(cfg.Sinks, ev.sink)
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
			asked := c.asked("") + c.asked("agent_1") + c.asked("agent_2") + c.asked("agent_1_1")
			// Each agent that is at work when the limit is reached may have one more answer on the way,
			// which may be cut off.
			if used := s.Usage().Total(); !tt.untold && (used < 1000 || used > int64(asked*100) ||
				asked > 14 || res.Usage != s.Usage()) {
				t.Errorf("the model was asked %d times, for %d tokens, of which the run tells %d", asked, used,
					res.Usage.Total())
			}
			if tt.untold && asked > 100 {
				t.Errorf("the model was asked %d times", asked)
			}
			if ev.count(event.KindTurnLimit) == 0 {
				t.Error("no event tells of the limit")
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
		"empty":        {map[string]any{"model": ""}, "own"},
		"the kind's":   {map[string]any{"agent_type": "cheap"}, "small"},
		"the call's":   {map[string]any{"agent_type": "cheap", "model": "big"}, "big"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{"": {
				calls(spawn("a", tt.args)),
				calls(onAgent("wait", "agent_1")),
			}}}
			ev := &events{}
			cfg := family(c)
			cfg.Subagents.Kinds = kinds
			cfg.Sinks = append(cfg.Sinks, ev.sink)
			s := newSession(t, cfg)
			s.Update(func(s *agent.Settings) { s.Model = "own" })
			submit(t, s, "go")
			if req := c.request(t, "agent_1", 0); req.Model != tt.want || !strings.Contains(req.System,
				tt.want) {
				t.Errorf("the sub-agent asked the model %q, and was told %q", req.Model, req.System)
			}
			for _, e := range ev.all {
				if d, ok := e.Data.(event.SessionStart); ok && e.AgentID != "" && d.Model != tt.want {
					t.Errorf("the event tells of the model %q", d.Model)
				}
			}
			if again := c.request(t, "", 2); again.Model != "own" {
				t.Errorf("the parent went on with %q", again.Model)
			}
		})
	}
}

// TestInstructionsOfSubagents checks that an agent is told the user's own and those of its kind,
// and of no other kind.
func TestInstructionsOfSubagents(t *testing.T) {
	for _, run := range []string{"", "RUN"} {
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(spawn("a", map[string]any{"agent_type": "first"})),
				calls(onAgent("wait", "agent_1")),
			},
			"agent_1": {
				calls(spawn("b", map[string]any{"agent_type": "second"})),
				calls(onAgent("wait", "agent_1_1")),
			},
		}}
		cfg := family(c)
		cfg.Settings.Instructions = "USER"
		cfg.Subagents = agent.Subagents{MaxDepth: 2, Kinds: []agent.Kind{
			{Name: "first", Description: "d", Instructions: "FIRST"}, {
				Name: "second", Description: "d",
				Instructions: "SECOND",
			},
		}}
		if _, err := newSession(t, cfg).Run(t.Context(), agent.Input{
			Text:         "go",
			Instructions: run,
		}); err != nil {
			t.Fatal(err)
		}
		own := "USER"
		if run != "" {
			own = run
		}
		for id, want := range map[string]string{"": own, "agent_1": own + "\n\nFIRST", "agent_1_1": own +
			"\n\nSECOND"} {
			system := c.request(t, id, 0).System
			if !strings.HasSuffix(strings.TrimSpace(system), want) || strings.Contains(want, "SECOND") &&
				strings.Contains(system, "FIRST") || run != "" && strings.Contains(system, "USER") {
				t.Errorf("the agent %q is told %q, not to end with %q", id, system, want)
			}
		}
	}
}

// TestFailingStoreOfSubagents lets the store of the parent or of a sub-agent fail from one entry
// on.
func TestFailingStoreOfSubagents(t *testing.T) {
	for failAt := 1; failAt <= 8; failAt++ {
		t.Run(fmt.Sprint(failAt), func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{
				"":        {calls(spawn("a", nil)), calls(onAgent("wait", "agent_1"))},
				"agent_1": {{text: "well"}},
			}}
			ev := &events{}
			cfg := family(c)
			cfg.Store = func(id string) (agent.Store, error) {
				if strings.Contains(id, "agent") {
					return &recorder{failAt: failAt}, nil
				}
				return &recorder{}, nil
			}
			cfg.Sinks = append(cfg.Sinks, ev.sink)
			s := newSession(t, cfg)
			submit(t, s, "go")
			// Entries 1 and 2 begin the session, 8 ends it when the parent closes it.
			spawned, waited := c.result(t, "", 1, 0), c.result(t, "", 2, 0)
			switch {
			case failAt <= 2 && (!strings.Contains(spawned, errDisk.Error()) || !strings.Contains(waited,
				"no agent has this ID")):
				t.Errorf("spawn_agent said %q, wait %q", spawned, waited)
			case failAt > 2 && failAt < 8 && (!strings.Contains(waited, "status: failed") ||
				!strings.Contains(waited, errDisk.Error())):
				t.Errorf("wait said %q", waited)
			case failAt == 8 && !strings.Contains(waited, "status: completed"):
				t.Errorf("wait said %q", waited)
			}
			if err := s.Close(); failAt > 2 && !errors.Is(err, errDisk) {
				t.Errorf("Close gives %v", err)
			}
			if ends := ev.count(event.KindSessionEnd); ends != ev.count(event.KindSessionStart) {
				t.Errorf("%d sessions began and %d ended", ev.count(event.KindSessionStart), ends)
			}
		})
	}
	t.Run("none at all", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a", nil))}}}
		cfg := family(c)
		cfg.Store = func(id string) (agent.Store, error) {
			if strings.Contains(id, "agent") {
				return nil, errDisk
			}
			return &recorder{}, nil
		}
		submit(t, newSession(t, cfg), "go")
		if got := c.result(t, "", 1, 0); !strings.Contains(got, errDisk.Error()) {
			t.Errorf("spawn_agent said %q", got)
		}
	})
	t.Run("at the end of the run", func(t *testing.T) {
		b := newBlocker()
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a", nil)), {
			text:   "end",
			before: b.runs(1),
		}}, "agent_1": {calls(b.call("x"))}}}
		cfg := family(c, b.tool())
		cfg.Store = func(id string) (agent.Store, error) {
			if strings.Contains(id, "agent") {
				return &oddStore{at: "session_ended"}, nil
			}
			return &recorder{}, nil
		}
		s := newSession(t, cfg)
		submit(t, s, "go")
		if err := s.Close(); !errors.Is(err, errDisk) {
			t.Errorf("Close gives %v", err)
		}
	})
	t.Run("the parent's", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a", nil))}}}
		var own *oddStore
		ev := &events{}
		cfg := family(c)
		cfg.Log = discard()
		cfg.Store = func(id string) (agent.Store, error) {
			if strings.Contains(id, "agent") {
				return &recorder{}, nil
			}
			own = &oddStore{at: "agent"}
			return own, nil
		}
		cfg.Sinks = append(cfg.Sinks, ev.sink)
		s := newSession(t, cfg)
		_, _ = s.Submit(t.Context(), "go")
		_ = s.Close()
		if c.asked("agent_1") > 0 {
			t.Error("an agent works that is not in the journal")
		}
		checkFamilyEvents(t, ev, "agent_1")
	})
}

// TestBrokenSinkEndsTheFamily lets the receiver of the events fail once, for an event of a
// sub-agent, while the parent waits for the agent, and while it ends itself.
func TestBrokenSinkEndsTheFamily(t *testing.T) {
	for name, next := range map[string]func(b *blocker) answer{
		"waits": func(b *blocker) answer { return calls(onAgent("wait", "agent_1")) },
		"ends": func(b *blocker) answer {
			return answer{text: "end", before: func(ctx context.Context, req llm.Request) {
				b.runs(1)(ctx,
					req)
			}}
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
			cfg := family(c, b.tool())
			cfg.Log = discard()
			cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
				if e.Kind() == event.KindToolCallEnd && e.AgentID != "" {
					return errDisk
				}
				return nil
			})
			s := newSession(t, cfg)
			var res agent.Result
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
