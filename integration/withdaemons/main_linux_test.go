package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestMain makes the test binary the program itself, so that a test can run it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("WITHDAEMONS_TEST_RUN") == "1" {
		if err := os.Unsetenv("WITHDAEMONS_TEST_RUN"); err != nil {
			panic(err)
		}
		main()
	}
	os.Exit(m.Run())
}

// program is a run of the program with a directory of its own for temporary files.
type program struct {
	cmd    *exec.Cmd
	temp   string
	stdout lockedBuffer
	stderr lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func launch(t *testing.T, vars []string, args ...string) *program {
	t.Helper()
	temp, err := os.MkdirTemp("", "wd-") //nolint:usetesting // a socket's name must be short
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: exec.CommandContext(t.Context(), os.Args[0], args...), temp: temp}
	p.cmd.Env = append(append(os.Environ(), "WITHDAEMONS_TEST_RUN=1", "TMPDIR="+temp,
		daemons.HostVar+"="), vars...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if err := os.RemoveAll(temp); err != nil {
			t.Error(err)
		}
	})
	return p
}

// end waits for the program and returns its exit code; nothing may be left.
func (p *program) end(t *testing.T) int {
	t.Helper()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(p.temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) await(t *testing.T, what string, seen func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !seen(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not appear; the program printed %s%s", what, p.stdout.String(),
				p.stderr.String())
		}
	}
}

func needsDocker(t *testing.T) {
	t.Helper()
	if err := daemons.Available(); err != nil {
		daemons.Missing(t, "docker", err.Error())
	}
}

func TestCommandHasDocker(t *testing.T) {
	needsDocker(t)
	p := launch(t, nil, "--", "sh", "-c", `test -S "${`+daemons.HostVar+`#unix://}" && cat && exit 7`)
	if code := p.end(t); code != 7 {
		t.Errorf("exit code %d, want the command's: %s", code, p.stderr.String())
	}
}

func TestSignalGoesToCommand(t *testing.T) {
	needsDocker(t)
	// The shell's child gets the signal too, and only when it has ended does the shell go on.
	p := launch(t, nil, "sh", "-c", `trap 'echo caught' TERM; sh -c 'trap "echo child; exit 3" TERM;`+
		` echo ready; while :; do sleep 0.1; done'; exit 9`)
	p.await(t, "ready", func() bool { return strings.Contains(p.stdout.String(), "ready") })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 9 {
		t.Errorf("exit code %d, want 9: %s", code, p.stderr.String())
	}
	if out := p.stdout.String(); !strings.Contains(out, "caught") || !strings.Contains(out, "child") {
		t.Errorf("the command printed %q", out)
	}
}

func TestSignalEndsCommand(t *testing.T) {
	needsDocker(t)
	p := launch(t, nil, "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.await(t, "ready", func() bool { return strings.Contains(p.stdout.String(), "ready") })
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, p.stderr.String())
	}
}

func TestSignalWhileServicesStart(t *testing.T) {
	needsDocker(t)
	p := launch(t, nil, "--", "echo", "ran")
	p.await(t, "the daemon's directory", func() bool {
		found, _ := filepath.Glob(filepath.Join(p.temp, "*"))
		return len(found) > 0
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 143 || p.stdout.String() != "" {
		t.Errorf("exit code %d, printed %q: %s", code, p.stdout.String(), p.stderr.String())
	}
}

// noDocker is a directory for PATH that has a shell, but no dockerd.
func noDocker(t *testing.T) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(sh, filepath.Join(bin, "sh")); err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestCommandWithoutServices(t *testing.T) {
	p := launch(t, []string{"PATH=" + noDocker(t)}, "--", "sh", "-c",
		`echo "host=$`+daemons.HostVar+`"; exit 4`)
	if code := p.end(t); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
	if p.stdout.String() != "host=\n" || !strings.Contains(p.stderr.String(),
		"docker is not started") {
		t.Errorf("printed %q and %q", p.stdout.String(), p.stderr.String())
	}
}

func TestCommandLeavesFile(t *testing.T) {
	p := launch(t, []string{"PATH=" + noDocker(t)}, "--", "sh", "-c", `echo x >"$TMPDIR/rest"`)
	if code := p.end(t); code != 125 || !strings.Contains(p.stderr.String(), "/rest\n") {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}

func TestUsesOfDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, set := range map[string]func(*exec.Cmd){
		"command line":         func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, dir) },
		"environment variable": func(cmd *exec.Cmd) { cmd.Env = []string{"TMPDIR=" + dir} },
		"working directory":    func(cmd *exec.Cmd) { cmd.Dir = dir },
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "read line", "sh")
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		set(cmd)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("process %d: ", cmd.Process.Pid)
		found := uses(dir)
		for range 1000 {
			if len(found) > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond) // the kernel may not have set the arguments yet
			found = uses(dir)
		}
		if len(found) != 1 || !strings.HasPrefix(found[0], want) {
			t.Errorf("%s: found %q, want %s", name, found, want)
		}
		_ = in.Close() // ends the command
		_ = cmd.Wait()
	}
	if found := uses(dir); len(found) > 0 {
		t.Errorf("afterwards: %q", found)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"--"}, {"--unknown", "--", "true"}} {
		var stderr bytes.Buffer
		if code := run(args, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("%q ends with %d and prints %q", args, code, stderr.String())
		}
	}
	p := launch(t, []string{"PATH=/nowhere"}, "--", "/nowhere/program")
	if code := p.end(t); code != 126 {
		t.Errorf("a missing command ends with %d", code)
	}
}
