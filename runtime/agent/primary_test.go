package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// offeredTo runs an agent of a kind, and returns its first request.
func offeredTo(t *testing.T, kind string, change func(*agent.Config)) (llm.Request, []string) {
	t.Helper()
	m := &model{}
	look := newTool("look", true, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{}, nil
	})
	cfg := configIn(t, t.TempDir(), m, look, failing("try"), tool.ExitTool(), tool.WriteFile())
	cfg.Subagents.Kinds = []agent.Kind{{
		Name: "reviewer", Description: "reviews", Instructions: "Look for errors first.",
		Tools: []string{"look", "try"}, Model: "other", MaxTurns: 7,
		Rules: &policy.Policy{Rules: []policy.Rule{{Permission: "try", Action: policy.Deny}}},
	}}
	if change != nil {
		change(&cfg)
	}
	cfg, err := cfg.WithKind(kind)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, cfg)
	submit(t, s, "go")
	var names []string
	for _, spec := range m.request(t, 0).Tools {
		names = append(names, spec.Name)
	}
	return m.request(t, 0), names
}

func TestWithKind(t *testing.T) {
	req, names := offeredTo(t, "reviewer", func(c *agent.Config) {
		c.Settings.Instructions = "Answer in French."
	})
	if !slices.Equal(names, []string{"look"}) || req.Model != "other" || !strings.HasSuffix(req.System,
		"Answer in French.\n\nLook for errors first.\n") {
		t.Errorf("tools %q, model %s, %q", names, req.Model, req.System)
	}
	explore, names := offeredTo(t, "explore", nil)
	if !slices.Equal(names, []string{"look", "exit"}) ||
		strings.Contains(explore.System, "started by another agent") {
		t.Errorf("tools of explore %q, %q", names, explore.System)
	}
	build, names := offeredTo(t, agent.KindBuild, nil)
	if !slices.Equal(names, []string{"look", "try", "exit", "write_file"}) {
		t.Errorf("tools of build %q", names)
	}
	if strings.Contains(build.System, "started by another agent") {
		t.Errorf("the prompt of build is %q", build.System)
	}
	plan, names := offeredTo(t, agent.KindPlan, nil)
	text := plan.Messages[len(plan.Messages)-1].Text()
	if !slices.Contains(names, "plan_exit") || !strings.Contains(text, "You are in plan mode") {
		t.Errorf("tools of plan %q, %q", names, text)
	}
}

