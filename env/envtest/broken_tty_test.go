package envtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// terminalOf returns a breaker that changes commands on terminals, of which it makes copies.
func terminalOf(f func(cmd *env.Command)) breaker {
	return commandOf(func(cmd *env.Command) {
		if cmd.TTY != nil {
			tty := *cmd.TTY
			cmd.TTY = &tty
			f(cmd)
		}
	})
}

// screenOf returns a breaker that collects the output of a terminal and delivers it changed.
func screenOf(f func(out string) string) breaker {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		if cmd.TTY == nil || cmd.Stdout == nil {
			return exec(cmd)
		}
		var out bytes.Buffer
		stdout := cmd.Stdout
		cmd.Stdout = &out
		res, err := exec(cmd)
		_, _ = io.WriteString(stdout, f(out.String()))
		return res, err
	})
}

// ttyResultOf returns a breaker that changes what Exec returns for commands on terminals.
func ttyResultOf(f func(res env.Result, err error) (env.Result, error)) breaker {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		res, err := exec(cmd)
		if cmd.TTY != nil {
			return f(res, err)
		}
		return res, err
	})
}

// endless is a reader that gives what r gives and then blocks until the test ends.
func endless(t *testing.T, r io.Reader) io.Reader {
	silence := readerFunc(func([]byte) (int, error) {
		<-t.Context().Done()
		return 0, io.EOF
	})
	if r == nil {
		return silence
	}
	return io.MultiReader(r, silence)
}

// filtered is a reader that changes each piece of what r gives.
func filtered(r io.Reader, f func(string) string) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		return copy(p, f(string(p[:n]))), err
	})
}

func brokenTerminals() []breakage {
	return []breakage{
		{"terminals are pipes", commandOf(func(cmd *env.Command) {
			cmd.TTY = nil
		}), []string{"tty/is_a_terminal"}},
		{"everything has a terminal", commandOf(func(cmd *env.Command) {
			if cmd.TTY == nil && cmd.Stderr != nil {
				cmd.TTY, cmd.Stderr = new(env.TTY), nil
			}
		}), []string{"tty/is_a_terminal"}},
		{"a terminal has the usual size", terminalOf(func(cmd *env.Command) {
			cmd.TTY.Size = env.TTYSize{}
		}), []string{"tty/size"}},
		{"columns and rows are exchanged", terminalOf(func(cmd *env.Command) {
			cmd.TTY.Size = env.TTYSize{Columns: cmd.TTY.Size.Rows, Rows: cmd.TTY.Size.Columns}
		}), []string{"tty/size"}},
		{
			"nobody receives from Resize", terminalOf(func(cmd *env.Command) { cmd.TTY.Resize = nil }),
			[]string{"tty/resize"},
		},
		{"no size is ignored", resizedWith(func(s env.TTYSize) env.TTYSize {
			return env.TTYSize{Columns: max(s.Columns, 1), Rows: max(s.Rows, 24)}
		}), []string{"tty/resize"}},
		{
			"sizes are lost", resizedWith(func(env.TTYSize) env.TTYSize { return env.TTYSize{} }),
			[]string{"tty/resize"},
		},
		{"Resize is received from for ever", func(t *testing.T, good env.Environment) env.Environment {
			return terminalOf(func(cmd *env.Command) {
				sizes := cmd.TTY.Resize
				go func() {
					for {
						select {
						case <-sizes:
						case <-t.Context().Done():
							return
						}
					}
				}()
			})(t, good)
		}, []string{"tty/resize_is_not_waited_for"}},
		{"Resize is waited for", alter(func(good env.Environment, a *altered) {
			a.exec = func(ctx context.Context, cmd env.Command) (env.Result, error) {
				res, err := good.Exec(ctx, cmd)
				if cmd.TTY != nil && cmd.TTY.Resize != nil {
					select {
					case <-cmd.TTY.Resize:
					case <-ctx.Done(): // the end of the case
					}
				}
				return res, err
			}
		}), []string{"tty/resize_is_not_waited_for"}},
	}
}

