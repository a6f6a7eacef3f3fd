package local

import (
	"context"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// VerifyAs runs the probe in r and compares its report with the guarantees of sandbox.
func VerifyAs(
	ctx context.Context, r env.Runner, argv []string, sandbox *SupervisedEnvironment, host verify.Host,
) (verify.Report, error) {
	return verify.Run(ctx, r, argv, sandbox.expect(host))
}

// SandboxedBy is Sandboxed on a machine that has these mechanisms only. Only $HOME has secrets to
// hide, so that no account of the machine affects a test.
func SandboxedBy(
	ctx context.Context, cfg Config, h remote.Helper, s env.Sandbox, by ...sandbox.Mechanism,
) (*SupervisedEnvironment, error) {
	on := sandbox.Machine{Mechanisms: by, Homes: []string{os.Getenv("HOME")}}
	return sandboxed(ctx, cfg, helperLocator(ctx, h, nil), s, on)
}
