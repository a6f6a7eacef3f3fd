package local

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// VerifyAs has a program of the helper's look at an environment, and judges it by what a sandbox
// promises.
func VerifyAs(
	ctx context.Context, r env.Runner, argv []string, sandbox *SupervisedEnvironment, host verify.Host,
) (verify.Report, error) {
	return verify.Run(ctx, r, argv, sandbox.expect(host))
}

// SandboxedBy is Sandboxed on a machine that has some mechanisms only.
func SandboxedBy(
	ctx context.Context, cfg Config, h Helper, s env.Sandbox, by ...sandbox.Mechanism,
) (*SupervisedEnvironment, error) {
	return sandboxed(ctx, cfg, h.locate, s, by)
}
