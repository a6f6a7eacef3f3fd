package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// sshOfProofs is the host of the sessions of TestDoDOnSSH while that runs.
var sshOfProofs atomic.Pointer[ssh.Host]

// hostCanary is a secret variable of the account of TestDoDOnSSH.
const hostCanary = "SANDBOXAGENT_HOST_API_KEY"

// TestDoDOnSSH proves the definition of done with all sessions on a remote host.
func TestDoDOnSSH(t *testing.T) {
	t.Parallel()
	s := daemons.NewSSHD(t, daemons.SSHDConfig{
		Vars: []string{"PATH=" + os.Getenv("PATH"), hostCanary + "=canary-value-of-the-host"},
	})
	login := exec.CommandContext(t.Context(), filepath.Join(s.Client(t), "ssh"), "-T", s.Host(), "env")
	if out, err := login.Output(); err != nil ||
		!strings.Contains(string(out), hostCanary+"=canary-value-of-the-host\n") {
		t.Fatalf("a login has no secret: %v\n%s", err, out)
	}
	host := logIn(t, s)
	sshOfProofs.Store(host)
	proveElsewhere(t)
}

// logIn logs in to a server of the tests.
func logIn(t testing.TB, s *daemons.SSHD) *ssh.Host {
	t.Helper()
	h, err := ssh.Connect(t.Context(), ssh.Target{
		Host: s.User() + "@" + s.Address(), ConfigFile: os.DevNull, Identities: []string{s.Key()},
		KnownHosts: s.KnownHosts(), Timeout: 2 * time.Minute, // the machine may be busy
	})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, h)
	return h
}

// openOnHost opens an environment in a directory of the host of TestDoDOnSSH, which is this
// machine.
func openOnHost(t testing.TB, dir string) env.Environment {
	t.Helper()
	e, err := sshOfProofs.Load().Open(t.Context(), ssh.Config{
		Options: remote.Options{
			Helper: remote.Helper{Binary: command(t), Args: []string{"__sandboxd"}},
		},
		WorkDir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, e)
	return e
}

// hostFlags are the flags of the program for a server of the tests.
func hostFlags(s *daemons.SSHD) []string {
	return []string{
		"--env=ssh", "--host=" + s.User() + "@" + s.Address(), "--identity=" + s.Key(),
		"--known-hosts=" + s.KnownHosts(),
	}
}

// onHost reports whether the sessions of a test are on a host over SSH.
func onHost(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestDoDOnSSH/") }
