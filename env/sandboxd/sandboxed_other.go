//go:build !linux

package sandboxd

import (
	"fmt"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// boxed does not exist on this system.
type sandboxedHelper struct{}

func (*sandboxedHelper) wait() (code int, orphans bool) { return exitError, false }

// box starts nothing: this process serves, without a sandbox, or refuses to.
func startSandboxed(text string, _ serveConfig) (*sandboxedHelper, setup, error) {
	want, err := helper.ParseSandbox(text)
	if err != nil {
		return nil, setup{}, fmt.Errorf("--sandbox: %w", err)
	}
	if want.Require || len(want.Enforce) > 0 {
		return nil, setup{refusal: sandbox.ErrUnsupported}, nil
	}
	return nil, setup{noSandbox: sandbox.ErrUnsupported.Error()}, nil
}

func (*setup) joinParent(bool) error { return sandbox.ErrUnsupported }
