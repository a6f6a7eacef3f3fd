package tool

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

func TestShell(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name   string
		args   args
		result env.Result
		err    error
		kind   ErrorKind
		want   string
	}{
		{
			"ok",
			args{"command": "x"},
			env.Result{Elapsed: 1234567 * time.Microsecond},
			nil, "", "out\nerr\n[exit code 0 after 1.235s]\n",
		},
		{
			"failure",
			args{"command": "x", "description": "try"},
			env.Result{ExitCode: 3, Elapsed: 5 * ms},
			nil, KindShellExit, "out\nerr\n[exit code 3 after 5ms]\n",
		},
		{
			"signal",
			args{"command": "x"},
			env.Result{ExitCode: 137, Signal: "SIGKILL", Elapsed: 5 * ms},
			nil, KindShellExit, "out\nerr\n[killed by SIGKILL, exit code 137, after 5ms]\n",
		},
		{"memory", args{"command": "x"}, env.Result{
			ExitCode: 137, Signal: "SIGKILL", OutOfMemory: true, Elapsed: 5 * ms,
		}, nil, KindShellExit, "out\nerr\n[killed for using too much memory, exit " +
			"code 137, after 5ms]\n"},
		{"processes", args{"command": "x"}, env.Result{
			TooManyProcesses: true, Elapsed: 5 * ms,
		}, nil, KindShellExit, "out\nerr\n[killed for having more than 0 processes at once, exit " +
			"code 0, after 5ms]\n"},
		{"timeout", args{"command": "x", "timeout_ms": 50}, env.Result{
			TimedOut: true, ExitCode: 143, Elapsed: 60 * ms,
		}, nil, KindShellTimeout, "out\nerr\n[The command was killed, with all processes that it had " +
			"started, because it ran for more than 50 ms. Its output until then is " +
			"above. If it needs longer, call shell again with a larger timeout_ms, at most 600000.]\n"},
		{
			"detached",
			args{"command": "x"},
			env.Result{Detached: true, Elapsed: 5 * ms},
			nil, "",
			"out\nerr\n[exit code 0 after 5ms]\n" +
				"[A background process of this command still runs; its further output is discarded.]\n",
		},
		{
			"cap",
			args{"command": "x", "timeout_ms": 9999999},
			env.Result{Elapsed: 5 * ms},
			nil, "",
			"out\nerr\n[exit code 0 after 5ms]\n[timeout_ms 9999999 is more than the maximum; 600000 was " +
				"used.]\n",
		},
		{"shell not found", args{"command": "x"}, env.Result{}, &env.StartError{
			Argv: []string{"sh"}, Err: env.ErrNotDir,
		}, KindOther, "out\nerr\nthe command did not run: start sh: not a directory"},
		{
			"gone",
			args{"command": "x"},
			env.Result{},
			env.ErrGone, KindEnvironment,
			"out\nerr\nthe environment no longer exists: the environment is gone",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(nil)
			m.exec = func(_ context.Context, c env.Command) (env.Result, error) {
				_, _ = io.WriteString(c.Stdout, "\x1b[1mout\x1b[0m\r\n")
				_, _ = io.WriteString(c.Stderr, "err\n")
				return tt.result, tt.err
			}
			o := use(t, m, "shell", tt.args)
			checkText(t, o, tt.kind, tt.want)
			if !strings.HasPrefix(string(o.Output.Inline), "\x1b[1mout\x1b[0m\r\nerr\n") {
				t.Errorf("the bytes of the output are not kept: %q", o.Output.Inline)
			}
		})
	}
}

func TestShellCommand(t *testing.T) {
	var got env.Command
	m := newMemory(nil)
	m.exec = func(_ context.Context, c env.Command) (env.Result, error) {
		got = c
		return env.Result{}, nil
	}
	for _, tt := range []struct {
		name  string
		scope Scope
		args  args
		want  time.Duration
	}{
		{"default_9_4_2", Scope{}, args{"command": "x"}, 10 * time.Second},
		{
			"session's default",
			Scope{DefaultTimeout: 2 * time.Minute},
			args{"command": "x"},
			2 * time.Minute,
		},
		{
			"default above the maximum",
			Scope{DefaultTimeout: time.Hour, MaxTimeout: time.Minute},
			args{"command": "x"},
			time.Minute,
		},
		{"per_call_9_4_3", Scope{}, args{"command": "x", "timeout_ms": 1500}, 1500 * time.Millisecond},
		{"capped_9_4_3", Scope{}, args{"command": "x", "timeout_ms": 600_001}, 10 * time.Minute},
		{"capped by the session", Scope{MaxTimeout: time.Second}, args{
			"command": "x", "timeout_ms": 1001,
		}, time.Second},
		{
			"written with a point",
			Scope{},
			args{"command": "x", "timeout_ms": 15e2},
			1500 * time.Millisecond,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.scope.Env = m
			if o := registry(t).Run(t.Context(), tt.scope, call(t, "shell", tt.args)); o.Err != nil {
				t.Fatal(o.Err)
			}
			if got.Timeout != tt.want {
				t.Errorf("timeout %v, want %v", got.Timeout, tt.want)
			}
			if diff := cmp.Diff([]string{"sh", "-c", "x"}, got.Argv); diff != "" || got.Stdin != nil ||
				got.Stdout != got.Stderr {
				t.Errorf("%s%+v", diff, got)
			}
		})
	}
}

func TestShellRefuses(t *testing.T) {
	m := newMemory(nil)
	for _, command := range []string{"", " \n", "a\x00b"} {
		if o := use(t, m, "shell", args{"command": command}); kind(o) != KindValidation {
			t.Errorf("%q: %s: %s", command, kind(o), o.Result.Text())
		}
	}
	m.shell = nil
	check(t, use(t, m, "shell", `{"command": "x"}`), KindOther, "the memory environment has none")
}
