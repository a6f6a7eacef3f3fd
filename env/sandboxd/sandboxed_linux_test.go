package sandboxd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// noNamespacesVar has TestSandboxedProcess refuse namespaces.
const noNamespacesVar = "SANDBOXAGENT_TEST_NO_NAMESPACES"

// TestSandboxedProcess is the helper of TestSandboxedHelper on a machine on which bubblewrap does
// not work.
func TestSandboxedProcess(t *testing.T) {
	if os.Getenv(noNamespacesVar) == "" {
		t.Skip("this is for other tests, which start it in a process of its own")
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

// sandboxArgv is the command line of a helper that puts a sandbox around another one.
func sandboxArgv(t *testing.T, b helper.Sandbox, args ...string) []string {
	t.Helper()
	text, err := b.Text()
	if err != nil {
		t.Fatal(err)
	}
	return helperArgv(t, append([]string{"serve", "--sandbox", text}, args...)...)
}

// prints runs a script.
func prints(t *testing.T, c *client.Client, script string) string {
	t.Helper()
	var out bytes.Buffer
	res, err := c.Exec(t.Context(), env.Command{
		Argv: []string{"/bin/sh", "-c", script}, Stdout: &out,
		Stderr: &out,
	})
	if err != nil || res.ExitCode != 0 {
		t.Errorf("%s: %+v, %v, %s", script, res, err, &out)
	}
	return out.String()
}

// TestSandboxedHelper has a helper serve from a sandbox, by the standard streams and by its socket,
// and ends it in each way.
func TestSandboxedHelper(t *testing.T) {
	for _, by := range sandbox.Mechanisms() {
		for _, end := range []string{"close", "signal", "client", "kill", "kill the helper inside"} {
			t.Run(string(by)+"/"+end, func(t *testing.T) {
				t.Parallel()
				if err := sandbox.Available(by); err != nil {
					t.Skip(err)
				}
				work := t.TempDir()
				if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", "--template=",
					work).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				directory := filepath.Join(t.TempDir(), "own")
				if err := os.Mkdir(directory, 0o700); err != nil {
					t.Fatal(err)
				}
				socket := filepath.Join(directory, "s")
				ttl := "1m" // which a slow machine does not pass until the client is back
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
				c, err := open(t, p, client.Config{
					Token: token, Start: start(t, work),
					Redial: 5 * time.Second,
				}, again)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				isolation := env.Guarantee{}
				for _, g := range c.Info().Guarantees {
					if g.Promise == env.Isolation {
						isolation = g
					}
				}
				if !strings.Contains(isolation.By, string(by)) || by == sandbox.Landlock &&
					!strings.Contains(isolation.By, "it is not bubblewrap: ") {
					t.Errorf("%+v", isolation)
				}
				_ = p.Close() // the client comes back by the socket
				if got := prints(t, c, `echo made >file; cat file; pwd`); got != "made\n"+work+"\n" {
					t.Errorf("%q", got)
				}
				mark := "47" + strconv.Itoa(p.Process.Pid)
				go func() { _, _ = c.Exec(context.Background(), env.Command{Argv: []string{"sleep", mark}}) }()
				eventually(t, "the command", func() bool { return runs(t, mark) })
				left := false
				switch end {
				case "kill":
					err = p.Process.Kill()
				// that of bubblewrap takes all along; else it is found by its directory
				case "kill the helper inside":
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
					"kill the helper inside": 128 + int(unix.SIGKILL),
				}[end]
				if code := p.code(t); code != want {
					t.Errorf("exit code %d, want %d", code, want)
				}
				gone := func(name string) bool {
					_, err := os.Lstat(name)
					return errors.Is(err,
						fs.ErrNotExist)
				}
				// then another process tidies up, but for the directory
				if end != "kill" && (gone(directory) == left || !gone(work+"/.git/hooks")) {
					t.Errorf("the directory has gone: %t, the hooks: "+
						"%t", gone(directory), gone(work+"/.git/hooks"))
				}
				eventually(t, "what is to be left", func() bool {
					return runs(t, mark) == left &&
						gone(work+"/.git/hooks")
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

// sleepers returns the processes that run "sleep mark", in whichever sandbox.
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

// childOf returns the only child of a process, but for one that tidies up.
func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(names) == 0 {
		t.Skip("the kernel does not tell of children", err)
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

// TestSandboxErrors has sandboxes that cannot be.
func TestSandboxErrors(t *testing.T) {
	p := launch(t, helperArgv(t, "serve", "--sandbox", "{"), nil)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderrText.String(), "--sandbox: ") {
		t.Errorf("exit code %d, %s", code, p.stderrText)
	}
	for name, tt := range map[string]struct {
		box  helper.Sandbox
		want string
	}{
		"the root directory": {
			helper.Sandbox{Dir: "/", Sandbox: env.Sandbox{Require: true}},
			"no sandbox works here: / ",
		},
		"a promise": {helper.Sandbox{Dir: t.TempDir(), Sandbox: env.Sandbox{
			Network: true,
			Enforce: []env.Promise{env.NoNetwork},
		}}, "no sandbox here enforces no-network: "},
		"a missing directory": {helper.Sandbox{Dir: "/nowhere/at/all"}, "stat /nowhere/at/all: "},
		"a directory to be read": {helper.Sandbox{
			Dir:     t.TempDir(),
			Sandbox: env.Sandbox{Read: []string{"/nowhere"}},
		}, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, sandboxArgv(t, tt.box), nil)
			c, err := open(t, p, client.Config{Start: start(t, "/")}, nil)
			if err == nil {
				_ = c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("none, which is allowed", func(t *testing.T) {
		p := launch(t, sandboxArgv(t, helper.Sandbox{Dir: "/"}), nil)
		c, err := open(t, p, client.Config{Start: start(t, "/")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if text := c.Info().Guarantees; c.Info().Strength(env.Isolation) != env.Absent ||
			!strings.Contains(text[len(text)-1].By+text[0].By, "there is no sandbox: / ") {
			t.Errorf("%+v", text)
		}
		prints(t, c, "true")
	})
}
