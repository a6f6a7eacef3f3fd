package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Exit codes. Scripts depend on them; docs/cli.md lists them.
const (
	codeDone          = 0
	codeFailed        = 1
	codeUsage         = 2
	codeLimit         = 3
	codeHuman         = 4
	codeModel         = 5
	codeEnvironment   = 6
	codeTimeout       = 124
	codeExecFailed    = 125
	codeNotExecutable = 126
	codeNotFound      = 127
	codeInterrupted   = 130
	codeBrokenPipe    = 141
	codeTerminated    = 143
)

// runCodes are the exit codes of a run by its status, but for an aborted run, whose cause decides.
var runCodes = map[agent.Status]int{
	agent.StatusCompleted:        codeDone,
	agent.StatusTaskFailed:       codeFailed,
	agent.StatusVerifyFailed:     codeFailed,
	agent.StatusRepeatedFailures: codeFailed,
	agent.StatusGaveUpTime:       codeFailed,
	agent.StatusLimit:            codeLimit,
	agent.StatusAwaitingHuman:    codeHuman,
	agent.StatusModelError:       codeModel,
	agent.StatusContextOverflow:  codeModel,
	agent.StatusEnvironmentError: codeEnvironment,
	agent.StatusInternalError:    codeEnvironment,
	agent.StatusTimedOut:         codeTimeout,
	statusUsage:                  codeUsage,
}

// statusUsage is the status in the result record of a run that did not start because of its flags
// or its configuration.
const statusUsage agent.Status = "usage_error"

// runCode returns the exit code of a run with status. The cause of ctx decides about an aborted
// one.
func runCode(ctx context.Context, status agent.Status) int {
	if status == agent.StatusAborted {
		if code, ok := signalCode(ctx); ok {
			return code
		}
		return codeInterrupted // by an answer to a question
	}
	if code, ok := runCodes[status]; ok {
		return code
	}
	return codeEnvironment
}

// execCode returns the exit code of the command exec for the results of Environment.Exec.
func execCode(ctx context.Context, res env.Result, err error) int {
	var start *env.StartError
	if code, ok := signalCode(ctx); ok && err != nil {
		return code
	}
	switch {
	case errors.Is(context.Cause(ctx), errOutputGone):
		return codeBrokenPipe
	case errors.As(err, &start):
		return startCode(start)
	case res.TimedOut && err == nil:
		return codeTimeout
	case err != nil:
		return codeExecFailed
	}
	return res.ExitCode
}

// startCode returns the exit code for a program that is missing or not executable, or for an
// environment that could not start it.
func startCode(err *env.StartError) int {
	var path *fs.PathError
	switch {
	case errors.As(err.Err, &path) && path.Op == "chdir",
		errors.Is(err, env.ErrReadOnly), errors.Is(err, fs.ErrClosed), errors.Is(err, fs.ErrInvalid),
		errors.Is(err, errors.ErrUnsupported): // the system has no terminals
		return codeExecFailed
	case errors.Is(err, fs.ErrNotExist):
		return codeNotFound
	}
	return codeNotExecutable
}

// toolCode returns the exit code of the command tool.
func toolCode(ctx context.Context, o tool.Outcome) int {
	if !o.Result.IsError {
		return codeDone
	}
	if code, ok := signalCode(ctx); ok {
		return code
	}
	if o.Err != nil {
		switch o.Err.Kind {
		case tool.KindUnknownTool, tool.KindValidation:
			return codeUsage
		case tool.KindEnvironment:
			return codeEnvironment
		}
	}
	return codeFailed
}

// failureCode returns the exit code of a command that failed outside its purpose.
func failureCode(ctx context.Context, command string, err error) int {
	if code, ok := signalCode(ctx); ok {
		return code
	}
	var usage *usageError
	switch {
	case command == "exec", command == "env attach":
		return codeExecFailed
	case errors.As(err, &usage):
		return codeUsage
	}
	return codeEnvironment
}

// signalCode returns the exit code of a program whose context a signal ended.
func signalCode(ctx context.Context) (int, bool) {
	var sig *signalError
	if errors.As(context.Cause(ctx), &sig) {
		return sig.code(), true
	}
	return 0, false
}
