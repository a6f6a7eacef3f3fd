package daemons

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// SSHD is an ssh server on a port of 127.0.0.1 that admits one user with one key. Its
// methods may be called concurrently, but Stop, Restart and NewHostKey follow one another.
type SSHD struct {
	config  SSHDConfig
	dir     string
	port    int
	user    string
	home    string
	uid     int       // of the account
	claim   io.Closer // of that number
	program string    // the server
	client  string    // the program ssh

	mu      sync.Mutex
	hostKey string // the public part
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
}

// startSSHD starts a server and returns when it listens. The caller calls Stop and remove.
func startSSHD(ctx context.Context, config SSHDConfig) (s *SSHD, err error) {
	s = &SSHD{config: config}
	if err := s.find(); err != nil {
		return nil, err
	}
	// Ordinary users must reach it, unlike a directory of the testing package, and the names of
	// sockets below it must be short.
	if s.dir, err = os.MkdirTemp("", "sandboxagent-sshd-"); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.remove(ctx))
	}
	// Another process may take the port first.
	for range 20 {
		s.port = freePort()
		if err = s.write(); err != nil {
			break
		}
		if err = s.launch(ctx); err == nil {
			return s, nil
		}
		if !strings.Contains(err.Error(), taken) {
			break
		}
	}
	return nil, errors.Join(err, os.RemoveAll(s.dir))
}

// find finds the programs.
func (s *SSHD) find() error {
	programs := map[string]*string{"ssh": &s.client, "ssh-keygen": new(string), "sshd": &s.program}
	if s.config.Dropbear {
		delete(programs, "sshd")
		programs["dropbear"], programs["dropbearkey"] = &s.program, new(string)
	}
	if s.config.Account != nil {
		programs["mount"], programs[s.config.Account.Shell] = new(string), new(string)
	}
	for name, found := range programs {
		path, err := exec.LookPath(name)
		if err != nil { // for users whose PATH lacks it
			path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
		}
		if err != nil {
			return fmt.Errorf("%w: it needs the program %s", errNoSSHD, name)
		}
		*found = path
	}
	return nil
}

// freePort returns an unused port outside the range of ephemeral ports, so that it stays free while
// the server is stopped: a reconnecting client could get it as its local port.
func freePort() int {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	return 0
}

// prepare makes the account, the keys and the files of the server.
func (s *SSHD) prepare(ctx context.Context) error {
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return err
	}
	if s.config.Account != nil {
		if err := s.addAccount(); err != nil {
			return err
		}
	} else if err := s.takeUser(); err != nil {
		return err
	}
	if err := makeKey(ctx, s.Key()); err != nil {
		return err
	}
	if err := s.makeHostKey(ctx); err != nil {
		return err
	}
	if os.Geteuid() == 0 && !s.config.Dropbear { // the privilege separation directory
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return err
		}
	}
	public, err := os.ReadFile(s.Key() + ".pub")
	if err != nil {
		return err
	}
	return s.authorize(public)
}

// makeKey makes a pair of keys without a passphrase.
func makeKey(ctx context.Context, name string) error {
	return run(exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name))
}

// makeHostKey makes a key for the server.
func (s *SSHD) makeHostKey(ctx context.Context) error {
	name := s.file("host_key")
	err := errors.Join(os.RemoveAll(name), os.RemoveAll(name+".pub"))
	if err != nil {
		return err
	}
	var public string
	if s.config.Dropbear {
		public, err = makeDropbearKey(ctx, name)
	} else if err = makeKey(ctx, name); err == nil {
		var text []byte
		if text, err = os.ReadFile(name + ".pub"); err == nil {
			public, err = publicKey(string(text))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostKey = public
	return err
}

// publicKey returns the first key of a text as known_hosts and authorized_keys have it, without the
// comment.
func publicKey(text string) (string, error) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && (strings.HasPrefix(words[0], "ssh-") ||
			strings.HasPrefix(words[0], "ecdsa-")) {
			return words[0] + " " + words[1], nil
		}
	}
	return "", fmt.Errorf("no public key is in %q", text)
}

