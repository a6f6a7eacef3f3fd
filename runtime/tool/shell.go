package tool

import (
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed shell.md
var shellText string

// Shell is the tool shell.
func Shell() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "shell", Description: shellText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"command": {"type": "string", "minLength": 1, "description": "The command line or script for the shell."},
				"timeout_ms": {"type": "integer", "minimum": 1, "description": "After how many milliseconds the command is killed."},
				"description": {"type": "string", "description": "What the command does, in a few words, for people who watch."}
			},
			"required": ["command"],
			"additionalProperties": false
		}`)},
		NeedsEnv: true,
		Terminal: true,
		Limit:    Limit{Chars: 30_000, Lines: 256, Keep: KeepHeadTail},
		Run:      shell,
	}
}

func shell(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Command string  `json:"command"`
		Timeout integer `json:"timeout_ms"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	info := call.Env.Info()
	switch {
	case strings.TrimSpace(args.Command) == "":
		return Result{}, errorf(KindValidation, "command is empty")
	case strings.ContainsRune(args.Command, 0):
		return Result{}, errorf(KindValidation, "command holds a NUL character, which no shell takes")
	case len(info.Shell) == 0:
		return Result{}, errorf(KindOther, "this environment has no shell: %s", info.NoShell)
	}
	timeout, note := commandTimeout(call, args.Timeout)
	result, err := call.Env.Exec(ctx, env.Command{
		Argv:   append(slices.Clone(info.Shell), args.Command),
		Stdout: call.Out, Stderr: call.Out,
		Timeout: timeout,
	})
	if err != nil {
		return Result{}, commandError(ctx, err)
	}
	if result.Detached {
		note += "[A background process of this command runs on; what it still writes is not seen.]\n"
	}
	elapsed := result.Elapsed.Round(time.Millisecond)
	switch {
	case result.TimedOut:
		return Result{}, &Error{Kind: KindShellTimeout, Message: fmt.Sprintf(
			"[The command was killed, with all processes it had started, because it ran for more than %d "+
				"ms. What it wrote until then is above. "+
				"If it needs longer, call shell again with a larger timeout_ms, at most %d.]\n%s",
			timeout.Milliseconds(), call.MaxTimeout.Milliseconds(), note)}
	case result.OutOfMemory:
		return Result{}, &Error{
			Kind: KindShellExit,
			Message: fmt.Sprintf("[killed for using too much memory, exit code %d, after %s]\n%s",
				result.ExitCode, elapsed, note),
		}
	case result.Signal != "":
		return Result{}, &Error{
			Kind: KindShellExit,
			Message: fmt.Sprintf("[ended by %s, exit code %d, after %s]\n%s", result.Signal, result.ExitCode,
				elapsed, note),
		}
	case result.ExitCode != 0:
		return Result{}, &Error{Kind: KindShellExit, Message: fmt.Sprintf("[exit code %d after %s]\n%s",
			result.ExitCode, elapsed, note)}
	}
	return Result{Text: fmt.Sprintf("[exit code 0 after %s]\n%s", elapsed, note)}, nil
}

// commandTimeout returns how long a command may take, and what the model must know about it.
func commandTimeout(call *Call, asked integer) (timeout time.Duration, note string) {
	if asked == 0 {
		return min(call.DefaultTimeout, call.MaxTimeout), ""
	}
	if most := call.MaxTimeout.Milliseconds(); int64(asked) > most {
		return call.MaxTimeout, fmt.Sprintf("[timeout_ms %d is more than is allowed; %d was used.]\n",
			asked, most)
	}
	return time.Duration(asked) * time.Millisecond, ""
}

// commandError tells of a command that could not be started or observed.
func commandError(ctx context.Context, err error) error {
	var start *env.StartError
	if errors.As(err, &start) && ctx.Err() == nil {
		kind, _ := describe(err)
		return errorf(kind, "the command did not run: %w", err)
	}
	return err
}
