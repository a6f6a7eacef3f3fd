package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// helperProgram is the helper that tests use; TestMain builds it.
var helperProgram string

// helperVar is the helper of the tests that have started this process as a client.
const helperVar = "SANDBOXAGENT_TEST_HELPER"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // tests wait most of the time
	flag.Parse()
	if helperProgram = os.Getenv(helperVar); helperProgram != "" {
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ssh-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system's temporary directory is cleaned
		helperProgram = filepath.Join(dir, "sandboxd")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", helperProgram,
			"../../cmd/sandboxd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if out, err := build.CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// needFull skips a test that belongs to the full tests.
func needFull(t *testing.T, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make test-full: " + reason)
	}
}

// impatient returns a target whose connection is lost after 20 seconds of silence: longer than a
// loaded machine may leave a server alone, and shorter than the default.
func impatient(t *testing.T, to ssh.Target) ssh.Target {
	t.Helper()
	to.ConfigFile = filepath.Join(t.TempDir(), "ssh_config")
	text := "ServerAliveInterval 5\nServerAliveCountMax 3\nConnectTimeout 30\nGlobalKnownHostsFile " +
		"none\nIdentityFile none\n"
	if err := os.WriteFile(to.ConfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// target is how to log in to a server of the tests.
func target(tb testing.TB, s *daemons.SSHD) ssh.Target {
	tb.Helper()
	return ssh.Target{
		Host: s.User() + "@" + s.Address(), ConfigFile: os.DevNull, Identities: []string{s.Key()},
		KnownHosts: s.KnownHosts(), Timeout: 2 * time.Minute, // the machine may be busy
		Warn: func(line string) { tb.Log(line) },
	}
}

// connect logs in to a server.
func connect(tb testing.TB, t ssh.Target) *ssh.Host {
	tb.Helper()
	h, err := ssh.Connect(tb.Context(), t)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
	})
	return h
}

// config completes a configuration for tests.
func config(tb testing.TB, c ssh.Config) ssh.Config {
	tb.Helper()
	c.Helper.Binary = helperProgram
	c.Warn = func(line string) { tb.Log(line) }
	return c
}

// open returns an environment that is closed at the end of the test.
func open(tb testing.TB, h *ssh.Host, c ssh.Config) *ssh.Environment {
	tb.Helper()
	e, err := h.Open(tb.Context(), config(tb, c))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return e
}

// start is open for an environment that the test closes.
func start(t *testing.T, h *ssh.Host, c ssh.Config) *ssh.Environment {
	t.Helper()
	e, err := h.Open(t.Context(), config(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func command(argv ...string) env.Command { return env.Command{Argv: argv} }

func sh(script string) env.Command { return command("/bin/sh", "-c", script) }

// does runs a script in an environment, which shows that it works, and returns its output.
func does(t *testing.T, e env.Environment, script string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := sh(script)
	cmd.Stdout = &out
	if res, err := e.Exec(t.Context(), cmd); err != nil || res.ExitCode != 0 {
		t.Errorf("%s: %+v, %v", script, res, err)
	}
	return out.String()
}

// outcome is the result of a command, or the error.
type outcome struct {
	env.Result
	err error
}

// gone reports whether the environment ended with the command or before, of which the client may
// have received the signal.
func (o outcome) gone() bool {
	return errors.Is(o.err, env.ErrGone) || o.err == nil && o.Signal == "SIGKILL"
}

// background runs a command.
func background(ctx context.Context, e env.Environment, cmd env.Command) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		res, err := e.Exec(ctx, cmd)
		done <- outcome{res, err}
	}()
	return done
}

// wantGone checks that calls of an environment report that it has ended.
func wantGone(t *testing.T, e env.Environment) {
	t.Helper()
	if _, err := e.ReadDir(t.Context(), "."); !errors.Is(err, env.ErrGone) {
		t.Errorf("a list: %v", err)
	}
	if err := e.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("close: %v", err)
	}
}

// Login profiles that are not meant for commands.
const (
	slowProfile  = "sleep 2\n"
	noisyProfile = "echo welcome; printf 'no newline'; echo noise >&2\n"
)

