package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// TestRetries has environments that fail once or always.
func TestRetries(t *testing.T) {
	pauses := retryPauses
	retryPauses = []time.Duration{0, 0}
	defer func() { retryPauses = pauses }()
	lost := fmt.Errorf("read: %w", env.ErrUnknownOutcome)
	busy := &fs.PathError{Op: "write", Path: "f", Err: env.ErrBusy}
	for name, tt := range map[string]struct {
		class    string
		readOnly bool
		err      error
		output   string
		fails    int
		runs     int
	}{
		"lost connection":        {policy.ClassRead, true, lost, "", 1, 2},
		"in a search":            {policy.ClassSearch, true, lost, "", 2, 3},
		"for good":               {policy.ClassRead, true, lost, "", 9, 3},
		"after a part":           {policy.ClassRead, true, lost, "half", 1, 1},
		"of a command":           {policy.ClassShell, false, lost, "", 1, 1},
		"of a write":             {policy.ClassWrite, false, lost, "", 1, 1},
		"busy file":              {policy.ClassWrite, false, busy, "", 1, 2},
		"busy file that is read": {policy.ClassRead, true, busy, "", 1, 2},
		"busy, of two files":     {policy.ClassWrite, false, busy, "", 1, 1},
		"busy for a command":     {policy.ClassShell, false, busy, "", 1, 1},
		"gone":                   {policy.ClassRead, true, env.ErrGone, "", 1, 1},
		"closed":                 {policy.ClassRead, true, fs.ErrClosed, "", 1, 1},
		"another failure":        {policy.ClassRead, true, fs.ErrNotExist, "", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			r := registry(t, Tool{
				ToolSpec: llm.ToolSpec{Name: "t", Schema: []byte(`{"type": "object"}`)},
				Class:    tt.class, ReadOnly: tt.readOnly, NeedsEnv: true,
				Subjects: func(json.RawMessage) []string {
					if strings.Contains(name, "two files") {
						return []string{"a", "b"}
					}
					return []string{"a"}
				},
				Run: func(_ context.Context, c *Call) (Result, error) {
					if runs++; runs <= tt.fails {
						_, _ = io.WriteString(c.Out, tt.output)
						return Result{}, tt.err
					}
					return Result{Text: "fine"}, nil
				},
			})
			e, _ := here(t, nil)
			o := r.Run(t.Context(), Scope{Env: e}, llm.ToolCall{ID: "a", Name: "t", Arguments: "{}"})
			retries := 0
			for _, s := range o.Steps {
				if s == event.StepRetry {
					retries++
				}
			}
			ended := tt.runs > tt.fails
			if runs != tt.runs || retries != runs-1 || o.Result.IsError == ended ||
				ended && o.Result.Text() != "fine" || !ended && !errors.Is(o.Err, tt.err) {
				t.Errorf("%d runs, steps %v, %q", runs, o.Steps, o.Result.Text())
			}
			if !slices.Contains(o.Steps, event.StepExecute) {
				t.Errorf("steps %v", o.Steps)
			}
		})
	}
}

// TestRetryEndsWithItsContext has a call that is canceled in the pause.
func TestRetryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	r := registry(t, Tool{
		ToolSpec: llm.ToolSpec{Name: "t", Schema: []byte(`{"type": "object"}`)}, Class: policy.ClassRead,
		ReadOnly: true, NeedsEnv: true,
		Run: func(context.Context, *Call) (Result, error) {
			runs++
			cancel()
			return Result{}, env.ErrUnknownOutcome
		},
	})
	e, _ := here(t, nil)
	o := r.Run(ctx, Scope{Env: e}, llm.ToolCall{ID: "a", Name: "t", Arguments: "{}"})
	if runs != 1 || !o.Result.IsError {
		t.Errorf("%d runs, %q", runs, o.Result.Text())
	}
}
