package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// sshd starts a server for the user of the tests, whose commands have the PATH of the tests.
func sshd(t testing.TB, c daemons.SSHDConfig) *daemons.SSHD {
	t.Helper()
	c.Vars = append(c.Vars, "PATH="+os.Getenv("PATH"))
	return daemons.NewSSHD(t, c)
}

// TestSSHRepository works on a real repository in place, and runs the demonstration.
func TestSSHRepository(t *testing.T) {
	t.Parallel()
	s := sshd(t, daemons.SSHDConfig{})
	t.Run("helper", func(t *testing.T) {
		proveInPlace(t, func(dir string) []string { return append(hostFlags(s), "--workdir="+dir) })
	})
	t.Run("demo", func(t *testing.T) { proveDemoOverSSH(t) })
}

// proveDemoOverSSH runs the demonstration. The go command of the host uses the build cache of the
// tests, for a new one makes it compile the standard library.
func proveDemoOverSSH(t *testing.T) {
	dir := t.TempDir()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.CommandContext(t.Context(), goTool, "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	script := fmt.Sprintf("#!/bin/sh\npwd >>%s\nGOCACHE=%s exec %s \"$@\"\n", work,
		strings.TrimSpace(string(cache)), goTool)
	name := filepath.Join(dir, "go")
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	// The shell of the host reads no profile of the user, which may set PATH.
	vars := []string{"HOME=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH")}
	s := daemons.NewSSHD(t, daemons.SSHDConfig{Vars: vars})
	got := runCommand(t, t.TempDir(), nil, append([]string{"demo"}, hostFlags(s)...)...)
	if got.code != 0 || !strings.Contains(got.stdout, "\n+++ b/") {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	dirs, err := os.ReadFile(work)
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.FieldsSeq(string(dirs)) {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("the directory %s is left", dir)
		}
	}
}

// TestSSHMessages checks messages and exit codes of mistakes and failures.
func TestSSHMessages(t *testing.T) {
	t.Parallel()
	s := sshd(t, daemons.SSHDConfig{Options: []string{"Banner none"}})
	changed := sshd(t, daemons.SSHDConfig{})
	if err := changed.NewHostKey(); err != nil {
		t.Fatal(err)
	}
	refusing := sshd(t, daemons.SSHDConfig{})
	if err := refusing.Revoke(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	empty, locked := filepath.Join(dir, "known"), filepath.Join(dir, "locked")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(s.Key())
	if err == nil {
		err = os.WriteFile(locked, key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-p", "-N", "secret", "-f",
		locked).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	flags := func(s *daemons.SSHD, more ...string) []string { return append(hostFlags(s), more...) }
	for _, tt := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"no host", []string{"--env=ssh"}, []string{"--host is missing"}},
		{
			"another backend",
			[]string{"--env=local", "--host=x"},
			[]string{"--host has no effect with --env=local; it is for --env=ssh"},
		},
		{
			"a limit without enforcement", flags(s, "--memory=1GiB"),
			[]string{"--memory has no effect with --env=ssh; it is for --env=docker"},
		},
		{"a network without a sandbox", flags(s, "--network=none"), []string{
			"no sandbox works on this machine", "home directory",
		}},
		{"apply", flags(s, "--apply"), []string{"--apply has no effect with --env=ssh"}},
		{"variables of this machine", flags(s, "--inherit-vars=all"), []string{"--pass-var"}},
		{"unknown host", flags(s, "--known-hosts="+empty), []string{"SHA256:", "--accept-new-host-key"}},
		{"changed key", flags(changed), []string{"SHA256:", changed.KnownHosts() + ":1"}},
		{
			"changed key, and new ones are accepted", flags(changed, "--accept-new-host-key"),
			[]string{"SHA256:", changed.KnownHosts() + ":1"},
		},
		{"no key is taken", flags(refusing), []string{
			"takes none of the keys", refusing.Key(), "authorized_keys",
		}},
		{"locked key", []string{"--env=ssh", "--host=" + s.User() + "@" + s.Address(), "--known-hosts=" +
			s.KnownHosts(), "--identity=" + locked}, []string{locked, "ssh-agent"}},
		{"missing key", flags(s, "--identity="+filepath.Join(dir, "none")), []string{
			"--identity", "none",
		}},
		{
			"refused port",
			[]string{"--env=ssh", "--host=127.0.0.1:1", "--known-hosts=" + empty},
			[]string{"127.0.0.1:1", "refused"},
		},
		{
			"no such directory", flags(s, "--workdir=/nowhere/at/all"),
			[]string{"/nowhere/at/all does not exist"},
		},
		{
			"no such directory to write", flags(s, "--workdir="+dir, "--allow-write=none/at/all"),
			[]string{"--allow-write", "none/at/all", "must exist on the host"},
		},
		{
			"a directory that holds no helper", flags(s, "--helper-dir=/proc"),
			[]string{"tried /proc/sandboxagent-", "--helper-dir DIR"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vars := []string{"SSH_AUTH_SOCK=", "HOME=" + dir, "SANDBOXAGENT_STATE_DIR=" + dir}
			cmd := exec.CommandContext(t.Context(), command(t), append(append([]string{"exec"}, tt.flags...),
				"--", "true")...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), vars...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
			got := finish(t, cmd)
			if got.code != 125 || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
				t.Errorf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
			}
			wantContains(t, "the message", got.stderr, tt.want...)
		})
	}
	t.Run("a model without consent", func(t *testing.T) {
		got := runCommand(t, dir, nil, append(append([]string{"run"}, hostFlags(s)...),
			"--model=script:none", "do it")...)
		if got.code != 2 {
			t.Errorf("exit code %d: %s", got.code, got.stderr)
		}
	})
}

