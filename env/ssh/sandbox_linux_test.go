package ssh_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// needSandbox skips a test where the host, which is this machine, has no sandbox of a kind.
func needSandbox(t *testing.T, by sandbox.Mechanism) {
	t.Helper()
	if err := sandbox.Available(by); err != nil {
		if strings.Contains(os.Getenv("SANDBOXAGENT_REQUIRE"), "sandbox") {
			t.Fatalf("SANDBOXAGENT_REQUIRE: %v", err)
		}
		t.Skip(err)
	}
}

// repository makes a repository without hooks in a directory of the account.
func repository(t *testing.T, s *daemons.SSHD) string {
	t.Helper()
	dir := s.MakeDir(t)
	init := exec.CommandContext(t.Context(), "git", "init", "-q", "--template=", dir)
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, uid(t, dir), -1))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// secret is a file that a user of the host can read outside of a sandbox.
func secret(t *testing.T, s *daemons.SSHD, c daemons.SSHDConfig) string {
	t.Helper()
	if c.Account == nil {
		return "/etc/shadow"
	}
	name := filepath.Join(s.Home(), ".ssh", "id_test")
	err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
		os.WriteFile(name, []byte("secret"), 0o600))
	for _, made := range []string{filepath.Dir(name), name} {
		err = errors.Join(err, os.Lchown(made, uid(t, s.Home()), -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSandbox runs commands in a sandbox on the host.
func TestSandbox(t *testing.T) {
	needSandbox(t, sandbox.Bubblewrap)
	for name, c := range map[string]daemons.SSHDConfig{"root": {}, "account": {Account: account()}} {
		t.Run(name, func(t *testing.T) {
			if c.Account == nil {
				needFull(t, "the sandbox of each user")
			}
			t.Parallel()
			s := server(t, c)
			work := repository(t, s)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			e := open(t, connect(t, target(t, s)),
				ssh.Config{WorkDir: work, Sandbox: &env.Sandbox{Require: true}})
			info := e.Info()
			for _, p := range []env.GuaranteeName{
				env.Isolation, env.ConfinedWrites, env.HiddenSecrets,
				env.NoNetwork, env.HiddenProcesses, env.NoNewRights,
			} {
				if info.Strength(p) != env.Enforced {
					t.Errorf("%s is %s", p, info.Strength(p))
				}
			}
			if info.Backend != "ssh" || info.WorkDir != work {
				t.Errorf("%+v", info)
			}
			does(t, e, "echo inside > file && mkdir -p /tmp/private && test -n \"$HOME\"")
			if got, err := os.ReadFile(filepath.Join(work, "file")); string(got) != "inside\n" {
				t.Errorf("the file has %q, %v", got, err)
			}
			denied(t, e, listener.Addr().String(), `echo x > "$HOME/outside"`,
				`echo x > .git/hooks/pre-commit`, `echo x >> .git/config`, `cat `+secret(t, s, c))
			// A home directory below /tmp is one in the private /tmp.
			_, _ = e.WriteFile(t.Context(), s.Home()+"/outside", strings.NewReader("x"), env.WriteOptions{})
			if _, err := os.Stat(s.Home() + "/outside"); err == nil {
				t.Error("a file outside was written")
			}
			if _, err := os.Stat("/tmp/private"); err == nil {
				t.Error("/tmp is not private")
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			nothingLeft(t, s, e.Session())
			if _, err := os.Lstat(work + "/.git/hooks"); err == nil {
				t.Error("the empty hooks are left")
			}
		})
	}
}

// denied runs scripts that must fail, and two more: a connection to an address, and a mount.
func denied(t *testing.T, e env.Environment, address string, scripts ...string) {
	t.Helper()
	connection := "exec 3<>/dev/tcp/" + strings.Replace(address, ":", "/", 1)
	for _, script := range append(scripts, connection, "mount -t tmpfs none /mnt") {
		res, err := e.Exec(t.Context(), command("/bin/bash", "-c", script))
		if err != nil || res.ExitCode == 0 {
			t.Errorf("%s: %+v, %v", script, res, err)
		}
	}
}

// TestSandboxReturn reconnects to a sandbox, and reattaches to it from another client.
func TestSandboxReturn(t *testing.T) {
	t.Parallel()
	needSandbox(t, sandbox.Bubblewrap)
	s := server(t, daemons.SSHDConfig{Account: account()})
	proxy, to := behind(t, s)
	far := connect(t, to)
	e := open(t, far, ssh.Config{WorkDir: s.MakeDir(t), Sandbox: &env.Sandbox{Require: true}})
	running := background(t.Context(), e,
		sh("touch started; while ! test -f end; do sleep 0.05; done; exit 7"))
	eventually(t, "the command", func() bool {
		_, err := e.Stat(t.Context(), "started")
		return err == nil
	})
	proxy.Stop()
	// A connection of another test may have the port for a moment.
	eventually(t, "the proxy", func() bool { return proxy.Start() == nil })
	other, err := connect(t, target(t, s)).Attach(t.Context(), ticket(t, e))
	if err != nil {
		t.Fatal(err)
	}
	if other.Info().Strength(env.ConfinedWrites) != env.Enforced ||
		!strings.Contains(guarantee(other, env.Isolation).By, "bubblewrap") {
		t.Errorf("%+v", other.Info())
	}
	does(t, other, "touch end")
	if err := other.Leave(); err != nil {
		t.Error(err)
	}
	if o := <-running; o.err != nil || o.ExitCode != 7 {
		t.Errorf("%+v", o)
	}
}

// guarantee returns the guarantee of an environment for a promise.
func guarantee(e env.Environment, p env.GuaranteeName) env.Guarantee {
	for _, g := range e.Info().Guarantees {
		if g.Name == p {
			return g
		}
	}
	return env.Guarantee{}
}

// TestSandboxDies kills the helper outside of a sandbox. Nothing is left of the sandbox.
func TestSandboxDies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		by sandbox.Mechanism
		// trace returns a file that the helper creates for the sandbox.
		trace func(t *testing.T, e env.Environment) string
		// collected means that Collect removes it.
		collected bool
	}{
		{sandbox.Bubblewrap, func(_ *testing.T, e env.Environment) string {
			return e.Info().WorkDir + "/.git/hooks"
		}, false},
		{sandbox.Landlock, temporary, true},
	} {
		t.Run(string(tt.by), func(t *testing.T) {
			t.Parallel()
			needSandbox(t, tt.by)
			s := withoutBubblewrap
			if tt.by == sandbox.Bubblewrap {
				s = func(t *testing.T) *daemons.SSHD {
					return server(t, daemons.SSHDConfig{Account: account()})
				}
			}
			sandboxDies(t, s(t), tt.trace, tt.collected)
		})
	}
}

func sandboxDies(
	t *testing.T, s *daemons.SSHD, trace func(*testing.T, env.Environment) string, collected bool,
) {
	h := connect(t, target(t, s))
	e := start(t, h, ssh.Config{
		WorkDir: repository(t, s), Options: remote.Options{TTL: 2 * time.Second},
		Sandbox: &env.Sandbox{Require: true},
	})
	file := trace(t, e)
	if _, err := os.Lstat(file); err != nil {
		t.Error(err)
	}
	removed := func() {
		eventually(t, "the end of "+file, func() bool {
			_, err := os.Lstat(file)
			return err != nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, script := range runaways {
		background(ctx, e, sh(script))
	}
	eventually(t, "the commands", func() bool { return len(left(t, s, e.Session())) > len(runaways) })
	if err := unix.Kill(helperOf(t, h, e.Session()).PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if collected {
		_ = e.Close() // processes in the sandbox may still serve
	} else {
		removed()
		wantGone(t, e)
	}
	if _, err := h.Collect(t.Context(), remote.CollectOptions{}); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s, e.Session())
	removed()
}

// TestNoSandbox has a directory that no sandbox is for, and one that is missing.
func TestNoSandbox(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	e := open(t, h, ssh.Config{Sandbox: &env.Sandbox{}})
	g := guarantee(e, env.Isolation)
	for _, part := range []string{"the home directory", "no sandbox", h.String()} {
		if g.Strength != env.Absent || !strings.Contains(g.By, part) {
			t.Errorf("%+v lacks %q", g, part)
		}
	}
	_, err := h.Open(t.Context(), config(t, ssh.Config{Sandbox: &env.Sandbox{Require: true}}))
	var failed *ssh.OpenError
	var invalid *ssh.ConfigError
	if !errors.As(err, &failed) && !errors.As(err, &invalid) ||
		!strings.Contains(err.Error(), "the home directory") {
		t.Errorf("a sandbox that is required: %v", err)
	}
	_, err = h.Open(t.Context(), config(t, ssh.Config{
		WorkDir: s.MakeDir(t),
		Sandbox: &env.Sandbox{Write: []string{"missing"}},
	}))
	if err == nil || !strings.Contains(err.Error(), s.Home()+"/missing") {
		t.Errorf("a directory that is missing: %v", err)
	}
}
