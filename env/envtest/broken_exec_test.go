package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// execFunc calls Exec with the context of a call.
type execFunc func(cmd env.Command) (env.Result, error)

// execOf returns a breaker that replaces Exec.
func execOf(f func(exec execFunc, cmd env.Command) (env.Result, error)) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.exec = func(ctx context.Context, cmd env.Command) (env.Result, error) {
			exec := func(cmd env.Command) (env.Result, error) { return good.Exec(ctx, cmd) }
			return f(exec, cmd)
		}
	})
}

// commandOf returns a breaker that changes commands.
func commandOf(f func(cmd *env.Command)) breaker {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		f(&cmd)
		return exec(cmd)
	})
}

// resultOf returns a breaker that changes the result of Exec.
func resultOf(f func(res env.Result, err error) (env.Result, error)) breaker {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) { return f(exec(cmd)) })
}

func brokenExec() []breakage {
	return []breakage{
		{"a non-zero exit is an error", resultOf(func(res env.Result, err error) (env.Result, error) {
			if err == nil && res.ExitCode != 0 {
				err = errors.New("exit status")
			}
			return res, err
		}), []string{"exec/exit_codes"}},
		{"a signal is exit code -1", resultOf(func(res env.Result, err error) (env.Result, error) {
			if res.Signal != "" {
				res.ExitCode, res.Signal = -1, ""
			}
			return res, err
		}), []string{"exec/killed_by_its_own_signal"}},
		{"exit code 143 is a timeout", resultOf(func(res env.Result, err error) (env.Result, error) {
			res.TimedOut = res.ExitCode == 143
			return res, err
		}), []string{"exec/fast_signal_death_is_no_timeout"}},
		{"argv[0] is the path of the program", commandOf(func(cmd *env.Command) {
			if path, err := exec.LookPath(cmd.Argv[0]); err == nil {
				cmd.Argv = append([]string{path}, cmd.Argv[1:]...)
			}
		}), []string{"exec/argv_zero"}},
		{"a timeout is exit code 0", resultOf(func(res env.Result, err error) (env.Result, error) {
			if res.TimedOut {
				res = env.Result{}
			}
			return res, err
		}), []string{"kill/timed_out_beats_143"}},
		{"a timeout is an error", resultOf(func(res env.Result, err error) (env.Result, error) {
			if res.TimedOut {
				err = context.DeadlineExceeded
			}
			return res, err
		}), []string{"kill/timeout"}},
		{
			"MaxProcesses is ignored", commandOf(func(cmd *env.Command) {
				if cmd.MaxProcesses > 0 {
					cmd.MaxProcesses, cmd.Timeout = 0, time.Second
				}
			}),
			[]string{"kill/too_many_processes"},
		},
		{"every command has a timeout", commandOf(func(cmd *env.Command) {
			if cmd.Timeout == 0 {
				cmd.Timeout = 10 * time.Millisecond
			}
		}), []string{"kill/no_timeout_without_one"}},
		{"a cancellation is a timeout", resultOf(func(res env.Result, err error) (env.Result, error) {
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				return env.Result{TimedOut: true, ExitCode: 143}, nil
			}
			return res, err
		}), []string{"kill/deadline_of_context_is_cancellation"}},
		{"a cancellation has no cause", resultOf(func(res env.Result, err error) (env.Result, error) {
			if errors.Is(err, context.Canceled) {
				err = context.Canceled
			}
			return res, err
		}), []string{"kill/cancel", "exec/cancelled_before"}},
		{
			"User is ignored", commandOf(func(cmd *env.Command) { cmd.User = "" }),
			[]string{"exec/user"},
		},
		{
			"nobody receives from Interrupt", commandOf(func(cmd *env.Command) { cmd.Interrupt = nil }),
			[]string{"kill/interrupt", "kill/interrupt_is_trapped"},
		},
		{"Interrupt is waited for", alter(func(good env.Environment, a *altered) {
			a.exec = func(ctx context.Context, cmd env.Command) (env.Result, error) {
				res, err := good.Exec(ctx, cmd)
				if cmd.Interrupt != nil {
					select {
					case <-cmd.Interrupt:
					case <-ctx.Done(): // the end of the case
					}
				}
				return res, err
			}
		}), []string{"kill/interrupt_is_not_waited_for"}},
		{"a missing program is code 127", resultOf(func(res env.Result, err error) (env.Result, error) {
			if errors.Is(err, fs.ErrNotExist) {
				return env.Result{ExitCode: 127}, nil
			}
			return res, err
		}), []string{"exec/program_missing"}},
		{"a StartError is another error", resultOf(func(res env.Result, err error) (env.Result, error) {
			if err != nil {
				err = errors.New(err.Error())
			}
			return res, err
		}), []string{
			"exec/program_not_executable", "exec/bad_argv", "exec/bad_vars", "exec/interpreter_missing",
		}},
	}
}

