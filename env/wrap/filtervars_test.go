package wrap_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

func TestFilterVars(t *testing.T) {
	t.Parallel()
	pass := []string{"Q_TOKEN"}
	changed := &vars.Filter{Pass: pass}
	tests := []struct {
		name   string
		goos   string
		filter *vars.Filter
		want   []string
	}{
		{"nil", "linux", nil, []string{"A=1", "A=2", "Path=x"}},
		{"all", "linux", &vars.Filter{Mode: vars.All}, []string{
			"A=1", "X_TOKEN=x", "A=2", "Path=x",
			"Q_TOKEN=q",
		}},
		{"none", "linux", &vars.Filter{Mode: vars.None}, []string{}},
		{"core", "linux", &vars.Filter{Mode: vars.Core}, []string{}},
		{
			"core on the system of the environment", "windows", &vars.Filter{Mode: vars.Core},
			[]string{"Path=x"},
		},
		{
			"core on another system", "windows", &vars.Filter{Mode: vars.Core, OS: "linux"},
			[]string{},
		},
		{"changed by the caller", "linux", changed, []string{"A=1", "A=2", "Path=x", "Q_TOKEN=q"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inner := newScriptedEnv(t)
			inner.goos = tt.goos
			var got []string
			inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
				got = slices.Clone(cmd.Vars)
				clear(cmd.Vars) // The environment may change its slice.
				return env.Result{ExitCode: 5}, nil
			}
			e := wrap.FilterVars(inner, tt.filter)
			if tt.filter == changed {
				changed.Mode, pass[0] = vars.None, "OTHER"
			}
			vars := []string{"A=1", "X_TOKEN=x", "A=2", "Path=x", "Q_TOKEN=q"}
			before := slices.Clone(vars)
			result, err := e.Exec(t.Context(), env.Command{Argv: []string{"x"}, Vars: vars})
			if err != nil || result.ExitCode != 5 {
				t.Errorf("Exec gives %+v, %v, want exit code 5, nil", result, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, vars); diff != "" {
				t.Errorf("the caller's slice was altered:\n%s", diff)
			}
		})
	}
}
