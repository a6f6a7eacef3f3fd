package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestEnvironmentPerSession has sessions of one Agent, each in a directory of its own, with
// sub-agents.
func TestEnvironmentPerSession(t *testing.T) {
	where := tool.Tool{
		ToolSpec: newTool("where", true, nil).ToolSpec, ReadOnly: true, NeedsEnv: true,
		Run: func(_ context.Context, c *tool.Call) (tool.Result, error) {
			return tool.Result{Text: c.Env.Info().WorkDir}, nil
		},
	}
	c := &cast{scripts: map[string][]answer{
		"":        {calls(call("a", "where", nil), spawn("s", nil)), calls(onAgent("wait", "agent_1"))},
		"agent_1": {calls(call("b", "where", nil))},
	}}
	shared := treeConfig(c, where)
	extra := newTool("extra", true, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{}, nil
	})
	a := newAgent(t, shared)
	defer a.Close() //nolint:errcheck // it is of no concern here
	for range 2 {
		c.requests = nil
		e, err := local.New(local.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close() //nolint:errcheck // it is of no concern here
		s, err := a.NewSession(t.Context(), agent.SessionOptions{Env: e, Tools: []tool.Tool{extra}})
		if err != nil {
			t.Fatal(err)
		}
		submit(t, s, "go")
		dir := e.Info().WorkDir
		for name, got := range map[string]string{
			"agent": c.result(t, "", 1, 0), "sub-agent": c.result(t, "agent_1", 1, 0),
		} {
			if got != dir {
				t.Errorf("the %s works in %s, not in %s", name, got, dir)
			}
		}
		first := c.request(t, "", 0)
		if !strings.Contains(first.System, dir) || !slices.Contains(toolNames(first), "extra") {
			t.Errorf("the model got the tools %v and the prompt %s", toolNames(first), first.System)
		}
	}
	c.requests = nil
	if _, err := a.Run(t.Context(), agent.Input{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if names := toolNames(c.request(t, "", 0)); slices.Contains(names, "where") ||
		slices.Contains(names, "extra") {
		t.Errorf("a session without an environment has the tools %v", names)
	}
}
