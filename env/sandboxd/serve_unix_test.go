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
	"slices"
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
		text string
	}{
		{"unknown command", []string{"run"}, "usage"},
		{"unknown flag", []string{"serve", "--port", "1"}, "port"},
		{"argument", []string{"serve", "x"}, `"x"`},
		{"no time to live", []string{"serve", "--ttl", "0s"}, "--ttl 0s"},
		{"dial without a socket", []string{"dial"}, "--socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t, helperArgv(t, tt.args...), nil)
			if code := p.code(t); code != 2 || !strings.Contains(p.stderrText.String(), tt.text) {
				t.Errorf("exit code %d, %q", code, p.stderrText)
			}
		})
	}
}

// TestHelperEnds ends a helper in each way. Its processes die, and the exit code shows the way.
func TestHelperEnds(t *testing.T) {
	t.Parallel()
	// A test program started with SIGHUP ignored, as by nohup, passes that on unless it catches it.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	send := func(s unix.Signal) func(*client.Client, *process) error {
		return func(_ *client.Client, p *process) error { return p.Process.Signal(s) }
	}
	for _, tt := range []struct {
		name string
		end  func(e *client.Client, p *process) error
		code int
	}{
		{"Close", func(e *client.Client, _ *process) error { return e.Close() }, 0},
		{"end of the stream", func(_ *client.Client, p *process) error {
			err := p.in.Close()
			_ = p.out.Close() // the client closes it too when the helper ends
			return err
		}, 0},
		{"end of stdin", func(_ *client.Client, p *process) error { return p.in.Close() }, 0},
		{"SIGTERM", send(unix.SIGTERM), 143},
		{"SIGINT", send(unix.SIGINT), 130},
		{"SIGHUP", send(unix.SIGHUP), 129},
		{"SIGQUIT", send(unix.SIGQUIT), 131},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := mark(t)
			e, p := serve(t, t.TempDir())
			stay(t, e, m)
			if err := tt.end(e, p); err != nil {
				t.Error(err)
			}
			if code := p.code(t); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if left := marked(m); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestHangupIsIgnoredUnderNohup starts a helper that outlives its terminal.
func TestHangupIsIgnoredUnderNohup(t *testing.T) {
	nohup := []string{"/bin/sh", "-c", `trap '' HUP; exec "$@"`, "sh"}
	p := launch(t, append(nohup, helperArgv(t, "serve")...), nil)
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

// TestCommandsGetDefaultSignals checks that commands do not ignore signals that the helper catches.
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
			// the tests may have been started so
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
			if err == nil || tt.is != nil &&
				(!errors.Is(err, tt.is) || !errors.As(err, &path) || path.Path != tt.dir) {
				t.Errorf("%v", err)
			}
			if code := p.code(t); code != 1 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestNothingLeaksIntoCommands starts a helper with variables and descriptors that its commands do
// not get.
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
	defer e.Close() //nolint:errcheck // other tests check that
	for v := range strings.Lines(output(t, e, sh("env"))) {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "PATH", "GIVEN", "PWD", "SHLVL", "_", "OLDPWD":
		default:
			t.Errorf("a command has %s", v)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	// The third one is the directory that ls reads.
	got := strings.Fields(output(t, e, sh("ls /proc/self/fd")))
	if !slices.Equal(got, []string{"0", "1", "2", "3"}) {
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
	defer e.Close() //nolint:errcheck // other tests check that
	vars := output(t, e, sh("env"))
	if !strings.Contains(vars, "IMAGE_VARIABLE=1") || strings.Contains(vars, "IMAGE_API_KEY") {
		t.Errorf("a command has\n%s", vars)
	}
	if dir := e.Info().WorkDir; dir != "/" {
		t.Errorf("the working directory is %s, want that of the helper", dir)
	}
}
