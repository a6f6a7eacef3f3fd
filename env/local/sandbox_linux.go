package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// Sandboxed is Supervised with the helper, and everything that it starts, in a sandbox. Without
// s.Require and s.Enforce the environment may have none; its Info reports why. A *SandboxError
// means that this machine is the reason; an error about a path in s is an *fs.PathError or has no
// type. Symlinks in cfg.Dir are resolved.
func Sandboxed(
	ctx context.Context,
	cfg Config,
	h Helper,
	s env.Sandbox,
) (*SupervisedEnvironment, error) {
	return sandboxed(ctx, cfg, h.locate, s, sandbox.Mechanisms())
}

// sandboxed tries mechanisms in their order.
func sandboxed(
	ctx context.Context,
	cfg Config,
	find locator,
	s env.Sandbox,
	mechanisms []sandbox.Mechanism,
) (e *SupervisedEnvironment, err error) {
	dir, err := workDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("local: working directory: %w", err)
	}
	if cfg.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("local: working directory: %w", pathError("stat", dir, err))
	}
	find, drop := find.ahead()
	defer drop()
	none, err := sandbox.Choose(
		ctx,
		cfg.Dir,
		s,
		nil,
		mechanisms,
		func(plan sandbox.Plan) (env.Info, func() error, error) {
			var err error
			if e, err = startInSandbox(ctx, cfg, find, plan); err != nil {
				return env.Info{}, nil, err
			}
			return e.Info(), e.Close, nil
		},
	)
	switch {
	case err != nil:
		return nil, err
	case none == nil:
		return e, nil
	case s.Require || len(s.Enforce) > 0:
		return nil, &SandboxError{Missing: none.Missing, Reasons: none.Reasons}
	}
	if e, err = supervise(ctx, cfg, find, nil); err == nil {
		e.bare = none.Why()
	}
	return e, err
}

// startInSandbox starts a helper by a plan.
func startInSandbox(
	ctx context.Context,
	cfg Config,
	find locator,
	plan sandbox.Plan,
) (*SupervisedEnvironment, error) {
	cfg.Vars = append(plan.Vars(), cfg.Vars...)
	e, err := supervise(ctx, cfg, find, &plan)
	if err != nil {
		err = errors.Join(err, plan.Tidy())
		var helper *HelperError
		if errors.As(err, &helper) {
			return nil, &sandbox.StartFailure{Text: helper.Err.Error(), Err: err}
		}
		return nil, err
	}
	e.plan, e.find = &plan, find
	return e, nil
}
