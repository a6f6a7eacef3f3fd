package sandboxd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox/seccomp"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// noNamespacesVar makes TestSandboxedProcess run.
const noNamespacesVar = "SANDBOXAGENT_TEST_NO_NAMESPACES"

// TestSandboxedProcess is the helper of TestSandboxedHelper on a machine without namespaces, on
// which bubblewrap does not work.
func TestSandboxedProcess(t *testing.T) {
	if os.Getenv(noNamespacesVar) == "" {
		t.Skip("other tests start this in a process")
	}
	program, err := seccomp.Program([]seccomp.Rule{
		{Call: "unshare", When: []seccomp.Condition{seccomp.AnyBit(0, unix.CLONE_NEWUSER)}},
		{Call: "clone", When: []seccomp.Condition{seccomp.AnyBit(0, unix.CLONE_NEWUSER)}},
		{Call: "clone3", Errno: unix.ENOSYS},
	})
	if err == nil {
		err = errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), seccomp.Install(program))
	}
	if err != nil {
		t.Fatal(err)
	}
	TestHelperProcess(t)
}

// sandboxArgv returns the command line of a helper that starts another one in a sandbox.
func sandboxArgv(t *testing.T, s helper.Sandbox, args ...string) []string {
	t.Helper()
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	return helperArgv(t, append([]string{"serve", "--sandbox", text}, args...)...)
}

