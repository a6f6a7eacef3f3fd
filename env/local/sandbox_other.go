//go:build !linux

package local

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Sandboxed is Supervised, or returns a *SandboxError if s requires a sandbox: this system has
// none.
func Sandboxed(
	ctx context.Context, cfg Config, h remote.Helper, s env.Sandbox,
) (*SupervisedEnvironment, error) {
	if s.Require || len(s.Enforce) > 0 {
		return nil, &SandboxError{Missing: s.Enforce, Reasons: []error{sandbox.ErrUnsupported}}
	}
	return Supervised(ctx, cfg, h)
}