func brokenArguments() []breakage {
	return []breakage{
		{"a login shell runs everything", commandOf(func(cmd *env.Command) {
			cmd.Argv = append([]string{"bash", "-l", "-c", `exec "$@"`, "bash"}, cmd.Argv...)
		}), []string{"exec/no_login_shell"}},
		{"Argv is joined for a shell", commandOf(func(cmd *env.Command) {
			cmd.Argv = []string{"sh", "-c", strings.Join(cmd.Argv, " ")}
		}), []string{"exec/argv_exact", "exec/no_shell"}},
		{"PATH of the environment counts", commandOf(func(cmd *env.Command) {
			if cmd.Argv[0] == "envtest-tool" {
				cmd.Vars = nil
			}
		}), []string{"exec/path_lookup"}},
		{"Dir is ignored", commandOf(func(cmd *env.Command) { cmd.Dir = "" }), []string{
			"exec/dir_given",
			"exec/dir_bad",
		}},
		{"commands run in the root", commandOf(func(cmd *env.Command) {
			if cmd.Dir == "" {
				cmd.Dir = "/"
			}
		}), []string{"exec/program_relative"}},
		{"the first duplicate wins", commandOf(func(cmd *env.Command) {
			var vars []string
			seen := make(map[string]bool)
			for _, v := range cmd.Vars {
				if name, _, _ := strings.Cut(v, "="); !seen[name] {
					seen[name] = true
					vars = append(vars, v)
				}
			}
			cmd.Vars = vars
		}), []string{"exec/vars_duplicates"}},
		{"values of variables are trimmed", commandOf(func(cmd *env.Command) {
			var vars []string
			for _, v := range cmd.Vars {
				vars = append(vars, strings.TrimSpace(v))
			}
			cmd.Vars = vars
		}), []string{"exec/vars"}},
		{"variables stay", stayingVars, []string{"exec/vars_do_not_stay"}},
		{"the base variables are missing", commandOf(func(cmd *env.Command) {
			cmd.Argv = append([]string{"env", "-i"}, append(cmd.Vars, cmd.Argv...)...)
		}), []string{"exec/vars_base"}},
	}
}

func brokenStdin() []breakage {
	return []breakage{
		{"standard input holds something", commandOf(func(cmd *env.Command) {
			if cmd.Stdin == nil {
				cmd.Stdin = strings.NewReader("noise\n")
			}
		}), []string{"exec/stdin_empty"}},
		{"standard input is text", execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
			if cmd.Stdin != nil {
				data, _ := io.ReadAll(cmd.Stdin)
				cmd.Stdin = strings.NewReader(strings.ToValidUTF8(strings.ReplaceAll(string(data), "\x00", ""),
					"?"))
			}
			return exec(cmd)
		}), []string{"exec/stdin", "exec/stdin_large"}},
		{"unread input is an error", execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
			var read atomic.Bool
			if in := cmd.Stdin; in != nil {
				cmd.Stdin = readerFunc(func(p []byte) (int, error) {
					n, err := in.Read(p)
					read.Store(err != nil)
					return n, err
				})
			}
			res, err := exec(cmd)
			if cmd.Stdin != nil && !read.Load() && err == nil {
				err = errors.New("broken pipe")
			}
			return res, err
		}), []string{"exec/stdin_unread"}},
		{"long arguments are cut", commandOf(func(cmd *env.Command) {
			cmd.Argv = slices.Clone(cmd.Argv)
			for i, arg := range cmd.Argv {
				cmd.Argv[i] = arg[:min(len(arg), 32<<10)]
			}
		}), []string{"exec/argv_large", "exec/argv_too_large"}},
		{"busy programs do not start", execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
			if strings.HasSuffix(cmd.Argv[0], "/program-3-3") {
				return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: errors.New("text file busy")}
			}
			return exec(cmd)
		}), []string{"exec/file_just_written"}},
		{"a failed command is tried again", triedAgain, []string{"exec/runs_once"}},
		{"all commands share a buffer", sharedBuffer, []string{"exec/parallel_50"}},
	}
}

func triedAgain(t *testing.T, good env.Environment) env.Environment {
	return alter(func(good env.Environment, a *altered) {
		a.exec = func(ctx context.Context, cmd env.Command) (env.Result, error) {
			res, err := good.Exec(ctx, cmd)
			if err != nil || res.ExitCode == 255 {
				again := env.Command{Argv: cmd.Argv, Dir: cmd.Dir, Timeout: time.Second}
				return good.Exec(context.WithoutCancel(ctx), again)
			}
			return res, err
		}
	})(t, good)
}

func stayingVars(t *testing.T, good env.Environment) env.Environment {
	var mu sync.Mutex
	var kept []string
	return commandOf(func(cmd *env.Command) {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, cmd.Vars...)
		cmd.Vars = slices.Clone(kept)
	})(t, good)
}

