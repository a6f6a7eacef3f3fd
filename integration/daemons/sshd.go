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

// SSHDConfig configures a server. The zero value is an OpenSSH server that admits the user of the
// tests.
type SSHDConfig struct {
	// Account is the user that the server admits; nil is the user of the tests. It needs root.
	Account *Account
	// Options are lines of sshd_config that precede the server's defaults, so that they take effect,
	// or arguments of dropbear.
	Options []string
	// Vars are environment variables of commands, as "NAME=value".
	Vars []string
	// Sftp serves files; default is SftpInternal, with Dropbear SftpServer.
	Sftp SftpKind
	// Dropbear starts dropbear instead of OpenSSH. It reads .ssh/authorized_keys in the home, so it
	// needs an account, and refuses users whose shell is not in /etc/shells.
	Dropbear bool
}

// SftpKind is an SFTP server.
type SftpKind string

const (
	// SftpInternal is the part of OpenSSH that needs no login shell.
	SftpInternal SftpKind = "internal"
	// SftpServer is dropbear's, a program that the login shell starts.
	SftpServer SftpKind = "server"
	// SftpNone is none: OpenSSH refuses, and dropbear starts a missing program.
	SftpNone SftpKind = "none"
)

// accountName is the name of the user of an Account.
const accountName = "tester"

// Account is an ordinary user that only one server and its processes see.
type Account struct {
	// Shell is the login shell; default /bin/bash.
	Shell string
	// Profile maps slash-separated names in the home, such as ".bashrc", to contents.
	Profile map[string]string
	// Home is the kind of home directory; default HomeNormal.
	Home HomeKind
}

// HomeKind is a kind of home directory, as the server's processes see it. The tests see an ordinary
// directory of the same name.
type HomeKind string

const (
	// HomeNormal is a directory that belongs to the user.
	HomeNormal HomeKind = "normal"
	// HomeNoexec is mounted noexec.
	HomeNoexec HomeKind = "noexec"
	// HomeReadOnly is mounted read-only.
	HomeReadOnly HomeKind = "read-only"
)

// errNoSSHD means that this machine cannot start a server.
var errNoSSHD = errors.New("no ssh server can be started")

// NewSSHD starts a server for one test, and stops it with its connections afterwards. Where none
// can be started the test is skipped, or fails if the variable SANDBOXAGENT_REQUIRE holds ssh. A
// test with an account is skipped without root.
func NewSSHD(t testing.TB, config SSHDConfig) *SSHD {
	t.Helper()
	config = config.complete()
	if err := config.validate(); err != nil {
		t.Fatal(err)
	}
	if config.Account != nil && os.Geteuid() != 0 {
		t.Skip("an account needs root")
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
			log := s.Log()
			t.Logf("the end of the ssh server's log:\n%s", log[max(0, len(log)-4096):])
		}
		s.Stop()
		if err := s.remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// complete sets all defaults.
func (c SSHDConfig) complete() SSHDConfig {
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
	if a.Shell == "" {
		a.Shell = "/bin/bash"
	}
	if a.Home == "" {
		a.Home = HomeNormal
	}
	c.Account = &a
	return c
}

// validate reports the first invalid field of c.
func (c SSHDConfig) validate() error {
	if !c.Dropbear && c.Sftp == SftpServer {
		return errors.New("sshd: only dropbear serves files by a program")
	}
	a := c.Account
	if c.Dropbear && (a == nil || c.Sftp == SftpInternal) {
		return errors.New("sshd: dropbear needs an account, and has no sftp server")
	}
	if a == nil {
		return nil
	}
	if !slices.Contains([]HomeKind{HomeNormal, HomeNoexec, HomeReadOnly}, a.Home) {
		return fmt.Errorf("sshd: unknown kind of home %q", a.Home)
	}
	if strings.ContainsAny(a.Shell, ":\n") || !path.IsAbs(a.Shell) {
		return fmt.Errorf("sshd: invalid shell %q", a.Shell)
	}
	return nil
}