// TestSSHCommands runs each command that works with an environment on a host.
func TestSSHCommands(t *testing.T) {
	t.Parallel()
	// an account whose environments are those of this test alone
	s := sshd(t, daemons.SSHDConfig{Account: &daemons.Account{}})
	state := "SANDBOXAGENT_STATE_DIR=" + t.TempDir()
	call := func(t *testing.T, args ...string) ran {
		t.Helper()
		return runCommand(t, t.TempDir(), []string{state, "CANARY=1", "PASSED=2"}, args...)
	}
	on := func(command string, args ...string) []string {
		return append(append([]string{command}, hostFlags(s)...), args...)
	}
	t.Run("exec", func(t *testing.T) {
		dir := s.MakeDir(t)
		got := call(t, on("exec", "--workdir="+dir, "--pass-var=PASSED", "--", "sh", "-c",
			"pwd; env | grep -E 'CANARY|PASSED'; exit 7")...)
		if got.code != 7 || got.stdout != dir+"\nPASSED=2\n" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("tool", func(t *testing.T) {
		dir := s.MakeDir(t)
		name := filepath.Join(dir, "a")
		if err := os.WriteFile(name, []byte("needle\n"), 0o644); err != nil { //nolint:gosec // public
			t.Fatal(err)
		}
		got := call(t, on("tool", "grep", "--workdir="+dir, `--args={"pattern":"needle"}`)...)
		if got.code != 0 || !strings.Contains(got.stdout, "a:1:needle") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("verify", func(t *testing.T) {
		got := call(t, on("env verify")...)
		if got.code != 1 || !strings.Contains(got.stdout, "isolation") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("keep, list, attach, gc", func(t *testing.T) {
		mark := fmt.Sprint(time.Now().UnixNano())
		got := call(t, on("exec", "--keep", "--ttl=2m", "--", "sh", "-c",
			"sleep "+mark+" >/dev/null 2>&1 &")...)
		if got.code != 0 || !strings.Contains(got.stderr, "env attach ") {
			t.Fatalf("%+v", got)
		}
		_, id, _ := strings.Cut(got.stderr, "env attach ")
		id, _, _ = strings.Cut(id, `"`)
		if got := call(t, on("env list")...); got.code != 0 || !strings.Contains(got.stdout,
			id+"  running") {
			t.Errorf("%+v", got)
		}
		got = call(t, "env", "attach", id, "--", "sh", "-c",
			"pgrep -f 'slee[p] "+mark+"' >/dev/null && echo there; exit 5")
		if got.code != 5 || got.stdout != "there\n" {
			t.Errorf("%+v", got)
		}
		if got := call(t, on("env gc")...); got.code != 0 || got.stdout != "" {
			t.Errorf("a running environment was removed: %+v", got)
		}
		if got := call(t, on("env gc", "--all", "--dry-run")...); got.code != 0 ||
			!strings.Contains(got.stdout, "would remove environment "+id) {
			t.Errorf("%+v", got)
		}
		if got := call(t, on("env gc", "--all")...); got.code != 0 || !strings.Contains(got.stdout,
			"removed environment "+id) {
			t.Errorf("%+v", got)
		}
		if running(mark) {
			t.Error("a process is left")
		}
		if got := call(t, "env", "attach", id[:8], "--", "true"); got.code != 125 ||
			!strings.Contains(got.stderr, "gone") {
			t.Errorf("%+v", got)
		}
		if got := call(t, "env", "attach", id, "--", "true"); got.code != 125 ||
			!strings.Contains(got.stderr, "has ended") {
			t.Errorf("%+v", got)
		}
	})
}

// TestSSHExisting acts in an environment that was kept, which stays until it is removed.
func TestSSHExisting(t *testing.T) {
	t.Parallel()
	s := sshd(t, daemons.SSHDConfig{Account: &daemons.Account{}})
	proveExisting(t, nil, append(hostFlags(s), "--workdir="+s.MakeDir(t)))
}

// TestSSHKilled kills the program while a command works that leaves processes in every way. After
// the TTL nothing is left.
func TestSSHKilled(t *testing.T) {
	t.Parallel()
	s := sshd(t, daemons.SSHDConfig{Account: &daemons.Account{}})
	p := &program{marker: newMark()}
	p.Cmd = exec.CommandContext(t.Context(), command(t), slices.Concat([]string{"exec"},
		hostFlags(s), []string{"--ttl=1s", "--", "/bin/sh", "-c", p.strays() + "; sleep 100"})...)
	p.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+t.TempDir())
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the processes", func() bool { return len(p.left()) > 3 })
	_ = p.Process.Signal(syscall.SIGKILL)
	_ = p.Wait()
	await(t, "the end of all processes", func() bool {
		return len(p.left()) == 0 && len(s.Processes()) == 0
	})
	await(t, "the end of their directory", func() bool {
		left, _ := filepath.Glob(fmt.Sprintf("/tmp/sandboxagent-%d/e-*", owner(t, s.Home())))
		return len(left) == 0
	})
}

// owner returns the user that a file belongs to.
func owner(t *testing.T, name string) uint32 {
	t.Helper()
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("the system reports no owner")
	}
	return stat.Uid
}