// TestSandboxedHelper has a helper serve from a sandbox, by its standard streams and by its socket,
// and ends it in each way.
func TestSandboxedHelper(t *testing.T) {
	for _, by := range sandbox.Mechanisms() {
		for _, end := range []string{"close", "signal", "client", "kill", "kill the inner helper"} {
			t.Run(string(by)+"/"+end, func(t *testing.T) {
				t.Parallel()
				if err := sandbox.Available(by); err != nil {
					t.Skip(err)
				}
				work := t.TempDir()
				git := exec.CommandContext(t.Context(), "git", "init", "-q", "--template=", work)
				if out, err := git.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				socket := socketPath(t)
				directory := filepath.Dir(socket)
				if err := os.Mkdir(directory, 0o700); err != nil {
					t.Fatal(err)
				}
				ttl := "1m" // enough for a client to reconnect on a slow machine
				if end == "client" {
					ttl = "3s"
				}
				require := helper.Sandbox{Dir: work, Sandbox: env.Sandbox{Require: true}}
				argv := sandboxArgv(t, require, "--socket", socket, "--dir", directory, "--ttl", ttl)
				p := launch(t, argv, func(cmd *exec.Cmd) {
					cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + t.TempDir()}
					if by == sandbox.Landlock {
						cmd.Env = append(cmd.Env, noNamespacesVar+"=yes")
						cmd.Args[1] = "-test.run=^TestSandboxedProcess$"
					}
				})
				again := func() (io.ReadWriteCloser, error) { return net.Dial("unix", socket) }
				cfg := client.Config{Token: token, Start: start(t, work), Redial: 20 * time.Second}
				c, err := open(t, p, cfg, again)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				isolation := env.Guarantee{}
				for _, g := range c.Info().Guarantees {
					if g.Name == env.Isolation {
						isolation = g
					}
				}
				if !strings.Contains(isolation.By, string(by)) ||
					by == sandbox.Landlock && !strings.Contains(isolation.By, "it is not bubblewrap: ") {
					t.Errorf("%+v", isolation)
				}
				_ = p.Close() // the client reconnects by the socket
				if got := output(t, c, sh(`echo made >file; cat file; pwd`)); got != "made\n"+work+"\n" {
					t.Errorf("%q", got)
				}
				mark := "47" + strconv.Itoa(p.Process.Pid)
				go func() { _, _ = c.Exec(context.Background(), env.Command{Argv: []string{"sleep", mark}}) }()
				eventually(t, "the command", func() bool { return runs(t, mark) })
				left := false
				switch end {
				case "kill":
					err = p.Process.Kill()
				// that of bubblewrap ends all its processes
				case "kill the inner helper":
					err, left = unix.Kill(childOf(t, p.Process.Pid), unix.SIGKILL), by == sandbox.Landlock
				case "close":
					err = c.Close()
				case "signal":
					err = p.Process.Signal(unix.SIGTERM)
				case "client":
					c.Leave()
				}
				if err != nil {
					t.Error(err)
				}
				want := map[string]int{
					"signal": 128 + int(unix.SIGTERM), "kill": -1,
					"kill the inner helper": 128 + int(unix.SIGKILL),
				}[end]
				if code := p.code(t); code != want {
					t.Errorf("exit code %d, want %d", code, want)
				}
				gone := func(name string) bool {
					_, err := os.Lstat(name)
					return errors.Is(err, fs.ErrNotExist)
				}
				// after SIGKILL another process tidies up, except for the directory
				if end != "kill" && (gone(directory) == left || !gone(work+"/.git/hooks")) {
					t.Errorf("gone are the directory: %t, the hooks: %t",
						gone(directory), gone(work+"/.git/hooks"))
				}
				eventually(t, "the end", func() bool {
					return runs(t, mark) == left && gone(work+"/.git/hooks")
				})
				if left {
					for _, pid := range sleepers(t, mark) {
						_ = unix.Kill(pid, unix.SIGKILL)
					}
				}
				if _, err := os.Lstat(work + "/file"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// sleepers returns the processes that run "sleep mark", in any sandbox.
func sleepers(t *testing.T, mark string) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		got, err := os.ReadFile(name)
		if err != nil || string(got) != "sleep\x00"+mark+"\x00" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// runs reports whether a process runs "sleep mark".
func runs(t *testing.T, mark string) bool { return len(sleepers(t, mark)) > 0 }

// TestSignalDuringStart ends a helper while it starts another one in a sandbox.
func TestSignalDuringStart(t *testing.T) {
	work, directory := t.TempDir(), filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	require := helper.Sandbox{Dir: work, Sandbox: env.Sandbox{Require: true}}
	p := launch(t, sandboxArgv(t, require, "--dir", directory), func(cmd *exec.Cmd) {
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + t.TempDir()}
	})
	started := func() bool {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Process.Pid))
		return slices.ContainsFunc(names, func(name string) bool {
			data, err := os.ReadFile(name)
			return err == nil && len(data) > 0
		})
	}
	ended := func() bool {
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	}
	eventually(t, "a child of the helper", func() bool { return started() || ended() })
	if ended() {
		t.Skip("this machine has no sandbox")
	}
	if err := p.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.code(t); code != 128+int(unix.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(directory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// childOf returns the only child of a process other than the one that tidies up.
func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(names) == 0 {
		t.Skip("the kernel does not list children", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for word := range strings.FieldsSeq(string(data)) {
			if words, err := os.ReadFile("/proc/" + word + "/cmdline"); err == nil &&
				!strings.HasSuffix(string(words), "\x00tidy\x00") {
				if child, err = strconv.Atoi(word); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if child == 0 {
		t.Fatalf("process %d has no child", pid)
	}
	return child
}

func TestSandboxErrors(t *testing.T) {
	p := launch(t, helperArgv(t, "serve", "--sandbox", "{"), nil)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderrText.String(), "--sandbox: ") {
		t.Errorf("exit code %d, %s", code, p.stderrText)
	}
	for name, tt := range map[string]struct {
		sandbox helper.Sandbox
		want    string
	}{
		"the root directory": {
			helper.Sandbox{Dir: "/", Sandbox: env.Sandbox{Require: true}},
			"no sandbox works on this machine: / ",
		},
		"a guarantee": {
			helper.Sandbox{
				Dir:     t.TempDir(),
				Sandbox: env.Sandbox{Network: true, Enforce: []env.GuaranteeName{env.NoNetwork}},
			},
			"no sandbox of this machine enforces no-network: ",
		},
		"a missing directory": {helper.Sandbox{Dir: "/nowhere/at/all"}, "stat /nowhere/at/all: "},
		"a missing directory to read": {
			helper.Sandbox{Dir: t.TempDir(), Sandbox: env.Sandbox{Read: []string{"/nowhere"}}},
			"/nowhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, sandboxArgv(t, tt.sandbox), nil)
			c, err := open(t, p, client.Config{Start: start(t, "/")}, nil)
			if err == nil {
				_ = c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("no sandbox, not required", func(t *testing.T) {
		p := launch(t, sandboxArgv(t, helper.Sandbox{Dir: "/"}), nil)
		c, err := open(t, p, client.Config{Start: start(t, "/")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if all := fmt.Sprint(c.Info().Guarantees); c.Info().Strength(env.Isolation) != env.Absent ||
			!strings.Contains(all, "; no sandbox: / ") {
			t.Error(all)
		}
		output(t, c, sh("true"))
	})
}