// write writes the configurations of server and client.
func (s *SSHD) write() error {
	client := []string{
		"IdentityFile " + s.Key(), "IdentitiesOnly yes", "IdentityAgent none", "UserKnownHostsFile " +
			s.KnownHosts(),
		"GlobalKnownHostsFile /dev/null",
	}
	known := fmt.Sprintf("[127.0.0.1]:%d %s\n", s.port, s.HostKey())
	err := errors.Join(
		os.WriteFile(s.file("ssh_config"), []byte(strings.Join(client, "\n")+"\n"), 0o600),
		os.WriteFile(s.KnownHosts(), []byte(known), 0o600),
	)
	if err != nil || s.config.Dropbear {
		return err
	}
	return s.writeConfig()
}

// launch starts the server and returns when it listens.
func (s *SSHD) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the server has it open
	before := len(s.Log())
	output := func() string {
		all := s.Log()
		return all[min(before, len(all)):]
	}
	argv, listening := s.command()
	cmd, done, started := exec.Command(argv[0], argv[1:]...), make(chan struct{}), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = log, log
	// The server ends with the thread that starts it, and so with the test process.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if s.config.Account != nil {
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // tests kill servers
		}
	}()
	if err := <-started; err != nil {
		if errors.Is(err, unix.EPERM) && s.config.Account != nil {
			err = errors.Join(errNoSSHD, err)
		}
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	listens := func() bool { return strings.Contains(output(), listening) }
	err = wait(ctx, startTimeout, func() bool {
		select {
		case <-done:
			return true
		default:
			return listens()
		}
	})
	if err != nil {
		s.Stop()
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	if !listens() {
		return fmt.Errorf("start %s: it ended: %s", s.program, output())
	}
	return nil
}

// Stop ends the server and all connections, not their commands. Further calls do nothing.
func (s *SSHD) Stop() {
	cmd, done := s.process()
	select {
	case <-done:
		return
	default:
	}
	// Stop the server first, so that no client connects meanwhile.
	_ = unix.Kill(cmd.Process.Pid, unix.SIGSTOP)
	s.Cut()
	_ = unix.Kill(cmd.Process.Pid, unix.SIGKILL)
	<-done
}

// Restart stops the server if it runs and starts it again, at the same address and with the same
// keys.
func (s *SSHD) Restart() error {
	s.Stop()
	return s.launch(context.Background())
}

// NewHostKey gives the server another key and restarts it. KnownHosts keeps the first key.
func (s *SSHD) NewHostKey() error {
	s.Stop()
	if err := s.makeHostKey(context.Background()); err != nil {
		return err
	}
	return s.launch(context.Background())
}

// remove removes the server's directory, in which processes may still be ending.
func (s *SSHD) remove(ctx context.Context) error {
	if s.claim != nil {
		defer s.claim.Close() //nolint:errcheck // it holds no data
	}
	var err error
	werr := wait(ctx, stopTimeout, func() bool {
		err = os.RemoveAll(s.dir)
		return err == nil
	})
	if werr != nil {
		return errors.Join(werr, err)
	}
	return nil
}

func (s *SSHD) process() (*exec.Cmd, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.done
}

// taken is the error of a server whose port another process has.
const taken = "Address already in use"

func (s *SSHD) file(name string) string { return filepath.Join(s.dir, name) }

// Address is the address on which the server listens, as "127.0.0.1:port". It stays the same when
// the server is started again.
func (s *SSHD) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// User is the name of the user that the server admits.
func (s *SSHD) User() string { return s.user }

// Home is the home directory of the user.
func (s *SSHD) Home() string { return s.home }

// Host is the address of the server, as DOCKER_HOST has it.
func (s *SSHD) Host() string { return "ssh://" + s.user + "@" + s.Address() }

// Key is the file of the private key, without a passphrase, that the server admits. The public key
// is in the same file name with ".pub".
func (s *SSHD) Key() string { return s.file("user") }

// KnownHosts is a known_hosts file with the first key of the server.
func (s *SSHD) KnownHosts() string { return s.file("known_hosts") }

// HostKey is the public part of the server's key, in the format of known_hosts.
func (s *SSHD) HostKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hostKey
}

// Log is the log of the server since its first start.
func (s *SSHD) Log() string {
	log, _ := os.ReadFile(s.file("log"))
	return string(log)
}

// Client returns a directory for the front of PATH, with a program ssh that has the server's keys.
// More are lines that precede those of its configuration.
func (s *SSHD) Client(t testing.TB, more ...string) string {
	t.Helper()
	known, err := os.ReadFile(s.file("ssh_config"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' -F '%s/config' \"$@\"\n", s.client, dir)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "config"), append([]byte(strings.Join(more, "\n")+"\n"),
			known...), 0o600),
		os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
