package ssh_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestConnectionIsShared opens environments on one host, one after the other and at once.
func TestConnectionIsShared(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h, err := ssh.Connect(t.Context(), target(t, s))
	if err != nil {
		t.Fatal(err)
	}
	var all []*ssh.Environment
	for range 3 {
		e, err := h.Open(t.Context(), config(t, ssh.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if n := len(s.Sessions()); n != 1 {
		t.Errorf("there are %d connections", n)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, e := range all { // which keep the connection
		does(t, e, "true")
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s, e.Session())
	}
	eventually(t, "the end of the connection", func() bool { return len(s.Sessions()) == 0 })
	if strings.Count(s.Log(), "Connection from") != 1 {
		t.Error("there was more than one connection")
	}
}

// TestServers works with servers that allow little, also after the loss of the connection.
func TestServers(t *testing.T) {
	t.Parallel()
	user := func(files map[string]string) *daemons.Account {
		a := account()
		if a != nil {
			a.Profile = files
		}
		return a
	}
	for _, tt := range []struct {
		name   string
		config daemons.SSHDConfig
	}{
		{"one session", daemons.SSHDConfig{Account: user(nil), Options: []string{"MaxSessions 1"}}},
		{"two sessions", daemons.SSHDConfig{Account: user(nil), Options: []string{"MaxSessions 2"}}},
		{"no sockets", daemons.SSHDConfig{
			Account: user(nil),
			Options: []string{"AllowStreamLocalForwarding no"},
		}},
		{"no forwarding", daemons.SSHDConfig{
			Account: user(nil),
			Options: []string{"DisableForwarding yes", "AcceptEnv none"},
		}},
		{"noisy, no forwarding", daemons.SSHDConfig{
			Account: user(map[string]string{".bashrc": noisyProfile}),
			Options: []string{"DisableForwarding yes"}, Sftp: daemons.SftpNone,
		}},
		{"one session, no forwarding", daemons.SSHDConfig{
			Account: user(nil),
			Options: []string{"MaxSessions 1", "DisableForwarding yes"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "one session, no forwarding" {
				needFull(t, "each restriction by itself")
			}
			t.Parallel()
			s := server(t, tt.config)
			h, err := ssh.Connect(t.Context(), target(t, s))
			if err != nil {
				t.Fatal(err)
			}
			const count = 6
			var all [count]*ssh.Environment
			var opening, going sync.WaitGroup
			for i := range count {
				c := config(t, ssh.Config{WorkDir: s.MakeDir(t)})
				opening.Go(func() {
					var err error
					if all[i], err = h.Open(t.Context(), c); err != nil {
						t.Error(err)
						return
					}
					does(t, all[i], "echo once >> count")
				})
			}
			if opening.Wait(); t.Failed() {
				return
			}
			s.Cut()
			for _, e := range all {
				going.Go(func() {
					does(t, e, "echo once >> again")
					once(t, e, "count")
					once(t, e, "again")
					if err := e.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
					nothingLeft(t, s, e.Session())
				})
			}
			going.Wait()
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, "the end of the connections", func() bool { return len(s.Sessions()) == 0 })
		})
	}
}

// TestSilentHost lists the environments of a host that sends nothing.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	if account() == nil {
		t.Skip("an account of its own needs root")
	}
	h := connect(t, target(t, server(t, daemons.SSHDConfig{
		Account: &daemons.Account{},
		Options: []string{"ForceCommand sleep 5"},
	})))
	h.SetScriptTimeout(500 * time.Millisecond)
	if _, err := h.List(t.Context()); err == nil || !strings.Contains(err.Error(),
		"no answer within") {
		t.Errorf("list: %v", err)
	}
	ticket := ssh.Ticket{
		Ticket: remote.Ticket{Session: "x", Token: "z", TTL: time.Minute},
		Dir:    "/tmp/x", Program: "/tmp/y",
	}
	if _, err := h.Attach(t.Context(), ticket); err == nil || !strings.Contains(err.Error(),
		"no answer within") {
		t.Errorf("attach: %v", err)
	}
}

// TestDamagedDirectory lets a directory among those of the environments have a name that none of
// them has.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	if account() == nil {
		t.Skip("an account of its own needs root")
	}
	s := server(t, daemons.SSHDConfig{Account: &daemons.Account{}})
	h := connect(t, target(t, s))
	e := open(t, h, ssh.Config{})
	script := "d=$(dirname /tmp/sandboxagent-$(id -u)/e-*/s); mkdir -m 700 ${d%/*}/e-BAD_x; echo " +
		"begun nonsense >${d%/*}/e-BAD_x/about"
	if res, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", script}}); err != nil ||
		res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	list, err := h.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Session != e.Session() {
		t.Errorf("%+v, %v", list, err)
	}
	if done, err := h.Collect(t.Context(), remote.CollectOptions{}); err != nil || len(done) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if res, err := e.Exec(t.Context(), env.Command{Argv: []string{
		"sh", "-c",
		"rm -r /tmp/sandboxagent-$(id -u)*/e-BAD_x",
	}}); err != nil || res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestSessionIsTaken opens two environments of one name.
func TestSessionIsTaken(t *testing.T) {
	t.Parallel()
	h := connect(t, target(t, server(t, daemons.SSHDConfig{Account: account()})))
	e := open(t, h, ssh.Config{
		Options: remote.Options{Session: "same"},
	})
	_, err := h.Open(t.Context(), config(t, ssh.Config{
		Options: remote.Options{Session: "same"},
	}))
	if config := (*ssh.ConfigError)(nil); !errors.As(err, &config) || config.Field != "session" {
		t.Errorf("%T %v", err, err)
	}
	if _, err := e.Stat(t.Context(), "."); err != nil {
		t.Errorf("the first: %v", err)
	}
}

