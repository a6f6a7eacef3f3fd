package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Sandboxed is Supervised with the helper, and everything that it starts, in a sandbox. Without
// s.Require and s.Enforce the environment may have none; its Info reports why. A *SandboxError
// means that this machine is the reason; an error about a path in s is an *fs.PathError or has no
// type. Symlinks in cfg.Dir are resolved.
func Sandboxed(
	ctx context.Context, cfg Config, h remote.Helper, s env.Sandbox,
) (*SupervisedEnvironment, error) {
	return sandboxed(ctx, cfg, helperLocator(ctx, h, cfg.Prepared), s, sandbox.ThisMachine())
}

// sandboxed tries the mechanisms of a machine in their order.
func sandboxed(
	ctx context.Context, cfg Config, locate locator, s env.Sandbox, on sandbox.Machine,
) (e *SupervisedEnvironment, err error) {
	dir, err := workDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("local: working directory: %w", err)
	}
	if cfg.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("local: working directory: %w", pathError("stat", dir, err))
	}
	// An embedded program is read as a whole, beside the planning of the sandbox.
	program := sync.OnceValues(locate)
	go func() { _, _ = program() }()
	defer func() {
		if p, locateErr := program(); locateErr == nil && (e == nil || e.program == nil) {
			p.Close()
		}
	}()
	start := func(plan sandbox.Plan) (env.Info, func() error, error) {
		var err error
		if e, err = startInSandbox(ctx, cfg, program, plan); err != nil {
			return env.Info{}, nil, err
		}
		return e.Info(), e.Close, nil
	}
	none, err := sandbox.Choose(ctx, cfg.Dir, s, nil, on, start)
	switch {
	case err != nil:
		return nil, err
	case none == nil:
		e.program, err = program()
		return e, err
	case s.Require || len(s.Enforce) > 0:
		return nil, &SandboxError{Missing: none.Missing, Reasons: none.Reasons}
	}
	p, err := program()
	if err != nil {
		return nil, &HelperError{Err: err}
	}
	if e, err = supervise(ctx, cfg, p, nil); err == nil {
		e.noSandbox = none.Reason()
	}
	return e, err
}

// startInSandbox starts a helper by a plan.
func startInSandbox(
	ctx context.Context, cfg Config, locate locator, plan sandbox.Plan,
) (*SupervisedEnvironment, error) {
	cfg.Vars = append(plan.Vars(), cfg.Vars...)
	program, err := locate()
	if err != nil {
		return nil, errors.Join(&sandbox.StartFailure{Text: err.Error(), Err: &HelperError{Err: err}},
			plan.Tidy())
	}
	e, err := supervise(ctx, cfg, program, &plan)
	if err != nil {
		err = errors.Join(err, plan.Tidy())
		var helper *HelperError
		if errors.As(err, &helper) {
			return nil, &sandbox.StartFailure{Text: helper.Err.Error(), Err: err}
		}
		return nil, err
	}
	e.plan = &plan
	return e, nil
}
