//go:build !linux

package local

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// Sandboxed returns a *SandboxError if s requires anything, and what Supervised returns otherwise:
// this system has no sandbox.
func Sandboxed(
	ctx context.Context,
	cfg Config,
	h Helper,
	s env.Sandbox,
) (*SupervisedEnvironment, error) {
	if s.Require || len(s.Enforce) > 0 {
		return nil, &SandboxError{Missing: s.Enforce, Reasons: []error{sandbox.ErrUnsupported}}
	}
	return Supervised(ctx, cfg, h)
}