func sharedBuffer(t *testing.T, good env.Environment) env.Environment {
	var shared lockedBuffer
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		out := cmd.Stdout
		cmd.Stdout = &shared
		res, err := exec(cmd)
		if out != nil {
			_, _ = io.WriteString(out, shared.take())
		}
		return res, err
	})(t, good)
}

// outputOf returns a breaker that collects the output of each stream and delivers it changed.
func outputOf(f func(out, errs string) (string, string)) breaker {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		var out, errs bytes.Buffer
		stdout, stderr := cmd.Stdout, cmd.Stderr
		cmd.Stdout, cmd.Stderr = &out, &errs
		res, err := exec(cmd)
		o, e := f(out.String(), errs.String())
		if stdout != nil {
			_, _ = io.WriteString(stdout, o)
		}
		if stderr != nil {
			_, _ = io.WriteString(stderr, e)
		}
		return res, err
	})
}

func brokenStreams() []breakage {
	return []breakage{
		{
			"stderr goes to stdout", commandOf(func(cmd *env.Command) { cmd.Stderr = cmd.Stdout }),
			[]string{"stream/separate"},
		},
		{"the last byte is lost", outputOf(func(out, errs string) (string, string) {
			return out[:max(0, len(out)-1)], errs
		}), []string{"stream/both_flooded", "stream/byte_by_byte", "stream/order"}},
		{"newlines are trimmed", outputOf(func(out, errs string) (string, string) {
			return strings.TrimRight(out, "\n"), strings.TrimRight(errs, "\n")
		}), []string{"stream/separate"}},
		{"CRLF becomes LF", outputOf(func(out, errs string) (string, string) {
			return strings.ReplaceAll(out, "\r\n", "\n"), errs
		}), []string{"stream/bytes_exact"}},
		{"output is text", outputOf(func(out, errs string) (string, string) {
			return strings.ToValidUTF8(out, "\uFFFD"), errs
		}), []string{"stream/bytes_exact"}},
		{
			"output is kept in memory",
			outputOf(func(out, errs string) (string, string) { return out, errs }),
			[]string{"stream/huge_output_bounded_memory", "stream/streamed_while_running"},
		},
		{"a kill loses the output", execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
			var out bytes.Buffer
			stdout := cmd.Stdout
			cmd.Stdout = &out
			res, err := exec(cmd)
			if stdout != nil && err == nil && !res.TimedOut {
				_, _ = stdout.Write(out.Bytes())
			}
			return res, err
		}), []string{"kill/output_before_timeout_delivered", "kill/output_before_cancel_delivered"}},
		{"a command needs writers", execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
			if cmd.Stdout == nil || cmd.Stderr == nil {
				return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: fs.ErrInvalid}
			}
			return exec(cmd)
		}), []string{"stream/discarded"}},
		{"writers are compared", execOf(func(exec execFunc, cmd env.Command) (_ env.Result, err error) {
			defer func() {
				if problem := recover(); problem != nil {
					err = fmt.Errorf("%v", problem)
				}
			}()
			if cmd.Stdout != nil && cmd.Stdout == cmd.Stderr {
				cmd.Stderr = cmd.Stdout
			}
			return exec(cmd)
		}), []string{"stream/writers_that_cannot_be_compared"}},
		{"calls of one writer overlap", commandOf(func(cmd *env.Command) {
			if cmd.Stdout != nil && cmd.Stderr != nil {
				cmd.Stdout, cmd.Stderr = writerFunc(cmd.Stdout.Write), writerFunc(cmd.Stderr.Write)
			}
		}), []string{"stream/same_writer"}},
		{"writers are called after the end", lateWriter, []string{"stream/no_call_after_return"}},
		{"the error of a writer is lost", commandOf(func(cmd *env.Command) {
			if out := cmd.Stdout; out != nil {
				cmd.Stdout = writerFunc(func(p []byte) (int, error) { _, _ = out.Write(p); return len(p), nil })
			}
		}), []string{"stream/writer_error"}},
		{"Detached is never set", resultOf(func(res env.Result, err error) (env.Result, error) {
			res.Detached = false
			return res, err
		}), []string{"background/child_holding_pipe"}},
		{"Detached is always set", resultOf(func(res env.Result, err error) (env.Result, error) {
			res.Detached = true
			return res, err
		}), []string{"background/child_without_pipe"}},
	}
}

// lateWriter calls Stdout once more after Exec has returned.
func lateWriter(t *testing.T, good env.Environment) env.Environment {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		res, err := exec(cmd)
		if res.Detached && cmd.Stdout != nil {
			go func() {
				for range 20 { // from before the child has ended until after it
					time.Sleep(50 * time.Millisecond)
					_, _ = fmt.Fprint(cmd.Stdout, "late")
				}
			}()
		}
		return res, err
	})(t, good)
}
