package ssh_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// withoutBubblewrap is a server on whose host no program bwrap can be executed.
func withoutBubblewrap(t *testing.T) *daemons.SSHD {
	t.Helper()
	return server(t, daemons.SSHDConfig{Options: []string{
		"ForceCommand unshare --mount sh -c 'for p in /usr/bin/bwrap /usr/local/bin/bwrap; do " +
			"test ! -e $p || mount --bind /dev/null $p || exit; done; exec sh -c \"$SSH_ORIGINAL_COMMAND\"'",
	}})
}

// temporary returns the directory for temporary files of the commands in e.
func temporary(t *testing.T, e env.Environment) string {
	t.Helper()
	dir := strings.TrimSpace(does(t, e, "echo $TMPDIR"))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() ||
		!strings.HasPrefix(filepath.Base(dir), "sandboxagent-tmp-") {
		t.Errorf("the directory for temporary files is %q: %v", dir, err)
	}
	return dir
}

// TestSandboxLandlock runs commands in the sandbox of a host without bubblewrap, which reports the
// promises that it does not enforce, leaves nothing, and is an error where one of them is required.
func TestSandboxLandlock(t *testing.T) {
	t.Parallel()
	needSandbox(t, sandbox.Landlock)
	s := withoutBubblewrap(t)
	work, h := repository(t, s), connect(t, target(t, s))
	e := open(t, h, ssh.Config{WorkDir: work, Sandbox: &env.Sandbox{Require: true}})
	for p, want := range map[env.GuaranteeName]env.Strength{
		env.Isolation: env.BestEffort, env.ConfinedWrites: env.Enforced, env.HiddenSecrets: env.Enforced,
		env.NoNetwork:   env.Enforced,
		env.NoNewRights: env.Enforced, env.HiddenProcesses: env.Absent, env.KeptHooks: env.Absent,
	} {
		if g := guarantee(e, p); g.Strength != want ||
			p == env.Isolation && !strings.Contains(g.By, "Landlock") {
			t.Errorf("want %s: %+v", want, g)
		}
	}
	does(t, e, `echo inside > file && echo x > "$TMPDIR/file"`)
	if got, err := os.ReadFile(filepath.Join(work, "file")); string(got) != "inside\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
	denied(t, e, s.Address(),
		`echo x > "$HOME/outside"`, `echo x > /tmp/outside`, `cat /etc/shadow`)
	other, err := connect(t, target(t, s)).Attach(t.Context(), ticket(t, e))
	if err != nil {
		t.Fatal(err)
	}
	does(t, other, "test -f file")
	if err := other.Leave(); err != nil {
		t.Error(err)
	}
	temp := temporary(t, e)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s, e.Session())
	if _, err := os.Lstat(temp); err == nil {
		t.Errorf("%s is left", temp)
	}

	for _, p := range []env.GuaranteeName{env.HiddenProcesses, env.KeptHooks} {
		_, err := h.Open(t.Context(), config(t, ssh.Config{
			WorkDir: work,
			Sandbox: &env.Sandbox{Enforce: []env.GuaranteeName{p}},
		}))
		var failed *ssh.OpenError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), string(p)) ||
			!strings.Contains(err.Error(), "bwrap is not a program") {
			t.Errorf("with %s demanded: %v", p, err)
		}
	}
}
