package portable_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// kind is a shell that tests run with.
type kind struct {
	name string
	argv []string
	// only is a folder that holds all tools of the place; empty means those of this machine.
	only func(t testing.TB) string
}

// kinds are the shells of this machine.
func kinds() []kind {
	return []kind{
		{name: "dash", argv: []string{"dash"}},
		{name: "bash", argv: []string{"bash", "--posix"}},
		{name: "busybox", argv: []string{"busybox", "sh"}, only: applets},
	}
}

// applets returns a folder of links to busybox.
func applets(t testing.TB) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("there is no busybox")
	}
	list, err := exec.CommandContext(t.Context(), busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range strings.Fields(string(list)) {
		if err := os.Symlink(busybox, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// starter returns a function that starts shells of this kind on this machine.
func (k kind) starter(t testing.TB) func(context.Context) (portable.Shell, error) {
	t.Helper()
	command := k.command(t)
	return func(context.Context) (portable.Shell, error) { return startProcess(command()) }
}

// command returns a function that returns a shell of this kind on this machine.
func (k kind) command(t testing.TB) func() *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the place has to be a Linux system")
	}
	program, err := exec.LookPath(k.argv[0])
	if err != nil {
		t.Skipf("there is no %s", k.argv[0])
	}
	// Elsewhere, too, a shell of a place is in another process group than this program.
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip("there is no setsid")
	}
	vars := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "TMPDIR=" + t.TempDir()}
	if k.only != nil {
		vars[0] = "PATH=" + k.only(t)
	}
	return func() *exec.Cmd {
		c := exec.Command(setsid, append([]string{program}, k.argv[1:]...)...) //nolint:noctx // It outlives the call.
		c.Env = vars
		return c
	}
}

func startProcess(c *exec.Cmd) (portable.Shell, error) {
	stdin, err := c.StdinPipe()
	if err != nil {
		return portable.Shell{}, err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return portable.Shell{}, err
	}
	stderr, err := c.StderrPipe()
	if err != nil {
		return portable.Shell{}, err
	}
	if err := c.Start(); err != nil {
		return portable.Shell{}, err
	}
	return portable.Shell{Stdin: stdin, Stdout: stdout, Stderr: stderr, Close: func() error {
		_ = c.Process.Kill()
		return c.Wait() // which closes the pipes
	}}, nil
}

// open returns an environment with shells of this kind, which the test closes.
func (k kind) open(t testing.TB, change func(*portable.Config)) *portable.Environment {
	t.Helper()
	cfg := portable.Config{Start: k.starter(t), Dir: t.TempDir(), Backend: "portable"}
	if change != nil {
		change(&cfg)
	}
	e, err := portable.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

// TestContract runs the conformance suite with each shell.
func TestContract(t *testing.T) {
	for i, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			envtest.Run(t, envtest.Options{
				New:   func(t *testing.T) env.Environment { return k.open(t, nil) },
				Known: portable.Known(), NoTerminals: true, Bare: k.name == "busybox", Small: i > 0,
			})
		})
	}
}
