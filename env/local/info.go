package local

import (
	"path/filepath"
	"runtime"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/proctree"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// describe returns the Info of an environment.
func describe(dir string, base variables, set *proctree.Set) env.Info {
	info := env.Info{
		Backend:   "local",
		OS:        runtime.GOOS,
		Arch:      runtime.GOARCH,
		OSVersion: osVersion(),
		WorkDir:   filepath.ToSlash(dir),
		Guarantees: append(
			set.Guarantees(),
			env.Guarantee{Name: env.AtomicWrite, Strength: env.BestEffort, By: replacedBy},
			env.Guarantee{
				Name: env.Isolation, Strength: env.Absent,
				By: "commands run as this user on this machine",
			},
			sandbox.Confinements(),
		),
	}
	info.Shell, info.NoShell = findShell(dir, base.list)
	return info
}
