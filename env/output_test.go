package env_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	tests := []struct {
		name                   string
		opts                   env.OutputOptions
		err                    error
		wantStdout, wantStderr string
	}{
		{name: "defaults", wantStdout: "o1 o2 ", wantStderr: "e1 e2 "},
		{name: "combined", opts: env.OutputOptions{Combined: true}, wantStdout: "o1 e1 o2 e2 "},
		{
			name: "limits of their own",
			opts: env.OutputOptions{
				Stdout: env.CaptureOptions{Head: 1, Tail: 1},
				Stderr: env.CaptureOptions{Head: -1, Tail: 2},
			},
			wantStdout: "o ", wantStderr: "2 ",
		},
		{name: "what there was before an error", err: lost, wantStdout: "o1 o2 ", wantStderr: "e1 e2 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := &scripted{}
			var ran env.Command
			e.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
				ran = cmd
				for _, n := range []string{"1 ", "2 "} {
					if _, err := io.WriteString(cmd.Stdout, "o"+n); err != nil {
						t.Error(err)
					}
					if _, err := io.WriteString(cmd.Stderr, "e"+n); err != nil {
						t.Error(err)
					}
				}
				return env.Result{ExitCode: 3}, tt.err
			}
			cmd := env.Command{
				Argv: []string{"x", "y"}, Dir: "d", Vars: []string{"A=b"},
				Stdin: strings.NewReader("in"),
			}
			out, result, err := env.Output(t.Context(), e, cmd, tt.opts)
			if !errors.Is(err, tt.err) || result.ExitCode != 3 {
				t.Errorf("Output gives %+v, %v, want exit code 3, %v", result, err, tt.err)
			}
			if diff := cmp.Diff([]string{tt.wantStdout, tt.wantStderr}, []string{
				string(out.Stdout.Bytes()),
				string(out.Stderr.Bytes()),
			}); diff != "" {
				t.Errorf("stdout and stderr (-want +got):\n%s", diff)
			}
			if same := ran.Stdout == ran.Stderr; same != tt.opts.Combined {
				t.Errorf("the command has the same writer twice: %v, want %v", same, tt.opts.Combined)
			}
			if diff := cmp.Diff(cmd.Argv, ran.Argv); diff != "" || ran.Dir != "d" ||
				ran.Stdin != cmd.Stdin || len(ran.Vars) != 1 {
				t.Errorf("the command that ran is %+v, want %+v", ran, cmd)
			}
		})
	}
}

func TestOutputSpools(t *testing.T) {
	t.Parallel()
	e := &scripted{}
	e.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		_, errOut := cmd.Stdout.Write(bytes.Repeat([]byte("o"), 1000))
		_, errErr := cmd.Stderr.Write(bytes.Repeat([]byte("e"), 2000))
		return env.Result{}, errors.Join(errOut, errErr)
	}
	var stdout, stderr bytes.Buffer
	out, _, err := env.Output(t.Context(), e, env.Command{}, env.OutputOptions{
		Stdout: env.CaptureOptions{Head: 10, Tail: 10, Spool: &stdout},
		Stderr: env.CaptureOptions{Head: 10, Tail: 10, Spool: &stderr},
	})
	if err != nil {
		t.Fatal(err)
	}
	if stdout.Len() != 1000 || stderr.Len() != 2000 {
		t.Errorf("the spools have %d and %d bytes, want 1000 and 2000", stdout.Len(), stderr.Len())
	}
	if out.Stdout.Omitted() != 980 || out.Stderr.Omitted() != 1980 {
		t.Errorf("%d and %d bytes are omitted, want 980 and 1980", out.Stdout.Omitted(),
			out.Stderr.Omitted())
	}
}

// A command with a terminal may have no writer for stderr.
func TestOutputTTY(t *testing.T) {
	t.Parallel()
	for _, combined := range []bool{false, true} {
		e := &scripted{}
		e.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
			if cmd.Stderr != nil {
				return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: fs.ErrInvalid}
			}
			_, err := io.WriteString(cmd.Stdout, "both")
			return env.Result{}, err
		}
		out, _, err := env.Output(t.Context(), e, env.Command{Argv: []string{"x"}, TTY: &env.TTY{}},
			env.OutputOptions{Combined: combined})
		if got := string(out.Stdout.Bytes()); err != nil || got != "both" || out.Stderr.Size() != 0 {
			t.Errorf("combined %t: the captures hold %q and %d bytes, %v", combined, got,
				out.Stderr.Size(), err)
		}
	}
}

func TestOutputRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cmd  env.Command
		opts env.OutputOptions
	}{
		"stdout": {cmd: env.Command{Stdout: io.Discard}},
		"stderr": {cmd: env.Command{Stderr: io.Discard}},
		"combined and limit": {opts: env.OutputOptions{
			Combined: true,
			Stderr:   env.CaptureOptions{Head: 1},
		}},
		"combined and spool": {opts: env.OutputOptions{
			Combined: true,
			Stderr:   env.CaptureOptions{Spool: io.Discard},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &scripted{}
			out, _, err := env.Output(t.Context(), e, tt.cmd, tt.opts)
			var start *env.StartError
			if !errors.As(err, &start) || !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("Output error is %v, want a *StartError that wraps %v", err, fs.ErrInvalid)
			}
			if e.calls > 0 {
				t.Errorf("%d calls, want none", e.calls)
			}
			if out.Stdout.Size() != 0 || out.Stderr.Size() != 0 {
				t.Error("there is output, want none")
			}
		})
	}
}

// scripted runs commands as a Go function.
type scripted struct {
	run   func(ctx context.Context, cmd env.Command) (env.Result, error)
	calls int
}

func (s *scripted) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	s.calls++
	return s.run(ctx, cmd)
}
