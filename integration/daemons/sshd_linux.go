package daemons

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// SSHD is an sshd on a free port of 127.0.0.1 that lets the user of the tests in with a key of its own. Its methods may be
// called concurrently.
type SSHD struct {
	dir  string
	port int
	user string
	ssh  string // the program of the client
	cmd  *exec.Cmd
	done chan struct{}
}

// NewSSHD starts a server for one test, and stops it with its sessions afterwards. Commands get vars, as "NAME=value".
// Where none can be started the test is skipped, or fails if the variable SANDBOXAGENT_REQUIRE holds docker.
func NewSSHD(t testing.TB, vars ...string) *SSHD {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil { // for users whose PATH lacks it
		program, err = exec.LookPath("/usr/sbin/sshd")
	}
	client, serr := exec.LookPath("ssh")
	if err != nil || serr != nil {
		Missing(t, "the packages openssh-server and openssh-client are needed")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &SSHD{dir: t.TempDir(), user: me.Username, ssh: client}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := s.start(t, program, vars); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			said, _ := os.ReadFile(s.file("log")) // the folder is there until the test ends
			t.Logf("the last words of sshd:\n%s", said[max(0, len(said)-4096):])
		}
	})
	return s
}

// prepare makes the keys and the files of the client.
func (s *SSHD) prepare() error {
	for _, key := range []string{"host", "user"} {
		if err := run(exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.file(key))); err != nil {
			return err
		}
	}
	public, err := os.ReadFile(s.file("user.pub"))
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 { // where it locks its unprivileged part in
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(s.file("authorized_keys"), public, 0o600)
}

// start starts the server. Another process may take the port before it does, which is why it tries again.
func (s *SSHD) start(t testing.TB, program string, vars []string) error {
	var last error
	for range 5 {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		address, _ := free.Addr().(*net.TCPAddr)
		s.port = address.Port
		if err := errors.Join(free.Close(), s.write(vars)); err != nil {
			return err
		}
		if last = s.launch(t, program); last == nil {
			return nil
		}
	}
	return last
}

// write writes the configurations of server and client.
func (s *SSHD) write(vars []string) error {
	server := []string{
		"ListenAddress 127.0.0.1:" + strconv.Itoa(s.port), "HostKey " + s.file("host"), "AuthorizedKeysFile " + s.file("authorized_keys"),
		"PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PermitRootLogin yes", "MaxStartups 100", "LogLevel VERBOSE",
	}
	if len(vars) > 0 { // only the first such line counts
		server = append(server, `SetEnv "`+strings.Join(vars, `" "`)+`"`)
	}
	client := []string{
		"IdentityFile " + s.file("user"), "IdentitiesOnly yes", "IdentityAgent none", "UserKnownHostsFile " + s.file("known_hosts"),
		"GlobalKnownHostsFile /dev/null",
	}
	public, err := os.ReadFile(s.file("host.pub"))
	if err != nil {
		return err
	}
	known := fmt.Sprintf("[127.0.0.1]:%d %s", s.port, public)
	return errors.Join(
		os.WriteFile(s.file("sshd_config"), []byte(strings.Join(server, "\n")+"\n"), 0o600),
		os.WriteFile(s.file("ssh_config"), []byte(strings.Join(client, "\n")+"\n"), 0o600),
		os.WriteFile(s.file("known_hosts"), []byte(known), 0o600),
	)
}

// launch starts the server and returns when it listens.
func (s *SSHD) launch(t testing.TB, program string) error {
	log, err := os.Create(s.file("log"))
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the server has it open
	s.done = make(chan struct{})
	s.cmd = exec.Command(program, "-D", "-e", "-f", s.file("sshd_config"))
	// It ends with the process of the tests, however that ends: with the thread that starts it, to be exact.
	s.cmd.Stderr, s.cmd.SysProcAttr = log, &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.done)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // one that was killed is no news
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	var said []byte
	listens := func() bool {
		said, err = os.ReadFile(s.file("log"))
		return err != nil || bytes.Contains(said, []byte("Server listening on"))
	}
	werr := wait(t.Context(), startTimeout, func() bool {
		select {
		case <-s.done:
			return true
		default:
			return listens()
		}
	})
	if err := errors.Join(err, werr); err != nil {
		s.Stop()
		return fmt.Errorf("start sshd: %w", err)
	}
	if !listens() {
		return fmt.Errorf("start sshd: it ended: %s", said)
	}
	return nil
}

func (s *SSHD) file(name string) string { return filepath.Join(s.dir, name) }

func (s *SSHD) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Host is the address of the server, as DOCKER_HOST has it.
func (s *SSHD) Host() string { return "ssh://" + s.user + "@" + s.address() }

// Client returns a folder with a program ssh, for the front of PATH, that knows the server and has its key. More are lines
// of its configuration that come first, and so count.
func (s *SSHD) Client(t testing.TB, more ...string) string {
	t.Helper()
	known, err := os.ReadFile(s.file("ssh_config"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' -F '%s/config' \"$@\"\n", s.ssh, dir)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "config"), append([]byte(strings.Join(more, "\n")+"\n"), known...), 0o600),
		os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Revoke makes the server let nobody in any more. Connections that there are stay.
func (s *SSHD) Revoke() error { return os.WriteFile(s.file("authorized_keys"), nil, 0o600) }

// Sessions are the processes of the connections that there are.
func (s *SSHD) Sessions() []int {
	var found []int
	for _, pid := range children(s.cmd.Process.Pid) {
		if title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(title) > 0 {
			found = append(found, pid)
		}
	}
	return found
}

// Cut ends all connections that there are. The server goes on.
func (s *SSHD) Cut() {
	for _, pid := range s.Sessions() {
		for _, below := range children(pid) { // the part without rights, which is the one that has the connection
			_ = unix.Kill(below, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

// Stop ends the server and all connections. Further calls do nothing.
func (s *SSHD) Stop() {
	select {
	case <-s.done:
		return
	default:
	}
	// The server first, so that nobody gets in meanwhile; it is waited for when its children are known.
	_ = unix.Kill(s.cmd.Process.Pid, unix.SIGSTOP)
	s.Cut()
	_ = unix.Kill(s.cmd.Process.Pid, unix.SIGKILL)
	<-s.done
}

// children returns the processes that a process has started.
func children(pid int) []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var found []int
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}
