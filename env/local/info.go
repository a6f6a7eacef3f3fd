package local

import (
	"path/filepath"
	"runtime"

	"github.com/sandboxagent/sandboxagent/env"
)

// describe collects what Info returns.
func describe(dir string, base variables, j jobs) env.Info {
	info := env.Info{
		Backend:    "local",
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		OSVersion:  osVersion(),
		WorkDir:    filepath.ToSlash(dir),
		Guarantees: guarantees(j),
	}
	info.Shell, info.NoShell = findShell(dir, base.list)
	return info
}
