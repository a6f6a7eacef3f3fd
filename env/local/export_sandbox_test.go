//go:build unix

package local

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env/internal/confine"
)

// SandboxedBy is Sandboxed on a machine that has some mechanisms only.
func SandboxedBy(ctx context.Context, cfg Config, h Helper, s Sandbox, by ...confine.Mechanism) (*SupervisedEnvironment, error) {
	return sandboxed(ctx, cfg, h, s, by)
}