func TestWithKindMistakes(t *testing.T) {
	for _, name := range []string{"missing", agent.KindTitle, agent.KindCompaction} {
		_, err := config(&model{}).WithKind(name)
		if !errors.Is(err, agent.ErrConfig) ||
			!strings.HasSuffix(err.Error(), "(known: general, explore, build, plan)") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKindLimitsTurns keeps the stricter limit.
func TestKindLimitsTurns(t *testing.T) {
	for given, want := range map[int]int{0: 7, 5: 5, 9: 7} {
		cfg := config(&model{})
		cfg.Limits.MaxTurns = given
		cfg.Subagents.Kinds = []agent.Kind{{Name: "k", Description: "d", MaxTurns: 7}}
		if cfg, err := cfg.WithKind("k"); err != nil || cfg.Limits.MaxTurns != want {
			t.Errorf("%d becomes %d, %v", given, cfg.Limits.MaxTurns, err)
		}
	}
}

// TestKindLimits has sub-agents of kinds with limits of their own.
func TestKindLimits(t *testing.T) {
	for requests, kind := range map[int]agent.Kind{
		1: {MaxToolCalls: 1}, 0: {MaxTokens: 1}, // which no request fits
	} {
		kind.Name, kind.Description = "k", "d"
		c := one(object{"agent_type": "k"}, calls(succeeds("a", "x")))
		cfg := treeConfig(c, failing("try"))
		cfg.Subagents.Kinds = []agent.Kind{kind}
		submit(t, newSession(t, cfg), "go")
		c.returned(t, "", 2, 0, "limit")
		if n := c.sent("agent_1"); n != requests {
			t.Errorf("%d requests, want %d", n, requests)
		}
	}
}

// TestKindOfSummaries replaces the kind that summarizes conversations.
func TestKindOfSummaries(t *testing.T) {
	m := &model{answers: []answer{
		{text: strings.Repeat("a word ", 2000)}, {text: "more"}, {text: "the summary"},
	}}
	cfg := config(m)
	cfg.Subagents.Kinds = []agent.Kind{{
		Name: agent.KindCompaction, Description: "d", Instructions: "Be brief.", Model: "small",
	}}
	s := newSession(t, cfg)
	submit(t, s, "go")
	submit(t, s, "go on")
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if req := m.request(t, 2); req.System != "Be brief." || req.Model != "small" {
		t.Errorf("the request is %+v", req)
	}
}

// TestHiddenKinds cannot be started by a model.
func TestHiddenKinds(t *testing.T) {
	m := &model{}
	cfg := config(m)
	cfg.Subagents.MaxDepth = 1
	submit(t, newSession(t, cfg), "go")
	for _, spec := range m.request(t, 0).Tools {
		if spec.Name != "spawn_agent" {
			continue
		}
		for _, name := range []string{"compaction", "title", "summary", "build", "plan"} {
			if strings.Contains(string(spec.Schema), `"`+name+`"`) {
				t.Errorf("%s is offered: %s", name, spec.Schema)
			}
		}
		return
	}
	t.Error("spawn_agent is not offered")
}

// TestTitle has the model write a title, once a session.
func TestTitle(t *testing.T) {
	dir := t.TempDir()
	m := &model{answers: []answer{
		{text: "done"}, {text: " \"The  left\tone\" \nand more"}, {text: "done again"},
	}}
	cfg := config(m)
	cfg.Titles, cfg.Store, cfg.Limits.MaxTurns = true, session.OnDisk(dir), 1
	cfg.Subagents.Kinds = []agent.Kind{{
		Name: agent.KindTitle, Description: "d", Instructions: "Be brief.", Model: "small",
	}}
	s := newSession(t, cfg)
	res := submit(t, s, "find the left one")
	if s.Title() != "The left one" || res.Final != "done" || res.ModelCalls != 1 {
		t.Errorf("%q, %q after %d answers", s.Title(), res.Final, res.ModelCalls)
	}
	req := m.request(t, 1)
	if req.Model != "small" || req.System != "Be brief." || len(req.Tools) > 0 ||
		req.Messages[0].Text() != "find the left one" {
		t.Errorf("the request is %+v", req)
	}
	if err := s.UpdateLimits(func(l *agent.Limits) { l.MaxTurns = 0 }); err != nil {
		t.Fatal(err)
	}
	submit(t, s, "again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := session.Load(dir + "/" + s.ID())
	if err != nil || r.Title != "The left one" || len(m.requests) != 3 {
		t.Errorf("%q, %v, %d requests", r.Title, err, len(m.requests))
	}
}

// TestNoTitle has answers that make none, which is no failure.
func TestNoTitle(t *testing.T) {
	for name, tt := range map[string]struct {
		title  answer
		change func(*agent.Config)
		asked  bool
	}{
		"not wanted": {answer{}, func(c *agent.Config) { c.Titles = false }, false},
		"no text":    {answer{}, func(*agent.Config) {}, true},
		"an error":   {answer{err: &llm.Error{Kind: llm.KindAuth}}, func(*agent.Config) {}, true},
		"no tokens":  {answer{}, func(c *agent.Config) { c.Limits.MaxTokens = 1100 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			done := answer{text: "done", usage: llm.Usage{Input: 500, Output: 500}}
			m := &model{answers: []answer{done, tt.title}}
			cfg := config(m)
			cfg.Titles = true
			tt.change(&cfg)
			s := newSession(t, cfg)
			res := submit(t, s, "go")
			if res.Status != agent.StatusCompleted || s.Title() != "" || (len(m.requests) == 2) != tt.asked {
				t.Errorf("%s, %q, %d requests", res.Status, s.Title(), len(m.requests))
			}
		})
	}
}
