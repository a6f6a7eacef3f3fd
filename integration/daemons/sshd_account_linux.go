package daemons

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// accountFiles are the files in /etc that list accounts.
var accountFiles = [...]string{"passwd", "shadow", "group"}

// takeUser makes the server admit the user of the tests.
func (s *SSHD) takeUser() error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	s.user, s.home, s.uid = me.Username, me.HomeDir, os.Geteuid()
	known, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(known)) {
		words := strings.Split(strings.TrimSpace(line), ":")
		if words[0] != s.user {
			continue
		}
		if shell := filepath.Base(words[len(words)-1]); shell == "nologin" || shell == "false" {
			return fmt.Errorf("%w: the login shell of %s is %s", errNoSSHD, s.user, shell)
		}
	}
	return nil
}

// addAccount makes the account's home, and copies of accountFiles with the account.
func (s *SSHD) addAccount() error {
	a := s.config.Account
	s.user, s.home = accountName, s.file("home")
	if err := passable(s.dir); err != nil {
		return err
	}
	if err := s.claimNumber(); err != nil {
		return err
	}
	for i, line := range []string{
		fmt.Sprintf("%s:x:%[2]d:%[2]d::%[3]s:%[4]s", s.user, s.uid, s.home, a.Shell),
		s.user + ":*:19000:0:99999:7:::", // a mark of a locked account would keep keys out, too
		fmt.Sprintf("%s:x:%d:", s.user, s.uid),
	} {
		if err := s.copyAccounts(accountFiles[i], line); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(s.home, 0o700), os.Chown(s.home, s.uid, s.uid)); err != nil {
		return err
	}
	for name, text := range a.Profile {
		if err := s.writeHome(name, text); err != nil {
			return err
		}
	}
	if s.config.Dropbear {
		return s.writeHome(".ssh/authorized_keys", "")
	}
	return nil
}

// claimNumber gives the account a UID that no user of the machine has, and no other test while the
// server exists: the claim is an abstract socket, which ends with its process at the latest.
func (s *SSHD) claimNumber() error {
	for {
		s.uid = 42_000 + rand.IntN(18_000)
		claim, err := net.Listen("unix", fmt.Sprintf("@sandboxagent-test-account-%d", s.uid))
		if err == nil {
			s.claim = claim
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("sshd: claim a UID: %w", err)
		}
	}
}

// passable returns an error for a directory that ordinary users cannot reach.
func passable(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("sshd: %s closes the temporary directory to ordinary users", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// copyAccounts copies one of accountFiles with a new first line, which lookups by UID find first,
// and without other lines of that name.
func (s *SSHD) copyAccounts(name, line string) error {
	text, err := os.ReadFile(filepath.Join("/etc", name))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(line, ":")
	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"),
		func(l string) bool { return strings.HasPrefix(l, first+":") })
	return os.WriteFile(s.file(name), []byte(line+"\n"+strings.Join(lines, "")), 0o644)
}

// writeHome writes a file in the home, with its parents.
func (s *SSHD) writeHome(name, text string) error {
	path := s.home
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		path = filepath.Join(path, part)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.Chown(path, s.uid, s.uid); err != nil {
			return err
		}
	}
	path = filepath.Join(s.home, filepath.FromSlash(name))
	return errors.Join(os.WriteFile(path, []byte(text), 0o644), os.Chown(path, s.uid, s.uid))
}

// MakeDir makes an empty directory of the account, which is removed with the server.
func (s *SSHD) MakeDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(s.dir, "work-") //nolint:usetesting // the account can reach s.dir
	if err == nil {
		err = os.Chown(dir, s.uid, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// within returns the command that starts a server where the account exists: in a mount namespace,
// whose mounts end with the last process in it.
func (s *SSHD) within(argv []string) []string {
	script := []string{"set -e"}
	for _, name := range accountFiles {
		script = append(script, fmt.Sprintf("mount -n --bind '%s' '/etc/%s'", s.file(name), name))
	}
	option := ""
	switch s.config.Account.Home {
	case HomeNoexec:
		option = "noexec"
	case HomeReadOnly:
		option = "ro"
	case HomeNormal:
	}
	if option != "" {
		script = append(script, fmt.Sprintf("mount -n --bind '%[1]s' '%[1]s'", s.home),
			fmt.Sprintf("mount -n -o 'remount,bind,%s' '%s'", option, s.home))
	}
	if s.config.Dropbear && s.config.Sftp == SftpNone {
		script = append(script, fmt.Sprintf("mount -n -t tmpfs -o mode=755 none \"$(dirname "+
			"\"$(readlink -f %s)\")\"", dropbearSftp))
	}
	script = append(script, `exec "$@"`)
	return append([]string{"/bin/sh", "-c", strings.Join(script, "\n"), "sh"}, argv...)
}
