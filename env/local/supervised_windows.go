package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Supervised returns errors.ErrUnsupported in a *HelperError: on Windows the job object of an
// environment made by New kills its processes when this process ends.
func Supervised(context.Context, Config, remote.Helper) (*SupervisedEnvironment, error) {
	return nil, &HelperError{Err: fmt.Errorf("supervision on Windows: %w; New does without",
		errors.ErrUnsupported)}
}

// Close implements env.Environment.
func (e *SupervisedEnvironment) Close() error { return e.Served.Close() }

// helperProcess is unused on this system.
type helperProcess struct{}
