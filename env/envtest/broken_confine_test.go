package envtest

import "github.com/sandboxagent/sandboxagent/env"

func brokenConfinements() []breakage {
	return []breakage{
		{
			"Confine is ignored", commandOf(func(cmd *env.Command) { cmd.Confine = nil }),
			[]string{
				"confine/confine_writes", "confine/confine_zero", "confine/confine_terminal",
				"confine/confine_temp",
			},
		},
		{
			"Hide is ignored", commandOf(func(cmd *env.Command) {
				if cmd.Confine != nil {
					confine := *cmd.Confine
					confine.Hide = ""
					cmd.Confine = &confine
				}
			}),
			[]string{"confine/confine_hide"},
		},
	}
}
