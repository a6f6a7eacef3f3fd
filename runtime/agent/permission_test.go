package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// judged runs calls of the tools a and b by rules, and returns the calls that ran, the run's result
// and its events.
func judged(
	t *testing.T, rules *policy.Policy,
	approve func(context.Context, agent.Approval) (agent.Reply, error), answers ...answer,
) (ran []string, res agent.RunResult, sent []event.Data) {
	t.Helper()
	var n callLog
	cfg := config(&model{answers: answers}, n.tool("a", false), n.tool("b", true))
	cfg.Rules, cfg.Approve = rules, approve
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		sent = append(sent, e.Data)
		return nil
	})
	res, err := newSession(t, cfg).Run(t.Context(), agent.Input{Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	return n.calls(), res, sent
}

// states returns the states of a run after the first one.
func states(res agent.RunResult) string {
	var all []string
	for _, tr := range res.Transitions {
		all = append(all, string(tr.To))
	}
	return strings.Join(all, " ")
}

func rulesOf(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(text), "rules")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPermission runs calls that rules allow, deny and ask about.
func TestPermission(t *testing.T) {
	reply := func(v agent.Verdict) func(context.Context, agent.Approval) (agent.Reply, error) {
		return func(context.Context, agent.Approval) (agent.Reply, error) {
			return agent.Reply{Verdict: v, Message: "because"}, nil
		}
	}
	failing := func(context.Context, agent.Approval) (agent.Reply, error) {
		return agent.Reply{}, errors.New("no terminal")
	}
	const running = "preparing model_running tool_running "
	const asking = running + "awaiting_human "
	for _, tt := range []struct {
		name, rules string
		approve     func(context.Context, agent.Approval) (agent.Reply, error)
		ran         string
		states      string
		result      string // of the first call
	}{
		{"allowed", "default: allow", nil, "1 2", running + "model_running completed", ""},
		{
			"denied", "rules: [{permission: a, action: deny}, {permission: b, action: allow}]", nil, "2",
			running + "model_running completed", "is not available",
		},
		{
			"one denied", "default: allow\nrules: [{permission: a, pattern: '*1*', action: deny}]", nil,
			"2", running + "model_running completed", `by the rule "deny a:*1*"`,
		},
		{
			"nobody to ask", "rules: [{permission: b, action: allow}]", nil, "2",
			running + "model_running completed", "who cannot be asked",
		},
		{
			"approved", "rules: [{permission: b, action: allow}]", reply(agent.ApproveOnce), "1 2",
			asking + "tool_running model_running completed", "",
		},
		{
			"refused", "rules: [{permission: b, action: allow}]", reply(agent.Refuse), "",
			asking + "model_running completed", "The reason: because",
		},
		{
			"cannot ask", "rules: [{permission: b, action: allow}]", failing, "",
			asking + "model_running completed", "no terminal",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran, res, _ := judged(t, rulesOf(t, tt.rules), tt.approve,
				calls(call("1", "a", object{"n": 1}), call("2", "b", nil)))
			if got := strings.Join(ran, " "); got != tt.ran {
				t.Errorf("%s ran", got)
			}
			if got := states(res); got != tt.states {
				t.Errorf("states %s", got)
			}
			if got := res.ToolCalls[0].Result; !strings.Contains(got, tt.result) {
				t.Errorf("result %s", got)
			}
		})
	}
}

// TestApproveAlways approves a call once for all of the session, and withdraws that.
func TestApproveAlways(t *testing.T) {
	var n callLog
	asked := 0
	m := &model{answers: []answer{
		calls(call("1", "a", object{"n": 1}), call("2", "a", object{"n": 1})),
		calls(call("3", "a", object{"n": 2})),
		{text: "done"},
		calls(call("4", "a", object{"n": 1})),
	}}
	cfg := config(m, n.tool("a", false))
	cfg.Rules = &policy.Policy{}
	cfg.Approve = func(_ context.Context, a agent.Approval) (agent.Reply, error) {
		asked++
		if len(a.Always) != 1 || a.Tool != "a" || len(a.Steps) != 1 {
			t.Errorf("%+v", a)
		}
		return agent.Reply{Verdict: agent.ApproveAlways}, nil
	}
	s := newSession(t, cfg)
	for i, want := range []int{2, 3} {
		if _, err := s.Run(t.Context(), agent.Input{Text: "go"}); err != nil {
			t.Fatal(err)
		}
		if asked != want {
			t.Errorf("run %d: asked %d times", i, asked)
		}
		s.Revoke()
	}
	if got := n.calls(); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("%q ran", got)
	}
}

