package wrap_test

import (
	"log/slog"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// An environment that one may look at, with git and nothing else, and with a record of every call.
func ExampleApply() {
	inspectOnly := func(e env.Environment) env.Environment {
		return wrap.Apply(e, wrap.Options{
			Logger:   slog.Default(),
			ReadOnly: true,
			Allow: func(cmd env.Command) bool {
				return len(cmd.Argv) == 2 && cmd.Argv[0] == "git" && cmd.Argv[1] == "status" &&
					len(cmd.Vars) == 0
			},
			Vars: &vars.Filter{Mode: vars.Core},
		})
	}
	_ = inspectOnly
}
