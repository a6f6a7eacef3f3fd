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

// accountFiles are the files of the machine that tell who there is.
var accountFiles = [...]string{"passwd", "shadow", "group"}

// takeUser makes the user of the tests the one that is let in.
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

// addAccount makes the account's home, and copies of the machine's files in which it stands.
func (s *SSHD) addAccount() error {
	a := s.config.Account
	s.user, s.home = a.Name, s.file("home")
	gid, group := 0, "root"
	if !a.Root {
		if err := passable(s.dir); err != nil {
			return err
		}
		if err := s.claimNumber(); err != nil {
			return err
		}
		gid, group = s.uid, a.Name
	}
	for i, line := range []string{
		fmt.Sprintf("%s:x:%d:%d::%s:%s", a.Name, s.uid, gid, s.home, a.Shell),
		a.Name + ":*:19000:0:99999:7:::", // a mark of a locked account would keep keys out, too
		fmt.Sprintf("%s:x:%d:", group, gid),
	} {
		if err := s.copyAccounts(accountFiles[i], line); err != nil {
			return err
		}
	}
	if a.Home == HomeMissing {
		return nil
	}
	if err := errors.Join(os.Mkdir(s.home, 0o700), os.Chown(s.home, s.uid, gid)); err != nil {
		return err
	}
	for name, text := range a.Profile {
		if err := s.writeHome(name, text, gid); err != nil {
			return err
		}
	}
	if s.config.Dropbear {
		return s.writeHome(".ssh/authorized_keys", "", gid)
	}
	return nil
}

// claimNumber gives the account a number that no user of the machine has, and no other test as long
// as the server is there. The claim is a name in the memory of the kernel, which goes with its
// process at the latest.
func (s *SSHD) claimNumber() error {
	for {
		s.uid = 42_000 + rand.IntN(18_000)
		claim, err := net.Listen("unix", fmt.Sprintf("@sandboxagent-test-account-%d", s.uid))
		if err == nil {
			s.claim = claim
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("sshd: claim a number for the account: %w", err)
		}
	}
}

// passable reports a folder that ordinary users cannot reach.
func passable(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("sshd: the folder for temporary files is closed to ordinary users by %s", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// copyAccounts copies a file of the machine's accounts. The new line comes first, so that it is the
// one that is found by number, and others of that name are left out.
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

// writeHome writes a file of the home, with its folders.
func (s *SSHD) writeHome(name, text string, gid int) error {
	place := s.home
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		place = filepath.Join(place, part)
		if err := os.Mkdir(place, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.Chown(place, s.uid, gid); err != nil {
			return err
		}
	}
	place = filepath.Join(s.home, filepath.FromSlash(name))
	return errors.Join(os.WriteFile(place, []byte(text), 0o644), os.Chown(place, s.uid, gid))
}

// MakeFolder makes an empty folder of the user's own, which goes with the server.
func (s *SSHD) MakeFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(s.dir, "work-") //nolint:usetesting // the account sees what is in the folder of the server
	if err == nil {
		err = os.Chown(dir, s.uid, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// within returns the command that starts a server, in a mount namespace of its own, where the
// account is: its mounts are seen by the server and what it starts, and end with the last of these.
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
	case HomeNormal, HomeMissing:
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
