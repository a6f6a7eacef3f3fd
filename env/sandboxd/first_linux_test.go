package sandboxd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// sharedProgram copies this program to a directory in which every user can execute it.
func sharedProgram(t *testing.T) string {
	t.Helper()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "sandboxd.test")
}

var shared = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "sandboxd-test-")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "sandboxd.test")
	copied.Store(true)
	return dir, errors.Join(
		os.WriteFile(name, program, 0o700), os.Chmod(dir, 0o755), os.Chmod(name, 0o755))
})

var copied atomic.Bool

// removeShared removes the files of sharedProgram.
func removeShared() {
	if copied.Load() {
		if dir, err := shared(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
}

// namespaced is how a helper becomes PID 1 of a pid namespace.
type namespaced struct {
	root  bool // it stays root, with all rights
	bare  bool // it stays root, without any rights
	grows bool // programs with special rights keep them: no_new_privs is not set
}

// first starts a helper as PID 1, as user nobody by default, and opens an environment.
func first(t *testing.T, n namespaced, args ...string) (*client.Client, *process) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can create a pid namespace")
	}
	for _, program := range []string{"unshare", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	program := sharedProgram(t)
	argv := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if n.bare {
		argv = append(argv, "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
	} else if !n.root {
		argv = append(argv, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
		if !n.grows {
			argv = append(argv, "--no-new-privs")
		}
	}
	argv = append(append(argv, program), helperArgv(t, append([]string{"serve"}, args...)...)[1:]...)
	p := launch(t, argv, func(cmd *exec.Cmd) {
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	})
	dir, err := os.MkdirTemp("", "sandboxd-work-") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = errors.Join(os.Chown(dir, nobody, nobody),
		os.Chmod(dir, 0o755)) //nolint:gosec // root without rights reads it
	if err != nil {
		t.Fatal(err)
	}
	e, err := open(t, p, client.Config{Start: start(t, dir), Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a second time, or when all is over
	return e, p
}

// attack returns a command that runs one of the attacks.
func attack(t *testing.T, name string, args ...string) env.Command {
	t.Helper()
	program := sharedProgram(t)
	argv := append([]string{program, "-test.run=^TestAttacker$", "-test.timeout=0", "--", name},
		args...)
	return env.Command{Argv: argv}
}

func TestFirstProcess(t *testing.T) {
	e, p := first(t, namespaced{})
	if got := output(t, e, sh("echo $PPID; id -u")); got != fmt.Sprintf("1\n%d\n", nobody) {
		t.Fatalf("parent and user: %q", got)
	}
	for _, guarantee := range []env.GuaranteeName{env.CleanClose, env.CleanCrash} {
		if s := e.Info().Strength(guarantee); s != env.Enforced {
			t.Errorf("%s: %s", guarantee, s)
		}
	}
	m := mark(t)
	stay(t, e, m)
	_ = p.Close() // the client is gone
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := marked(m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestFirstProcessSurvivesAttacks runs attacks by commands of the user of the helper.
func TestFirstProcessSurvivesAttacks(t *testing.T) {
	t.Parallel()
	e, p := first(t, namespaced{})
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			var out strings.Builder
			cmd := attack(t, a.name)
			cmd.Stdout, cmd.Stderr = &out, &out
			r, err := e.Exec(t.Context(), cmd)
			if err != nil || r.ExitCode != 0 {
				t.Errorf("%+v, %v\n%s", r, err, out.String())
			}
			if got := output(t, e, sh("echo $PPID")); got != "1\n" {
				t.Errorf("%q", got)
			}
		})
	}
	select {
	case <-p.exited:
		t.Error("the helper has ended")
	default:
	}
}

// TestFilterAllowsOwnProcess checks that the filter allows a process calls that concern itself.
func TestFilterAllowsOwnProcess(t *testing.T) {
	e, _ := first(t, namespaced{})
	for _, script := range []string{
		"ulimit -n 100; [ $(ulimit -n) = 100 ]",
		"nice -n 5 sh -c 'true'",
		"sh -c 'kill -SEGV $$' || [ $? = 139 ]",
		"sleep 1000 & kill -STOP $!; kill -CONT $!; kill -KILL $!; wait $! || [ $? = 137 ]",
	} {
		output(t, e, sh(script))
	}
	output(t, e, attack(t, "self"))
}

// TestInfoWithoutProtection starts helpers whose commands could harm them.
func TestInfoWithoutProtection(t *testing.T) {
	for name, n := range map[string]namespaced{
		"rights can grow": {grows: true}, "root": {root: true}, "root without rights": {bare: true},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := first(t, n)
			for _, g := range e.Info().Guarantees {
				if g.Strength == env.Enforced && g.Name != env.ConfinedCommands {
					t.Errorf("%s is reported as enforced by %s", g.Name, g.By)
				}
				if g.Name == env.CleanCrash &&
					(g.Strength != env.BestEffort || !strings.Contains(g.By, "hostile")) {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

// TestSignalsAreForwarded sends signals to PID 1 from outside, as a container runtime does.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	m := mark(t)
	e, _ := first(t, namespaced{})
	for _, s := range []unix.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
	} {
		name := strings.TrimPrefix(unix.SignalName(s), "SIG")
		r, w := io.Pipe()
		var got strings.Builder
		var running sync.WaitGroup
		running.Go(func() {
			_, _ = e.Exec(t.Context(), env.Command{
				Argv: []string{"/bin/sh", "-c", `trap "echo got; exit" ` + name +
					`; echo ready; while :; do sleep 0.05; done`, "sh", m},
				Stdout: w,
			})
			_ = w.Close()
		})
		line := make([]byte, 6)
		if _, err := io.ReadFull(r, line); err != nil || string(line) != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		pid := parentOf(t, marked(m)[0])
		if err := unix.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&got, r)
		running.Wait()
		if got.String() != "got\n" {
			t.Errorf("%s: %q", name, got.String())
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var parent int
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "PPid: %d", &parent)
	}
	return parent
}

// TestCommandsCannotUseTheSocket lets a command of the helper's user connect without the token.
func TestCommandsCannotUseTheSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(filepath.Join(dir, "r"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "r"), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "r", "s")
	e, _ := first(t, namespaced{}, "--socket", socket)
	if out := output(t, e, attack(t, "socket", socket)); !strings.Contains(out, `"permission"`) {
		t.Errorf("a command received %s", out)
	}
}

// TestHelperIsUnreadable checks that a command cannot read a helper that is not PID 1 either.
func TestHelperIsUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	e, _ := serve(t, t.TempDir())
	for _, file := range []string{"mem", "environ", "fd/0", "maps"} {
		r, err := e.Exec(context.Background(), sh(`cat "/proc/$PPID/$1"`, file))
		if err != nil || r.ExitCode == 0 {
			t.Errorf("%s: %+v, %v", file, r, err)
		}
	}
}

// TestSignalsWhileForking has commands send signals that nothing catches while PID 1 starts others,
// for which it blocks signals on one of its threads.
func TestSignalsWhileForking(t *testing.T) {
	t.Parallel()
	e, p := first(t, namespaced{})
	ctx, cancel := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for range 2 {
		senders.Go(func() {
			_, _ = e.Exec(ctx, sh("while :; do kill -32 1; kill -33 1; kill -34 1; kill -STOP 1; done "+
				"2>/dev/null"))
		}) // until it is cancelled
	}
	for range 300 {
		if _, err := e.Exec(t.Context(), sh("true")); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	senders.Wait()
	select {
	case <-p.exited:
		t.Error("the helper has ended")
	default:
	}
}
