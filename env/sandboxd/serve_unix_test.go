//go:build unix

package sandboxd_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"unknown command", []string{"run"}, "usage"},
		{"unknown flag", []string{"serve", "--port", "1"}, "port"},
		{"argument", []string{"serve", "here"}, `"here"`},
		{"no time to live", []string{"serve", "--ttl", "0s"}, "--ttl 0s"},
		{"dial without a socket", []string{"dial"}, "--socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t, helperArgv(t, tt.args...), nil)
			if code := p.code(t); code != 2 || !strings.Contains(p.stderrText.String(), tt.says) {
				t.Errorf("exit code %d, %q", code, p.stderrText)
			}
		})
	}
}

func TestCloseEndsHelper(t *testing.T) {
	t.Parallel()
	m := mark(t)
	e, p := serve(t, t.TempDir())
	output(t, e, sh(`setsid sh -c 'while :; do sleep 1000; done' "$1" </dev/null >/dev/null 2>&1 &`,
		m))
	eventually(t, "the process", func() bool { return len(marked(m)) == 1 })
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := marked(m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestEndOfStreamEndsEverything cuts the stream at either end or at both.
func TestEndOfStreamEndsEverything(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cut  func(p *process)
	}{
		{"both", func(p *process) { _ = p.Close() }},
		{"standard input", func(p *process) { _ = p.in.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := mark(t)
			e, p := serve(t, t.TempDir())
			stay(t, e, m)
			tt.cut(p)
			if code := p.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if left := marked(m); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestSignalsEndHelper(t *testing.T) {
	t.Parallel()
	if os.Getpid() == 1 {
		t.Skip("process 1 is another matter")
	}
	// Where tests run with hang-ups ignored, as nohup has it, a program that is started would ignore
	// them too. Of a signal that is caught here, it gets the default.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			m := mark(t)
			e, p := serve(t, t.TempDir())
			stay(t, e, m)
			if err := p.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			if code := p.code(t); code != 128+int(s) {
				t.Errorf("exit code %d", code)
			}
			if left := marked(m); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestHangupIsIgnoredUnderNohup starts a helper that is to outlive its terminal.
func TestHangupIsIgnoredUnderNohup(t *testing.T) {
	p := launch(t, append([]string{"/bin/sh", "-c", `trap '' HUP; exec "$@"`, "sh"}, helperArgv(t,
		"serve")...), nil)
	e, err := open(t, p, client.Config{Start: start(t, t.TempDir())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	output(t, e, sh("true"))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestCommandsGetDefaultSignals checks that what the helper catches for itself, commands do not
// ignore.
func TestCommandsGetDefaultSignals(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	e, _ := serve(t, t.TempDir())
	for line := range strings.Lines(output(t, e, sh("cat /proc/self/status"))) {
		for _, set := range []string{"SigIgn:", "SigBlk:"} {
			mask, ok := strings.CutPrefix(line, set)
			// or the tests were started so
			if ok && strings.Trim(mask, "0 \t\n") != "" && !strings.Contains(string(own), line) {
				t.Errorf("%s %s", set, mask)
			}
		}
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, start string
		dir         string
		is          error
	}{
		{"missing directory", "", filepath.Join(dir, "missing"), fs.ErrNotExist},
		{"no directory", "", filepath.Join(dir, "file"), env.ErrNotDir},
		{"malformed", `{"dir":1}`, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t, helperArgv(t, "serve"), nil)
			raw := []byte(tt.start)
			if tt.start == "" {
				raw = start(t, tt.dir)
			}
			_, err := open(t, p, client.Config{Start: raw}, nil)
			var path *fs.PathError
			if err == nil || tt.is != nil && (!errors.Is(err, tt.is) || !errors.As(err, &path) ||
				path.Path != tt.dir) {
				t.Errorf("%v", err)
			}
			if code := p.code(t); code != 1 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestNothingLeaksIntoCommands gives a helper variables and descriptors of which its commands know
// nothing.
func TestNothingLeaksIntoCommands(t *testing.T) {
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close() //nolint:errcheck // it was never written to
	p := launch(t, helperArgv(t, "serve"), func(cmd *exec.Cmd) {
		cmd.Env = []string{"CANARY=secret", "PATH=/nowhere"}
		cmd.ExtraFiles = []*os.File{secret, secret}
	})
	e, err := open(t, p, client.Config{Start: start(t, t.TempDir(), "GIVEN=1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // other tests see to that
	for v := range strings.Lines(output(t, e, sh("env"))) {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "PATH", "GIVEN", "PWD", "SHLVL", "_", "OLDPWD":
		default:
			t.Errorf("a command sees %s", v)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	// The third one is the directory that ls reads.
	if got := strings.Fields(output(t, e, sh("ls /proc/self/fd"))); strings.Join(got,
		" ") != "0 1 2 3" {
		t.Errorf("a command has the descriptors %v", got)
	}
}

func TestInheritedVariables(t *testing.T) {
	p := launch(t, helperArgv(t, "serve"), func(cmd *exec.Cmd) {
		cmd.Env = []string{"PATH=/usr/bin:/bin", "IMAGE_VARIABLE=1", "IMAGE_API_KEY=2"}
	})
	e, err := open(t, p, client.Config{Start: []byte(`{"inherit":"filtered"}`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // other tests see to that
	vars := output(t, e, sh("env"))
	if !strings.Contains(vars, "IMAGE_VARIABLE=1") || strings.Contains(vars, "IMAGE_API_KEY") {
		t.Errorf("a command sees\n%s", vars)
	}
	if dir := e.Info().WorkDir; dir != "/" {
		t.Errorf("the working directory is %s, want the helper's own", dir)
	}
}
