package daemons

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// SSHDConfig says how a server is started. The zero value is an OpenSSH server that lets the user
// of the tests in.
type SSHDConfig struct {
	// Account is the user that is let in; nil means the user of the tests. It needs root, and Linux.
	Account *Account
	// Options are lines of sshd_config that come before the server's own, and so count. With Dropbear
	// they are arguments of it.
	Options []string
	// Vars are what commands get, as "NAME=value".
	Vars []string
	// HostKeys are the kinds of the server's keys: "ed25519", "ecdsa", "rsa"; default is the first.
	HostKeys []string
	// Sftp says what serves files; default is SftpInternal, and with Dropbear SftpServer.
	Sftp SftpKind
	// Dropbear starts dropbear in the place of OpenSSH. It reads .ssh/authorized_keys in the user's
	// home, so it needs an account that has one, and lets nobody in whose shell is not in /etc/shells.
	Dropbear bool
}

// SftpKind says what serves files to the clients of a server.
type SftpKind string

const (
	// SftpInternal is a part of OpenSSH, which no login shell has a part in.
	SftpInternal SftpKind = "internal"
	// SftpServer is a program that the login shell starts.
	SftpServer SftpKind = "server"
	// SftpNone leaves clients without it: OpenSSH refuses, and dropbear starts a program that is not
	// there.
	SftpNone SftpKind = "none"
)

// Account is a user that one server and what it starts see, and the rest of the machine does not.
type Account struct {
	// Name is what the user is called; default is "root" for one with its rights, and "tester" for
	// others.
	Name string
	// Shell is the login shell; default /bin/bash.
	Shell string
	// Profile has the files of the home by their slash-separated names, such as ".bashrc".
	Profile map[string]string
	// Home says what the home is like; default HomeNormal.
	Home HomeKind
	// Root gives the user the rights of root.
	Root bool
}

// HomeKind says what the home of an account is like. All that the server starts sees it so; the
// tests see an ordinary folder at the same place.
type HomeKind string

const (
	// HomeNormal is a folder that belongs to the user.
	HomeNormal HomeKind = "normal"
	// HomeNoexec has no programs that can be run.
	HomeNoexec HomeKind = "noexec"
	// HomeReadOnly cannot be written to.
	HomeReadOnly HomeKind = "read-only"
	// HomeMissing is not there.
	HomeMissing HomeKind = "missing"
)

// errNoSSHD says that a server cannot be started here.
var errNoSSHD = errors.New("no ssh server can be started")

// NewSSHD starts a server for one test, and stops it with its connections afterwards. Where none
// can be started the test is skipped, or fails if the variable SANDBOXAGENT_REQUIRE holds ssh. A
// test that wants an account is skipped where the tests do not run as root.
func NewSSHD(t testing.TB, config SSHDConfig) *SSHD {
	t.Helper()
	config = config.complete()
	if err := config.validate(); err != nil {
		t.Fatal(err)
	}
	if config.Account != nil && os.Geteuid() != 0 {
		t.Skip("an account of its own needs root")
	}
	s, err := startSSHD(t.Context(), config)
	if errors.Is(err, errNoSSHD) {
		Missing(t, "ssh", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			said := s.Log()
			t.Logf("the last words of the ssh server:\n%s", said[max(0, len(said)-4096):])
		}
		s.Stop()
		if err := s.remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// complete returns the configuration with all defaults.
func (c SSHDConfig) complete() SSHDConfig {
	if len(c.HostKeys) == 0 {
		c.HostKeys = []string{"ed25519"}
	}
	if c.Sftp == "" {
		c.Sftp = SftpInternal
		if c.Dropbear {
			c.Sftp = SftpServer
		}
	}
	if c.Account == nil {
		return c
	}
	a := *c.Account
	if a.Name == "" {
		a.Name = "tester"
		if a.Root {
			a.Name = "root"
		}
	}
	if a.Shell == "" {
		a.Shell = "/bin/bash"
	}
	if a.Home == "" {
		a.Home = HomeNormal
	}
	c.Account = &a
	return c
}

// validate reports what no server can be.
func (c SSHDConfig) validate() error {
	for _, kind := range c.HostKeys {
		if !slices.Contains([]string{"ed25519", "ecdsa", "rsa"}, kind) {
			return fmt.Errorf("sshd: no host keys are of kind %q", kind)
		}
	}
	if !slices.Contains([]SftpKind{SftpInternal, SftpServer, SftpNone}, c.Sftp) {
		return fmt.Errorf("sshd: nothing serves files as %q", c.Sftp)
	}
	a := c.Account
	if c.Dropbear && (a == nil || a.Home == HomeMissing || c.Sftp == SftpInternal) {
		return errors.New("sshd: dropbear needs an account with a home, and has no sftp of its own")
	}
	if a == nil {
		return nil
	}
	if !slices.Contains([]HomeKind{HomeNormal, HomeNoexec, HomeReadOnly, HomeMissing}, a.Home) {
		return fmt.Errorf("sshd: no home is %q", a.Home)
	}
	if strings.ContainsAny(a.Name+a.Shell, ":\n") || !path.IsAbs(a.Shell) {
		return fmt.Errorf("sshd: the account %q with the shell %q cannot be", a.Name, a.Shell)
	}
	if a.Home == HomeMissing && len(a.Profile) > 0 {
		return errors.New("sshd: a home that is missing has no files")
	}
	return nil
}
