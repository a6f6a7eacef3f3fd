package local

import (
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Helper says which program supervises. The zero value is the one that "make build" embeds, where
// there is one for this platform; it is kept in the user's cache directory.
type Helper struct {
	// Path is a program that calls sandboxd.Main, such as the caller's own one.
	Path string
	// Args are arguments of that program that come before those that it hands to sandboxd.Main.
	Args []string
}

// HelperError means that there is no helper to be had: none is embedded for this platform, it
// cannot be stored, the system does not execute it, perhaps since the file system is mounted so, or
// it is another program. Another Helper may do.
type HelperError struct {
	Err error
}

func (e *HelperError) Error() string { return "local: helper: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HelperError) Unwrap() error { return e.Err }

// SupervisedEnvironment is this machine by way of a process of its own, the helper. It starts the
// commands, finds more of what they leave behind than the caller's process could, and kills it all
// when the caller's process is gone, however that ended. If the helper itself ends before Close,
// calls give env.ErrGone, and env.ErrUnknownOutcome for a command that may have run. It is made by
// Supervised.
//
// It implements env.Environment, search.Searcher and env.MultiReader. Its Kill kills everything
// that it started, without any grace, and returns when that is dead. It is for a program that has
// to end at once: commands in progress end with SIGKILL, and Close remains to be called.
type SupervisedEnvironment struct {
	remote
	helper  *helperProcess
	closing sync.Once
	// bare, if set, is why there is no sandbox around an environment that should have one.
	bare string
	// plan is what the sandbox was made by; nil if there is none. find finds the helper's program.
	plan *sandbox.Plan
	find func() (*sandbox.Program, error)
}

// Info implements env.Environment.
func (e *SupervisedEnvironment) Info() env.Info {
	info := e.remote.Info()
	for i, g := range info.Guarantees {
		if g.Promise == env.Isolation && e.bare != "" {
			info.Guarantees[i].By += "; there is no sandbox: " + e.bare
		}
	}
	return info
}

var (
	_ env.Environment = (*SupervisedEnvironment)(nil)
	_ search.Searcher = (*SupervisedEnvironment)(nil)
	_ env.MultiReader = (*SupervisedEnvironment)(nil)
)

// remote is what a helper serves.
type remote interface {
	env.Environment
	search.Searcher
	env.MultiReader
	Kill() error
}
