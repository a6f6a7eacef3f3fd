//go:build !linux

package sandboxd

import (
	"fmt"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// boxed does not exist on this system.
type boxed struct{}

func (*boxed) wait() (code int, orphans bool) { return exitError, false }

// box starts nothing: this process serves, without a sandbox, or refuses to.
func box(text string, _ serving) (*boxed, surroundings, error) {
	want, err := helper.ParseBox(text)
	if err != nil {
		return nil, surroundings{}, fmt.Errorf("--sandbox: %w", err)
	}
	if want.Require || len(want.Enforce) > 0 {
		return nil, surroundings{refusal: sandbox.ErrUnsupported}, nil
	}
	return nil, surroundings{bare: sandbox.ErrUnsupported.Error()}, nil
}

func (*surroundings) arrive(bool) error { return sandbox.ErrUnsupported }