// TestRepeatedCallsAsk repeats a call that rules allow.
func TestRepeatedCallsAsk(t *testing.T) {
	one := call("", "a", object{"n": 1})
	for _, tt := range []struct {
		rules string
		asked int
	}{
		{"rules: [{permission: a, action: allow}]", 2},
		{"rules: [{permission: '*', action: allow}]", 0},
		{"rules: [{permission: a, action: allow}, {permission: repeat, pattern: a, action: allow}]", 0},
	} {
		asked := 0
		ran, _, _ := judged(t, rulesOf(t, tt.rules),
			func(_ context.Context, a agent.Approval) (agent.Reply, error) {
				asked++
				if len(a.Steps) != 1 || a.Steps[0].Permission != "repeat" || a.Steps[0].Subject != "a" {
					t.Errorf("%+v", a.Steps)
				}
				return agent.Reply{Verdict: agent.ApproveOnce}, nil
			},
			calls(one, one), calls(call("", "a", object{"n": 2}), one), calls(one), calls(one, one))
		if asked != tt.asked || len(ran) != 7 {
			t.Errorf("%s: asked %d times, %d calls ran", tt.rules, asked, len(ran))
		}
	}
}

// TestApprovalHasATimeLimit asks where nobody answers.
func TestApprovalHasATimeLimit(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	for name, approve := range map[string]func(context.Context, agent.Approval) (agent.Reply, error){
		"gives up": func(ctx context.Context, _ agent.Approval) (agent.Reply, error) {
			<-ctx.Done()
			return agent.Reply{}, ctx.Err()
		},
		"late": func(ctx context.Context, _ agent.Approval) (agent.Reply, error) {
			<-ctx.Done()
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		},
		"never": func(context.Context, agent.Approval) (agent.Reply, error) {
			<-never
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n callLog
			cfg := config(&model{answers: []answer{calls(call("1", "a", nil))}}, n.tool("a", false))
			cfg.Rules, cfg.ApproveTimeout, cfg.Approve = &policy.Policy{}, time.Millisecond, approve
			res, err := newSession(t, cfg).Run(t.Context(), agent.Input{Text: "go"})
			if err != nil || res.Status != agent.StatusCompleted || len(n.calls()) > 0 {
				t.Fatalf("%v, %s, %q ran", err, res.Status, n.calls())
			}
			if got := res.ToolCalls[0].Result; !strings.Contains(got, "nobody answered within 1ms") {
				t.Error(got)
			}
		})
	}
}

// TestApprovalEndsWithTheRun cancels a run that waits for an approval.
func TestApprovalEndsWithTheRun(t *testing.T) {
	var n callLog
	ctx, cancel := context.WithCancel(t.Context())
	cfg := config(&model{answers: []answer{calls(call("1", "a", nil))}}, n.tool("a", false))
	cfg.Rules = &policy.Policy{}
	cfg.Approve = func(ctx context.Context, _ agent.Approval) (agent.Reply, error) {
		cancel()
		<-ctx.Done()
		return agent.Reply{Verdict: agent.ApproveOnce}, nil
	}
	res, _ := newSession(t, cfg).Run(ctx, agent.Input{Text: "go"})
	if res.Status != agent.StatusAborted || len(n.calls()) > 0 {
		t.Errorf("%s, %q ran", res.Status, n.calls())
	}
}

// TestPermissionEvents checks the events about an approval.
func TestPermissionEvents(t *testing.T) {
	_, _, sent := judged(t, rulesOf(t, "rules: [{permission: b, action: allow}]"),
		func(context.Context, agent.Approval) (agent.Reply, error) {
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		}, calls(call("1", "a", nil)))
	var kinds []event.Kind
	for _, d := range sent {
		switch d := d.(type) {
		case event.ToolCallStart, event.ToolCallEnd, event.PermissionReplied:
			kinds = append(kinds, d.Kind())
		case event.PermissionAsked:
			kinds = append(kinds, d.Kind())
			if d.CallID != "1" || d.Tool != "a" || len(d.Parts) != 1 || d.Parts[0].Decision != "ask" {
				t.Errorf("%+v", d)
			}
		}
	}
	if !slices.Equal(kinds, []event.Kind{
		event.KindToolCallStart, event.KindPermissionAsked, event.KindPermissionReplied,
		event.KindToolCallEnd,
	}) {
		t.Errorf("events %q", kinds)
	}
}

// TestKindTightens starts a sub-agent whose kind has rules.
func TestKindTightens(t *testing.T) {
	var n callLog
	c := one(object{"task": "go", "agent_type": "careful"},
		calls(call("1", "a", object{"n": 1}), call("2", "a", object{"n": 2}), call("3", "b", nil)))
	cfg := treeConfig(c, n.tool("a", false), n.tool("b", false), n.tool("hidden", false))
	cfg.Rules = rulesOf(t, "rules: [{permission: b, action: deny}, {permission: '*', action: allow}]")
	cfg.Subagents.Kinds = []agent.Kind{{
		Name: "careful", Description: "does less",
		Rules: rulesOf(t, "rules:\n"+
			"- {permission: a, pattern: '*2*', action: deny}\n"+
			"- {permission: hidden, action: deny}\n- {permission: b, action: allow}"),
	}}
	if _, err := newSession(t, cfg).Run(t.Context(), agent.Input{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if got := n.calls(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%q ran", got)
	}
	if got := toolNames(c.request(t, "agent_1", 0)); slices.Contains(got, "hidden") ||
		slices.Contains(got, "b") || !slices.Contains(got, "a") {
		t.Errorf("the agent was offered %q", got)
	}
	if got := toolNames(c.request(t, "", 0)); !slices.Contains(got, "hidden") {
		t.Errorf("the root was offered %q", got)
	}
}
