package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// ended returns a context that cause ended; nil leaves it alive.
func ended(t *testing.T, cause error) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	if cause != nil {
		cancel(cause)
	}
	return ctx
}

var (
	interrupted = &signalError{os.Interrupt}
	terminated  = &signalError{syscall.SIGTERM}
	hungUp      = &signalError{syscall.SIGHUP}
)

func TestRunCode(t *testing.T) {
	tests := []struct {
		status agent.Status
		cause  error
		want   int
	}{
		{agent.StatusCompleted, nil, 0},
		{agent.StatusTaskFailed, nil, 1},
		{agent.StatusVerifyFailed, nil, 1},
		{agent.StatusRepeatedFailures, nil, 1},
		{agent.StatusGaveUpTime, nil, 1},
		{statusUsage, nil, 2},
		{agent.StatusLimit, nil, 3},
		{agent.StatusAwaitingHuman, nil, 4},
		{agent.StatusModelError, nil, 5},
		{agent.StatusContextOverflow, nil, 5},
		{agent.StatusEnvironmentError, nil, 6},
		{agent.StatusInternalError, nil, 6},
		{agent.StatusTimedOut, agent.ErrTimeLimit, 124},
		{agent.StatusAborted, interrupted, 130},
		{agent.StatusAborted, terminated, 143},
		{agent.StatusAborted, hungUp, 143},
		{agent.StatusAborted, nil, 130},
		{agent.StatusCompleted, interrupted, 0}, // it came too late
		{"unheard of", nil, 6},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%v", tt.status, tt.cause), func(t *testing.T) {
			if got := runCode(ended(t, tt.cause), tt.status); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestExecCode(t *testing.T) {
	start := func(err error) error { return &env.StartError{Argv: []string{"x"}, Err: err} }
	canceled := context.Canceled
	tests := []struct {
		name  string
		res   env.Result
		err   error
		cause error
		want  int
	}{
		{"success", env.Result{}, nil, nil, 0},
		{"own code", env.Result{ExitCode: 3}, nil, nil, 3},
		{"own code 255", env.Result{ExitCode: 255}, nil, nil, 255},
		{"signal", env.Result{ExitCode: 137, Signal: "SIGKILL"}, nil, nil, 137},
		{"timeout", env.Result{ExitCode: 143, Signal: "SIGTERM", TimedOut: true}, nil, nil, 124},
		{"exit code 0 after a timeout", env.Result{TimedOut: true}, nil, nil, 124},
		{"not found", env.Result{}, start(fs.ErrNotExist), nil, 127},
		{"no permission", env.Result{}, start(fs.ErrPermission), nil, 126},
		{"no program", env.Result{}, start(syscall.ENOEXEC), nil, 126},
		{"too long", env.Result{}, start(syscall.E2BIG), nil, 126},
		{"read-only", env.Result{}, start(env.ErrReadOnly), nil, 125},
		{"closed", env.Result{}, start(fs.ErrClosed), nil, 125},
		{
			"malformed",
			env.Result{},
			start(fmt.Errorf("argument 1 has a NUL byte: %w", fs.ErrInvalid)),
			nil, 125,
		},
		{
			"no directory",
			env.Result{},
			start(&fs.PathError{Op: "chdir", Path: "/x", Err: fs.ErrNotExist}),
			nil, 125,
		},
		{"gone", env.Result{}, env.ErrGone, nil, 125},
		{"unknown", env.Result{ExitCode: -1}, env.ErrUnknownOutcome, nil, 125},
		{"output not written", env.Result{}, errors.New("no space left"), nil, 125},
		{"interrupted", env.Result{ExitCode: 143}, canceled, interrupted, 130},
		{"terminated", env.Result{ExitCode: 143}, canceled, terminated, 143},
		{"interrupted before the start", env.Result{}, start(canceled), interrupted, 130},
		{"interrupted too late", env.Result{ExitCode: 4}, nil, interrupted, 4},
		{"reader gone", env.Result{ExitCode: 143}, canceled, errOutputGone, 141},
		{"reader gone, command at its end", env.Result{}, syscall.EPIPE, errOutputGone, 141},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := execCode(ended(t, tt.cause), tt.res, tt.err); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestToolCode(t *testing.T) {
	failed := func(kind tool.ErrorKind) tool.Outcome {
		return tool.Outcome{Result: llm.ToolResult{IsError: true}, Err: &tool.Error{Kind: kind}}
	}
	tests := []struct {
		name    string
		outcome tool.Outcome
		cause   error
		want    int
	}{
		{"ok", tool.Outcome{}, nil, 0},
		{"not found", failed(tool.KindNotFound), nil, 1},
		{"command failed", failed(tool.KindShellExit), nil, 1},
		{"command timed out", failed(tool.KindShellTimeout), nil, 1},
		{"panic", failed(tool.KindPanic), nil, 1},
		{"stopped by --timeout", failed(tool.KindCanceled), nil, 1},
		{"error without a kind", tool.Outcome{Result: llm.ToolResult{IsError: true}}, nil, 1},
		{"bad arguments", failed(tool.KindValidation), nil, 2},
		{"unknown tool", failed(tool.KindUnknownTool), nil, 2},
		{"environment", failed(tool.KindEnvironment), nil, 6},
		{"interrupted", failed(tool.KindCanceled), interrupted, 130},
		{"terminated", failed(tool.KindCanceled), terminated, 143},
		{"interrupted too late", tool.Outcome{}, interrupted, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := toolCode(ended(t, tt.cause), tt.outcome); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestFailureCode(t *testing.T) {
	other := errors.New("something else")
	tests := []struct {
		command string
		err     error
		cause   error
		want    int
	}{
		{"run", usagef("no"), nil, 2},
		{"run", fmt.Errorf("wrapped: %w", usagef("no")), nil, 2},
		{"run", other, nil, 6},
		{"tool", usagef("no"), nil, 2},
		{"tool", other, nil, 6},
		{"demo", other, nil, 6},
		{"", usagef("no"), nil, 2},
		{"exec", usagef("no"), nil, 125},
		{"exec", other, nil, 125},
		{"exec", other, interrupted, 130},
		{"run", other, terminated, 143},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%v/%v", tt.command, tt.err, tt.cause), func(t *testing.T) {
			if got := failureCode(ended(t, tt.cause), tt.command, tt.err); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