// TestHelperDir opens environments on hosts whose home directory cannot hold the helper.
func TestHelperDir(t *testing.T) {
	t.Parallel()
	if account() == nil {
		t.Skip("an account of its own needs root")
	}
	s := server(t, daemons.SSHDConfig{Account: &daemons.Account{Home: daemons.HomeNoexec}})
	h := connect(t, target(t, s))
	dir := s.MakeDir(t)
	e := open(t, h, ssh.Config{HelperDir: dir})
	does(t, e, "true")
	if files, _ := filepath.Glob(dir + "/sandboxagent-*/sandboxd-*"); len(files) != 1 {
		t.Errorf("%s has %v", dir, files)
	}
	for name, want := range map[string]string{
		"in/home": s.Home() + "/in/home/sandboxagent-",
		"/proc":   "/proc/sandboxagent-",
	} {
		_, err := h.Open(t.Context(), config(t, ssh.Config{HelperDir: name}))
		var none *ssh.HelperDirError
		if !errors.As(err, &none) || len(none.Dirs) != 1 || !strings.HasPrefix(none.Dirs[0], want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHelperIsBuilt opens an environment without a configured or embedded helper: the Go toolchain
// builds one when the host has named its processor.
func TestHelperIsBuilt(t *testing.T) {
	t.Parallel()
	none := remote.Helper{NoBuild: true}
	if _, err := none.Resolve(t.Context(), "linux", runtime.GOARCH); err == nil {
		t.Skip("a helper is embedded")
	}
	h := connect(t, target(t, server(t, daemons.SSHDConfig{Account: account()})))
	e, err := h.Open(t.Context(), ssh.Config{
		Options: remote.Options{Helper: remote.Helper{Cache: t.TempDir()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	does(t, e, "true")
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoHelper opens an environment on a host without a helper for its processor.
func TestNoHelper(t *testing.T) {
	t.Parallel()
	none := remote.Helper{NoBuild: true}
	if _, err := none.Resolve(t.Context(), "linux", runtime.GOARCH); err == nil {
		t.Skip("a helper is embedded")
	}
	h := connect(t, target(t, server(t, daemons.SSHDConfig{Account: account()})))
	_, err := h.Open(t.Context(), ssh.Config{Options: remote.Options{Helper: none}})
	var missing *remote.MissingHelperError
	var start *ssh.StartError
	if !errors.As(err, &missing) || missing.Arch != runtime.GOARCH || !errors.As(err, &start) {
		t.Error(err)
	}
}

// TestNoDigest opens an environment on a host that has nothing to verify the helper with.
func TestNoDigest(t *testing.T) {
	t.Parallel()
	if account() == nil {
		t.Skip("an account of its own needs root")
	}
	s := server(t, daemons.SSHDConfig{Account: &daemons.Account{}})
	bin := s.MakeDir(t)
	if err := os.Chmod(bin, 0o755); err != nil { //nolint:gosec // another user looks there
		t.Fatal(err)
	}
	for _, tool := range []string{
		"id", "uname", "ls", "mkdir", "mktemp", "chmod", "rm", "sed", "find",
		"cat", "sh",
	} {
		name, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(name, filepath.Join(bin, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	poor := server(t, daemons.SSHDConfig{Account: &daemons.Account{}, Vars: []string{"PATH=" + bin}})
	_, err := connect(t, target(t, poor)).Open(t.Context(), config(t, ssh.Config{}))
	if err == nil || !strings.Contains(err.Error(), "sha256sum") {
		t.Errorf("%v", err)
	}
}

// TestNoCommands opens an environment where no command of the user's choice is run. The error says
// what happened.
func TestNoCommands(t *testing.T) {
	t.Parallel()
	if account() == nil {
		t.Skip("an account of its own needs root")
	}
	for _, tt := range []struct {
		name, shell string
		options     []string
		want        string
	}{
		{"another command", "", []string{"ForceCommand echo no way"}, "no way"},
		{"files only", "", []string{"ForceCommand internal-sftp"}, "sftp connections only"},
		{"false", "/bin/false", nil, ""},
		{"nologin", "/usr/sbin/nologin", nil, "This account is currently not available"},
		// They know the mark: it is in the first line that they are told.
		{"hostile", "", []string{`ForceCommand read -r l; eval "$l"; echo "$m "; sleep 1`}, ""},
		{"hostile about where", "", []string{`ForceCommand read -r l; eval "$l"; echo "$m run a b"; sleep 1`}, ""},
		{
			"silent", "",
			[]string{"ForceCommand while ! [ -e ~/gate ]; do sleep 0.1; done"},
			"not ready within 2s",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := server(t, daemons.SSHDConfig{
				Account: &daemons.Account{Shell: tt.shell},
				Options: tt.options,
			})
			var c ssh.Config
			if tt.name == "silent" {
				c.StartTimeout = 2 * time.Second
			}
			h := connect(t, target(t, s))
			_, err := h.Open(t.Context(), config(t, c))
			var start *ssh.StartError
			if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, &start) {
				t.Errorf("%T %v", err, err)
			}
			// the command waits for it
			if err := os.WriteFile(filepath.Join(s.Home(), "gate"), nil, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
}
