package wrap_test

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// An environment that one may look at, with git and nothing else where commands cannot be confined,
// and with a record of every call.
func ExampleApply() {
	inspectOnly := func(e env.Environment) env.Environment {
		return wrap.Apply(e, wrap.Options{
			Logger:   slog.Default(),
			ReadOnly: true,
			Check: func(cmd env.Command) error {
				if slices.Equal(cmd.Argv, []string{"git", "status"}) && len(cmd.Vars) == 0 {
					return nil
				}
				return errors.New("only git status is allowed")
			},
			Vars: &vars.Filter{Mode: vars.Core},
		})
	}
	_ = inspectOnly
}