// TestContract runs the conformance suite. The hosts of the full tests are difficult in several
// ways at once: neither a noexec nor a read-only home can hold the helper.
func TestContract(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config daemons.SSHDConfig
		small  bool
		// sandbox, if set, is around all of it.
		sandbox *env.Sandbox
	}{
		{name: "openssh", small: testing.Short()},
		{"bash", daemons.SSHDConfig{
			Account: &daemons.Account{Shell: "/bin/bash", Profile: map[string]string{".bashrc": slowProfile +
				noisyProfile}, Home: daemons.HomeNoexec},
		}, true, nil},
		{"dash", daemons.SSHDConfig{
			Account: &daemons.Account{Shell: "/bin/dash", Home: daemons.HomeReadOnly},
			Options: []string{"MaxSessions 1"}, Sftp: daemons.SftpNone,
		}, true, nil},
		{
			"dropbear",
			daemons.SSHDConfig{Account: &daemons.Account{Shell: "/bin/bash"}, Dropbear: true},
			true, nil,
		},
		{"sandbox", daemons.SSHDConfig{Account: &daemons.Account{}}, true, &env.Sandbox{Require: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "openssh" {
				needFull(t, "the contract holds on every host")
			}
			if tt.sandbox != nil {
				needSandbox(t, sandbox.Bubblewrap)
			}
			s := server(t, tt.config)
			h := connect(t, target(t, s))
			hostOf := func(*testing.T) *ssh.Host { return h }
			if tt.config.Dropbear {
				hostOf = oneByOne(s)
			}
			envtest.Run(t, envtest.Options{
				New: func(t *testing.T) env.Environment {
					h := hostOf(t)
					return start(t, h, ssh.Config{WorkDir: s.MakeDir(t), Sandbox: tt.sandbox})
				},
				Alive: envtest.AliveOnHost,
				Small: tt.small,
			})
		})
	}
}

// oneByOne returns a function that connects each time: Dropbear 2022.83 may close a connection of
// several sessions when one ends. It lets five connections log in at the same time.
func oneByOne(s *daemons.SSHD) func(*testing.T) *ssh.Host {
	var logins sync.Mutex
	return func(t *testing.T) *ssh.Host {
		t.Helper()
		logins.Lock()
		defer logins.Unlock()
		return connect(t, target(t, s))
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// uid returns the owner of a file.
func uid(t *testing.T, name string) int {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%s has no owner", name)
	}
	return int(stat.Uid)
}

// TestCreateWorkDir opens environments in directories that do not exist.
func TestCreateWorkDir(t *testing.T) {
	if account() == nil {
		t.Skip("needs root: it would write in the home directory of this user")
	}
	s := server(t, daemons.SSHDConfig{Account: account()})
	h, home := connect(t, target(t, s)), s.Home()
	for i, box := range []*env.Sandbox{nil, {Require: true}} {
		top := fmt.Sprint("-", i)
		for _, dir := range []struct{ name, want string }{
			{home + "/" + top + "/it's a b", home + "/" + top + "/it's a b"},
			{"~/" + top + "/x", home + "/" + top + "/x"},
			{top + top, home + "/" + top + top},
		} {
			t.Run(fmt.Sprint(i, " ", strings.TrimPrefix(dir.name, home)), func(t *testing.T) {
				if box != nil {
					needSandbox(t, sandbox.Bubblewrap)
				}
				c := ssh.Config{WorkDir: dir.name, Sandbox: box}
				if _, err := h.Open(t.Context(), config(t, c)); err == nil {
					t.Fatal("it exists")
				}
				c.CreateWorkDir = true
				for range 2 { // the second one finds it
					e := start(t, h, c)
					does(t, e, "echo x >file")
					info, err := os.Stat(filepath.Join(dir.want, "file"))
					if err != nil || info.Size() != 2 || e.Info().WorkDir != dir.want ||
						uid(t, dir.want) != uid(t, home) {
						t.Errorf("%s of user %d, %v", e.Info().WorkDir, uid(t, dir.want), err)
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	t.Run("home", func(t *testing.T) {
		e := open(t, h, ssh.Config{WorkDir: "~", CreateWorkDir: true})
		does(t, e, "echo x >file && test ! -e '~'")
	})
	_, err := h.Open(t.Context(), config(t, ssh.Config{WorkDir: "~/file/x", CreateWorkDir: true}))
	var bad *ssh.ConfigError
	if !errors.As(err, &bad) || bad.Field != "working directory" ||
		!strings.Contains(bad.Reason, "cannot make ~/file/x: mkdir: ") {
		t.Error(err)
	}
}
