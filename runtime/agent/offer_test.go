package agent_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

func TestOfferedTools(t *testing.T) {
	var n callLog
	needsEnv := n.tool("needs_env", true)
	needsEnv.NeedsEnv = true
	tools := []tool.Tool{
		n.tool("a", true), n.tool("b", true), needsEnv, n.tool("c", true), n.tool("d", true),
	}
	tests := []struct {
		name   string
		policy agent.ToolPolicy
		in     agent.Input
		want   []string
	}{
		{"all but what needs an environment", agent.ToolPolicy{}, agent.Input{}, []string{
			"a", "b", "c", "d",
		}},
		{"none", agent.ToolPolicy{Disabled: true}, agent.Input{}, nil},
		{
			"the policy's",
			agent.ToolPolicy{Allow: []string{"c", "a", "unknown"}},
			agent.Input{},
			[]string{"a", "c"},
		},
		{"the run's", agent.ToolPolicy{}, agent.Input{AllowedTools: []string{"b"}}, []string{"b"}},
		{
			"what both allow",
			agent.ToolPolicy{Allow: []string{"a", "b"}},
			agent.Input{AllowedTools: []string{"b", "c"}},
			[]string{"b"},
		},
		{"an empty list is no tool", agent.ToolPolicy{}, agent.Input{AllowedTools: []string{}}, nil},
		{
			"in the run's order",
			agent.ToolPolicy{},
			agent.Input{ToolOrder: []string{"d", "b"}},
			[]string{"d", "b", "a", "c"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &model{answers: []answer{calls(call("x", "c", nil), call("y", "needs_env", nil))}}
			cfg := config(m, tools...)
			cfg.Policy = tt.policy
			s := newSession(t, cfg)
			tt.in.Text = "go"
			res, err := s.Run(t.Context(), tt.in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, spec := range m.request(t, 0).Tools {
				got = append(got, spec.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("offered tools (-want +got):\n%s", diff)
			}
			for _, c := range res.ToolCalls {
				if want := slices.Contains(tt.want, c.Name); c.Success != want {
					t.Errorf("a call of %s: success %v, %s", c.Name, c.Success, c.Result)
				}
			}
		})
	}
}
