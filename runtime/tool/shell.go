package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
)

// Shell returns the tool shell.
func Shell() Tool {
	return builtin(Tool{
		ToolSpec: spec("shell", `
			"command": {"type": "string", "minLength": 1,
				"description": "The command line or script for the shell."},
			"timeout_ms": {"type": "integer", "minimum": 1,
				"description": "Kill the command after this many milliseconds."},
			"description": {"type": "string",
				"description": "What the command does, in a few words, for people who watch."}`,
			"command"),
		NeedsEnv: true,
		Class:    policy.ClassShell,
		Subjects: subjects(func(a shellArgs) []string { return []string{a.Command} }),
		Terminal: true,
		Limit:    Limit{Chars: 30_000, Lines: 256, Keep: KeepHeadTail},
	}, shell)
}

type shellArgs struct {
	Command string  `json:"command"`
	Timeout integer `json:"timeout_ms"`
}

func shell(ctx context.Context, call *Call, args shellArgs) (Result, error) {
	info := call.Env.Info()
	switch {
	case strings.TrimSpace(args.Command) == "":
		return Result{}, errorf(KindValidation, "command is empty")
	case strings.ContainsRune(args.Command, 0):
		return Result{}, errorf(KindValidation, "command holds a NUL character, which no shell takes")
	case call.Redactor != nil && redact.HasMarker(args.Command):
		return Result{}, errorf(KindValidation, "the command did not run: it has a marker in place of a "+
			"secret; use the variable that holds the secret, or edit_file, which puts the secret back")
	case len(info.Shell) == 0:
		return Result{}, errorf(KindOther, "this environment has no shell: %s", info.NoShell)
	}
	timeout, remark := commandTimeout(call, args.Timeout)
	result, err := call.Env.Exec(ctx, env.Command{
		Argv:   append(slices.Clone(info.Shell), args.Command),
		Stdout: call.Out, Stderr: call.Out,
		Timeout: timeout, MaxProcesses: call.MaxProcesses,
	})
	var start *env.StartError
	switch {
	case errors.As(err, &start) && ctx.Err() == nil:
		kind, _ := describe(err)
		return Result{}, errorf(kind, "the command did not run: %w", err)
	case err != nil:
		return Result{}, err
	}
	if result.Detached {
		remark += "[A background process of this command still runs; its further output is discarded.]\n"
	}
	elapsed := result.Elapsed.Round(time.Millisecond)
	var end string
	switch {
	case result.TimedOut:
		return Result{}, errorf(KindShellTimeout, "[The command was killed, with all processes that it "+
			"had started, because it ran for more than %d ms. Its output until then is above. If it needs "+
			"longer, call shell again with a larger timeout_ms, at most %d.]\n%s",
			timeout.Milliseconds(), call.MaxTimeout.Milliseconds(), remark)
	case result.TooManyProcesses:
		end = fmt.Sprintf("killed for having more than %d processes at once, exit code %d, after",
			call.MaxProcesses, result.ExitCode)
	case result.OutOfMemory:
		end = fmt.Sprintf("killed for using too much memory, exit code %d, after", result.ExitCode)
	case result.Signal != "":
		end = fmt.Sprintf("killed by %s, exit code %d, after", result.Signal, result.ExitCode)
	default:
		end = fmt.Sprintf("exit code %d after", result.ExitCode)
	}
	end = fmt.Sprintf("[%s %s]\n%s", end, elapsed, remark)
	if result.ExitCode != 0 || result.OutOfMemory || result.TooManyProcesses || result.Signal != "" {
		e := errorf(KindShellExit, "%s", end)
		e.ExitCode = &result.ExitCode
		return Result{}, e
	}
	return Result{Text: end}, nil
}

// commandTimeout returns the timeout of a command, and a remark to the model if it is not the
// requested one.
func commandTimeout(call *Call, requested integer) (timeout time.Duration, remark string) {
	if requested == 0 {
		return min(call.DefaultTimeout, call.MaxTimeout), ""
	}
	if most := call.MaxTimeout.Milliseconds(); int64(requested) > most {
		return call.MaxTimeout, fmt.Sprintf("[timeout_ms %d is more than the maximum; %d was used.]\n",
			requested, most)
	}
	return time.Duration(requested) * time.Millisecond, ""
}
