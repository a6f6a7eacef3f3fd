//go:build !linux

package sandboxd

import (
	"fmt"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// sandboxedHelper is unused on this system.
type sandboxedHelper struct{}

func (*sandboxedHelper) wait() (code int, orphans bool) { return exitError, false }

// startSandboxed starts no helper: this process serves without a sandbox, or refuses to.
func startSandboxed(text string, _ serveConfig) (*sandboxedHelper, setup, error) {
	config, err := helper.ParseSandbox(text)
	if err != nil {
		return nil, setup{}, fmt.Errorf("--sandbox: %w", err)
	}
	if config.Require || len(config.Enforce) > 0 {
		return nil, setup{refusal: sandbox.ErrUnsupported}, nil
	}
	return nil, setup{noSandbox: sandbox.ErrUnsupported.Error()}, nil
}

func (*setup) joinParent(bool) error { return sandbox.ErrUnsupported }