func brokenTyping() []breakage {
	return []breakage{
		{"keys that are no characters are lost", terminalOf(func(cmd *env.Command) {
			if in := cmd.Stdin; in != nil {
				cmd.Stdin = filtered(in, func(s string) string { return strings.ReplaceAll(s, "\x03", "") })
			}
		}), []string{"tty/interrupt_key"}},
		{"what is typed comes in the end", terminalOf(func(cmd *env.Command) {
			if in := cmd.Stdin; in != nil {
				var all io.Reader
				cmd.Stdin = readerFunc(func(p []byte) (int, error) {
					if all == nil {
						data, _ := io.ReadAll(in)
						all = bytes.NewReader(data)
					}
					return all.Read(p)
				})
			}
		}), []string{"tty/input_exact"}},
		{"the input of a terminal has no end", func(t *testing.T, good env.Environment) env.Environment {
			return terminalOf(func(cmd *env.Command) { cmd.Stdin = endless(t, cmd.Stdin) })(t, good)
		}, []string{"tty/end_of_input"}},
		{"an unfinished line hides the end", func(t *testing.T, good env.Environment) env.Environment {
			return terminalOf(func(cmd *env.Command) {
				if in := cmd.Stdin; in != nil {
					cmd.Stdin = endless(t, io.MultiReader(in, strings.NewReader("\x04")))
				}
			})(t, good)
		}, []string{"tty/end_of_input"}},
		{"without Stdin the input has no end", func(t *testing.T, good env.Environment) env.Environment {
			return terminalOf(func(cmd *env.Command) {
				if cmd.Stdin == nil {
					cmd.Stdin = endless(t, nil)
				}
			})(t, good)
		}, []string{"tty/no_input"}},
		{"Exec waits for the reader", execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
			res, err := exec(cmd)
			// others may not be read by two at once
			if in, ok := cmd.Stdin.(*io.PipeReader); ok && cmd.TTY != nil {
				_, _ = io.Copy(io.Discard, in)
			}
			return res, err
		}), []string{"tty/input_unread"}},
	}
}

func brokenScreens() []breakage {
	return []breakage{
		{"the end of the screen is lost", screenOf(func(out string) string {
			return out[:max(0, len(out)-1)]
		}), []string{"tty/order"}},
		{"a terminal writes \\n", screenOf(func(out string) string {
			return strings.ReplaceAll(out, "\r\n", "\n")
		}), []string{"tty/output_exact"}},
		{
			"a screen is text", screenOf(func(out string) string { return strings.ToValidUTF8(out, "?") }),
			[]string{"tty/output_exact"},
		},
		{
			"Stderr is ignored", terminalOf(func(cmd *env.Command) { cmd.Stderr = nil }),
			[]string{"tty/stderr_refused"},
		},
		{"a terminal needs a writer", terminalOf(func(cmd *env.Command) {
			if cmd.Stdout == nil {
				cmd.Argv = []string{"sh", "-c", "exit 1"}
			}
		}), []string{"tty/discarded"}},
		{"a terminal has no exit code", ttyResultOf(func(res env.Result, err error) (env.Result, error) {
			res.ExitCode, res.Signal = 0, ""
			return res, err
		}), []string{"tty/exit"}},
		{"a missing program exits", ttyResultOf(func(res env.Result, err error) (env.Result, error) {
			var start *env.StartError
			if errors.As(err, &start) {
				return env.Result{ExitCode: 127}, nil
			}
			return res, err
		}), []string{"tty/start_errors"}},
		{"Detached is never set", ttyResultOf(func(res env.Result, err error) (env.Result, error) {
			res.Detached = false
			return res, err
		}), []string{"tty/child_holding_terminal"}},
		{"Close does nothing for a terminal", alter(func(_ env.Environment, a *altered) {
			a.close = func() error { return nil }
		}), []string{"tty/close_during_exec"}},
	}
}

// resizedWith returns a breaker that changes the sizes that a terminal gets while its command runs.
func resizedWith(f func(env.TTYSize) env.TTYSize) breaker {
	return execOf(func(exec execFunc, cmd env.Command) (env.Result, error) {
		if cmd.TTY == nil || cmd.TTY.Resize == nil {
			return exec(cmd)
		}
		given, changed := cmd.TTY.Resize, make(chan env.TTYSize)
		cmd.TTY = &env.TTY{Size: cmd.TTY.Size, Resize: changed}
		done := make(chan struct{})
		defer close(done)
		go func() {
			for {
				select {
				case size := <-given:
					select {
					case changed <- f(size):
					case <-done:
						return
					}
				case <-done:
					return
				}
			}
		}()
		return exec(cmd)
	})
}
