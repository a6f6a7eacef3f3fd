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
		e := start(t, h, ssh.Config{})
		all = append(all, e)
	}
	if n := len(s.Sessions()); n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, e := range all { // they keep the connection
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
	for _, tt := range []struct {
		name, profile string
		sftp          daemons.SftpKind
		options       []string
	}{
		{name: "one session", options: []string{"MaxSessions 1"}},
		{name: "two sessions", options: []string{"MaxSessions 2"}},
		{name: "no sockets", options: []string{"AllowStreamLocalForwarding no"}},
		{name: "no forwarding", options: []string{"DisableForwarding yes", "AcceptEnv none"}},
		{
			name: "noisy, no forwarding", profile: noisyProfile, sftp: daemons.SftpNone,
			options: []string{"DisableForwarding yes"},
		},
		{name: "one session, no forwarding", options: []string{"MaxSessions 1", "DisableForwarding yes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "one session, no forwarding" {
				needFull(t, "each restriction by itself")
			}
			t.Parallel()
			c := daemons.SSHDConfig{Account: account(), Options: tt.options, Sftp: tt.sftp}
			if c.Account != nil && tt.profile != "" {
				c.Account.Profile = map[string]string{".bashrc": tt.profile}
			}
			s := server(t, c)
			h, err := ssh.Connect(t.Context(), target(t, s))
			if err != nil {
				t.Fatal(err)
			}
			var all [6]*ssh.Environment
			var opening, going sync.WaitGroup
			for i := range all {
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
	h := connect(t, target(t, server(t, daemons.SSHDConfig{
		Account: ownAccount(t),
		Options: []string{"ForceCommand sleep 2"},
	})))
	h.SetScriptTimeout(100 * time.Millisecond)
	_, listErr := h.List(t.Context())
	_, attachErr := h.Attach(t.Context(), ssh.Ticket{
		Ticket: remote.Ticket{Session: "x", Token: "z", TTL: time.Minute},
		Dir:    "/tmp/x", Program: "/tmp/y",
	})
	for _, err := range []error{listErr, attachErr} {
		if err == nil || !strings.Contains(err.Error(), "no answer within") {
			t.Error(err)
		}
	}
}

// TestDamagedDirectory lists environments beside a directory that is none.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: ownAccount(t)})
	h := connect(t, target(t, s))
	e := open(t, h, ssh.Config{})
	does(t, e, "d=$(dirname /tmp/sandboxagent-$(id -u)/e-*/s); mkdir -m 700 ${d%/*}/e-BAD_x; echo "+
		"begun nonsense >${d%/*}/e-BAD_x/about")
	list, err := h.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Session != e.Session() {
		t.Errorf("%+v, %v", list, err)
	}
	if done, err := h.Collect(t.Context(), remote.CollectOptions{}); err != nil || len(done) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	does(t, e, "rm -r /tmp/sandboxagent-$(id -u)*/e-BAD_x")
}

// TestSessionIsTaken opens two environments of one name.
func TestSessionIsTaken(t *testing.T) {
	t.Parallel()
	h := connect(t, target(t, server(t, daemons.SSHDConfig{Account: account()})))
	c := ssh.Config{Options: remote.Options{Session: "same"}}
	e := open(t, h, c)
	_, err := h.Open(t.Context(), config(t, c))
	if config := (*ssh.ConfigError)(nil); !errors.As(err, &config) || config.Field != "session" {
		t.Errorf("%T %v", err, err)
	}
	does(t, e, "true")
}

// TestSharedDirectoryRemoved opens an environment while another client removes the last one there,
// and with it the directory of both.
func TestSharedDirectoryRemoved(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	script := `#!/bin/sh
case $* in */sandboxagent-*/e-*) [ -e $0.done ] || { : >$0.done; rmdir "${2%/*}"; } ;; esac
exec /bin/mkdir "$@"
`
	//nolint:gosec // a program for all users
	err := errors.Join(os.Chmod(filepath.Dir(programs), 0o755), os.Chmod(programs, 0o777),
		os.WriteFile(filepath.Join(programs, "mkdir"), []byte(script), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	s := server(t, daemons.SSHDConfig{
		Account: ownAccount(t), Vars: []string{"PATH=" + programs + ":/usr/bin:/bin"},
	})
	e := open(t, connect(t, target(t, s)), ssh.Config{})
	does(t, e, "ls -d /tmp/sandboxagent-$(id -u)/e-* "+filepath.Join(programs, "mkdir.done"))
}

// TestHelperDir opens environments on hosts whose home directory cannot hold the helper.
func TestHelperDir(t *testing.T) {
	t.Parallel()
	a := ownAccount(t)
	a.Home = daemons.HomeNoexec
	s := server(t, daemons.SSHDConfig{Account: a})
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

// TestNoHelper opens environments without a configured or embedded helper: the Go toolchain builds
// one when the host has named its processor, unless that is disabled.
func TestNoHelper(t *testing.T) {
	t.Parallel()
	none := remote.Helper{NoBuild: true}
	if _, err := none.Resolve(t.Context(), "linux", runtime.GOARCH); err == nil {
		t.Skip("a helper is embedded")
	}
	h := connect(t, target(t, server(t, daemons.SSHDConfig{Account: account()})))
	_, err := h.Open(t.Context(), ssh.Config{Options: remote.Options{Helper: none}})
	var missing *remote.MissingHelperError
	var failed *ssh.OpenError
	if !errors.As(err, &missing) || missing.Arch != runtime.GOARCH || !errors.As(err, &failed) {
		t.Error(err)
	}
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

// TestNoDigest opens an environment on a host without a program that verifies the helper.
func TestNoDigest(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: ownAccount(t)})
	bin := s.MakeDir(t)
	if err := os.Chmod(bin, 0o755); err != nil { //nolint:gosec // another user looks there
		t.Fatal(err)
	}
	for tool := range strings.FieldsSeq("id uname ls mkdir mktemp chmod rm sed find cat sh") {
		name, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(name, filepath.Join(bin, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	poor := server(t, daemons.SSHDConfig{Account: ownAccount(t), Vars: []string{"PATH=" + bin}})
	_, err := connect(t, target(t, poor)).Open(t.Context(), config(t, ssh.Config{}))
	if err == nil || !strings.Contains(err.Error(), "sha256sum") {
		t.Errorf("%v", err)
	}
}

// TestNoCommands opens an environment where the server does not run the commands of the client. The
// error has their output.
func TestNoCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, shell string
		options     []string
		want        string
	}{
		{"another command", "", []string{"ForceCommand echo no way"}, "no way"},
		{"files only", "", []string{"ForceCommand internal-sftp"}, "sftp connections only"},
		{"false", "/bin/false", nil, ""},
		{"nologin", "/usr/sbin/nologin", nil, "This account is currently not available"},
		// They know the mark, which is in the first line of the script.
		{"hostile", "", []string{`ForceCommand read -r l; eval "$l"; echo "$m "; sleep 1`}, ""},
		{
			"hostile names", "",
			[]string{`ForceCommand read -r l; eval "$l"; echo "$m run a b"; sleep 1`},
			"",
		},
		{
			"silent", "",
			[]string{"ForceCommand while ! [ -e ~/gate ]; do sleep 0.1; done"},
			"not ready within 2s",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := ownAccount(t)
			a.Shell = tt.shell
			s := server(t, daemons.SSHDConfig{Account: a, Options: tt.options})
			var c ssh.Config
			if tt.name == "silent" {
				c.StartTimeout = 2 * time.Second
			}
			h := connect(t, target(t, s))
			_, err := h.Open(t.Context(), config(t, c))
			var failed *ssh.OpenError
			if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, &failed) {
				t.Errorf("%T %v", err, err)
			}
			// the silent command waits for it
			if err := os.WriteFile(filepath.Join(s.Home(), "gate"), nil, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
}
