package local

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/confine"
)

// Sandboxed is a *SandboxError if s requires anything, and what Supervised gives otherwise: there is no sandbox on Windows.
func Sandboxed(ctx context.Context, cfg Config, h Helper, s env.Sandbox) (*SupervisedEnvironment, error) {
	if s.Require || len(s.Enforce) > 0 {
		return nil, &SandboxError{Missing: s.Enforce, Reasons: []error{confine.ErrNone}}
	}
	return Supervised(ctx, cfg, h)
}
