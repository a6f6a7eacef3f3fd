package local

import (
	"runtime"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// HelperError is the reason why a helper did not start: a *remote.MissingHelperError, or it cannot
// be stored, the system does not execute it (its file system may be mounted noexec), or it is
// another program. Another remote.Helper may work: sandboxd.Self() makes the running program its
// own.
type HelperError struct {
	Err error
}

func (e *HelperError) Error() string { return "local: helper: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HelperError) Unwrap() error { return e.Err }

// Prepared is the embedded helper, read and verified ahead of the environment that uses it.
type Prepared struct{ file *helper.Preparation }

// Prepare starts to read and verify the helper that Supervised or Sandboxed with h would take, if
// it is an embedded one that is stored already, and returns at once. The environment of the first
// Config with the result has it. The caller closes the result.
func Prepare(h remote.Helper) *Prepared {
	p := &Prepared{}
	if program, err := helper.Find(runtime.GOOS, runtime.GOARCH); err == nil && h.Binary == "" {
		p.file = program.Prepare(h.Cache)
	}
	return p
}

// take returns the file, once, or nil.
func (p *Prepared) take() *helper.Installed {
	if p == nil || p.file == nil {
		return nil
	}
	return p.file.Installed()
}

// Close closes a helper that no environment has. It is idempotent, and a nil Prepared does nothing.
func (p *Prepared) Close() {
	if i := p.take(); i != nil {
		_ = i.Close() // it was only read
	}
}

// SupervisedEnvironment runs commands on this machine through a helper process. The
// helper finds more of the processes that commands leave than the caller's process could, and kills
// all of them when the caller's process ends, however it ends. If the helper ends before Close,
// calls return env.ErrGone, and env.ErrUnknownOutcome for a command that may have run. Supervised
// and Sandboxed make it.
//
// Its methods are those of remote.Served.
type SupervisedEnvironment struct {
	remote.Served
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
	info := e.Served.Info()
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
