package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// planner is a model that plans, tries to change something meanwhile, and then builds.
func planner(enter bool) *cast {
	var root []answer
	if enter {
		root = append(root, calls(call("e", "plan_enter", nil)))
	}
	root = append(
		root,
		calls(
			call("1", "write_file", object{"file_path": "a", "content": "bad"}),
			call("2", "shell", object{"command": "sh ./run.sh; cat a"}),
			call("3", "own", nil),
			spawn("s", nil), onAgent("wait", "agent_1"),
			call("4", "write_file", object{"file_path": "PLAN.md", "content": "the steps"}),
			call("5", "read_file", object{"file_path": "a"}),
		),
		calls(call("6", "plan_exit", object{"plan": "change a"})),
		calls(call("7", "write_file", object{"file_path": "a", "content": "good"})),
	)
	return &cast{scripts: map[string][]answer{
		"": root,
		"agent_1": {calls(
			call("s1", "write_file", object{"file_path": "PLAN.md", "content": "bad"}),
			call("s2", "shell", object{"command": "sh ./run.sh"}),
			call("s3", "plan_exit", object{"plan": "x"}),
		)},
	}}
}

func TestPlanMode(t *testing.T) {
	for name, tt := range map[string]struct {
		enter bool
		weak  bool // the environment cannot confine commands
	}{
		"from the start": {}, "entered": {enter: true}, "commands not confined": {weak: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a"), "old")
			write(t, filepath.Join(dir, "run.sh"), "echo bad >a; echo bad >new")
			var own callLog
			c := planner(tt.enter)
			cfg := treeConfigIn(t, dir, c, tool.WriteFile(), tool.ReadFile(), tool.Shell(),
				own.tool("own", false))
			if tt.weak {
				cfg.Env = weakEnv{cfg.Env}
			} else {
				cfg.Env = strong(t, cfg.Env)
			}
			cfg.Modes = &agent.Modes{Plan: !tt.enter}
			var asked []string
			cfg.Approve = func(_ context.Context, a agent.Approval) (agent.Reply, error) {
				asked = append(asked, a.Tool+" "+a.Steps[0].Subject)
				if got, _ := os.ReadFile(filepath.Join(dir, "a")); string(got) != "old" {
					t.Errorf("before the approval a is %q", got)
				}
				return agent.Reply{Verdict: agent.ApproveOnce}, nil
			}
			var modes []string
			cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
				if m, ok := e.Data.(event.ModeChanged); ok {
					modes = append(modes, m.Mode)
				}
				return nil
			})
			submit(t, newSession(t, cfg), "go")
			for file, want := range map[string]string{"a": "good", "PLAN.md": "the steps", "new": ""} {
				if got, _ := os.ReadFile(filepath.Join(dir, file)); string(got) != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
			first := 0
			if tt.enter {
				first = 1
				modes = modes[1:]
			}
			if !slices.Equal(asked, []string{"plan_exit change a"}) ||
				!slices.Equal(modes, []string{"build"}) || len(own.calls()) > 0 {
				t.Errorf("asked %q, modes %q, own tool %q", asked, modes, own.calls())
			}
			c.wantOffer(t, first, "plan_exit", "plan_enter", "own")
			c.wantOffer(t, first+2, "plan_enter", "plan_exit")
			c.returned(t, "", first+2, 0, "carry the plan out.\n\nchange a")
			if text := requestText(c.request(t, "", first)); !strings.Contains(text, "in plan mode") {
				t.Errorf("the model is not told: %s", text)
			}
		})
	}
}

// wantOffer checks that a request of the root offers one tool and not others.
func (c *cast) wantOffer(t *testing.T, n int, offered string, others ...string) {
	t.Helper()
	names := toolNames(c.request(t, "", n))
	if !slices.Contains(names, offered) {
		t.Errorf("request %d offers %q, without %s", n, names, offered)
	}
	for _, name := range others {
		if slices.Contains(names, name) {
			t.Errorf("request %d offers %q, with %s", n, names, name)
		}
	}
}

func requestText(r llm.Request) string {
	var b strings.Builder
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			b.WriteString(p.Text)
			if p.ToolResult != nil {
				b.WriteString(p.ToolResult.Text())
			}
		}
	}
	return b.String()
}

// TestPlanWithoutApproval stays in plan mode where nobody can be asked, or the plan is refused.
func TestPlanWithoutApproval(t *testing.T) {
	for _, nobody := range []bool{true, false} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a"), "old")
		c := &cast{scripts: map[string][]answer{"": {
			calls(call("1", "plan_exit", object{"plan": "change a"})),
			calls(call("2", "write_file", object{"file_path": "a", "content": "bad"})),
		}}}
		cfg := configIn(t, dir, c, tool.WriteFile())
		cfg.Modes = &agent.Modes{Plan: true}
		if !nobody {
			cfg.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
				return agent.Reply{Verdict: agent.Refuse, Message: "do less"}, nil
			}
		}
		submit(t, newSession(t, cfg), "go")
		want := "who cannot be asked"
		if !nobody {
			want = "do less"
		}
		c.returned(t, "", 1, 0, want)
		c.returned(t, "", 2, 0, "it was not run")
		if got, _ := os.ReadFile(filepath.Join(dir, "a")); string(got) != "old" {
			t.Errorf("a is %q", got)
		}
	}
}

// TestPlanEnterWithAgents refuses to plan while a sub-agent is open that may change files.
func TestPlanEnterWithAgents(t *testing.T) {
	dir := t.TempDir()
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", nil)), calls(onAgent("wait", "agent_1")),
			calls(call("1", "plan_enter", nil)),
			calls(call("2", "send_input", object{"agent_id": "agent_1", "message": "again"})),
			calls(onAgent("wait", "agent_1")), calls(onAgent("close_agent", "agent_1")),
			calls(call("3", "plan_enter", nil)), calls(spawn("b", nil)),
			calls(onAgent("wait", "agent_2")),
		},
		"agent_2": {calls(call("4", "write_file", object{"file_path": "b", "content": "bad"}))},
	}}
	cfg := treeConfigIn(t, dir, c, tool.WriteFile())
	cfg.Modes = &agent.Modes{}
	submit(t, newSession(t, cfg), "go")
	c.returned(t, "", 3, 0, "the agent agent_1 may change files; close it before you plan")
	c.returned(t, "", 7, 0, "plan mode")
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("the agent of the plan has written a file")
	}
}
