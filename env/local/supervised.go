package local

import (
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Helper is the program of the helper. The zero value is the one that "make build" embeds for this
// platform; it is stored in the user's cache directory.
type Helper struct {
	// Path is a program that calls sandboxd.Main; the running program may be one.
	Path string
	// Args are arguments of that program that come before those that it hands to sandboxd.Main.
	Args []string
}

// HelperError is the reason why a helper did not start: none is embedded for this platform, it
// cannot be stored, the system does not execute it (its file system may be mounted noexec), or it
// is another program. Another Helper may work.
type HelperError struct {
	Err error
}

func (e *HelperError) Error() string { return "local: helper: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HelperError) Unwrap() error { return e.Err }

// SupervisedEnvironment runs commands on this machine through a helper process. The
// helper finds more of the processes that commands leave than the caller's process could, and kills
// all of them when the caller's process ends, however it ends. If the helper ends before Close,
// calls return env.ErrGone, and env.ErrUnknownOutcome for a command that may have run. Supervised
// and Sandboxed make it.
//
// It implements env.Environment, search.Searcher and env.MultiReader. Kill kills everything that
// the environment started, without grace, and returns when it is dead: commands in progress end
// with SIGKILL. It is for a program that has to exit at once; call Close afterwards.
type SupervisedEnvironment struct {
	remote
	helper  *helperProcess
	closing sync.Once
	// noSandbox, if set, is why the environment has no sandbox although one was requested.
	noSandbox string
	// plan and program are those of the sandboxed helper; nil without a sandbox.
	plan    *sandbox.Plan
	program *sandbox.Program
}

// Info implements env.Environment.
func (e *SupervisedEnvironment) Info() env.Info {
	info := e.remote.Info()
	for i, g := range info.Guarantees {
		if g.Name == env.Isolation && e.noSandbox != "" {
			info.Guarantees[i].By += "; no sandbox: " + e.noSandbox
		}
	}
	return info
}

var (
	_ env.Environment = (*SupervisedEnvironment)(nil)
	_ search.Searcher = (*SupervisedEnvironment)(nil)
	_ env.MultiReader = (*SupervisedEnvironment)(nil)
)

// remote is the client of a helper.
type remote interface {
	env.Environment
	search.Searcher
	env.MultiReader
	Kill() error
}
