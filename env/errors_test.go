package env_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// TestFatalError checks which errors of one file end an operation over many.
func TestFatalError(t *testing.T) {
	cause := errors.New("the user has left")
	live := t.Context()
	ended, cancel := context.WithCancelCause(live)
	cancel(cause)
	missing := &fs.PathError{Op: "stat", Path: "a", Err: fs.ErrNotExist}
	gone := fmt.Errorf("read a: %w", env.ErrGone)
	for name, tt := range map[string]struct {
		ctx  context.Context //nolint:containedctx // of one case
		err  error
		want []error // none means nil
	}{
		"no error":                {ended, nil, nil},
		"of one file":             {live, missing, nil},
		"of one file, at the end": {ended, missing, []error{context.Canceled, cause}},
		"of the end":              {ended, env.ContextError(ended), []error{context.Canceled, cause}},
		"of the environment":      {live, gone, []error{env.ErrGone}},
		"of both":                 {ended, gone, []error{env.ErrGone}},
		"of a closed environment": {live, fs.ErrClosed, []error{fs.ErrClosed}},
		"of an unknown outcome":   {live, env.ErrUnknownOutcome, []error{env.ErrUnknownOutcome}},
	} {
		t.Run(name, func(t *testing.T) {
			err := env.FatalError(tt.ctx, tt.err)
			if (err == nil) != (tt.want == nil) || errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("got %v, which is not %v", err, want)
				}
			}
		})
	}
}
