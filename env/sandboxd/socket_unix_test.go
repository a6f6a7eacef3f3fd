//go:build unix

package sandboxd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// bridge starts a process that connects its standard streams to a socket, and returns them.
func bridge(t *testing.T, socket string) *process {
	t.Helper()
	return launch(t, helperArgv(t, "dial", "--socket", socket), nil)
}

func TestSocketIsClosedToOthers(t *testing.T) {
	socket := socketPath(t)
	serveSocket(t, socket, nil)
	for name, want := range map[string]fs.FileMode{
		socket:               fs.ModeSocket | 0o600,
		filepath.Dir(socket): fs.ModeDir | 0o700,
	} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want mode %v", name, info, err, want)
		}
	}
}

func TestTokenOpensSocket(t *testing.T) {
	socket := socketPath(t)
	first, _ := serveSocket(t, socket, nil)
	for _, tt := range []struct {
		name, token string
		opens       bool
	}{
		{"none", "", false},
		{"a part", token[:len(token)-1], false},
		{"more", token + "0", false},
		{"another", strings.Repeat("x", len(token)), false},
		{"the token", token, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := client.Open(t.Context(), client.Config{
				Dial:  func(context.Context) (io.ReadWriteCloser, error) { return net.Dial("unix", socket) },
				Token: tt.token, Start: json.RawMessage(`{}`),
			})
			switch {
			case !tt.opens && !errors.Is(err, fs.ErrPermission):
				t.Errorf("%v, want permission denied", err)
			case tt.opens && err != nil:
				t.Error(err)
			case tt.opens && e.Info().WorkDir != first.Info().WorkDir:
				t.Errorf("another environment: %s", e.Info().WorkDir)
			}
		})
	}
}

func TestShortTokenOpensNothing(t *testing.T) {
	socket := socketPath(t)
	p := launch(t, helperArgv(t, "serve", "--socket", socket), nil)
	_, err := open(t, p, client.Config{Token: "123456789012345", Start: start(t, "/")}, nil)
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if code := p.code(t); code != 1 || !strings.Contains(p.stderrText.String(), "16 bytes") {
		t.Errorf("exit code %d, %q", code, p.stderrText)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a socket was created: %v", err)
	}
}

func TestUnsafeSocketPaths(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, dir, socket string) error
		is   error
	}{
		{"directory open to others", func(_ *testing.T, dir, _ string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o701))
		}, fs.ErrPermission},
		{"directory is a symlink", func(t *testing.T, dir, _ string) error {
			return os.Symlink(t.TempDir(), dir)
		}, fs.ErrPermission},
		{"directory of another user", func(_ *testing.T, dir, _ string) error {
			if os.Getuid() != 0 {
				return errors.ErrUnsupported
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody))
		}, fs.ErrPermission},
		{"no directory", func(_ *testing.T, dir, _ string) error {
			return os.WriteFile(dir, nil, 0o600)
		}, nil},
		{"a file", func(_ *testing.T, dir, s string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(s, nil, 0o600))
		}, fs.ErrExist},
		{"a symlink", func(_ *testing.T, dir, s string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Symlink("elsewhere", s))
		}, fs.ErrExist},
		{"a socket with a listener", func(t *testing.T, dir, s string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			l, err := net.Listen("unix", s)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}, fs.ErrExist},
		{strings.Repeat("x", 104), func(_ *testing.T, _, _ string) error { return nil }, fs.ErrInvalid},
	} {
		t.Run(tt.name[:min(len(tt.name), 40)], func(t *testing.T) {
			socket := socketPath(t)
			if len(tt.name) > 100 {
				socket = filepath.Join(filepath.Dir(socket), tt.name)
			}
			err := tt.make(t, filepath.Dir(socket), socket)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip("only root can do that")
			} else if err != nil {
				t.Fatal(err)
			}
			p := launch(t, helperArgv(t, "serve", "--socket", socket), nil)
			_, err = open(t, p, client.Config{Token: token, Start: start(t, "/")}, nil)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) ||
				!strings.Contains(err.Error(), socket) {
				t.Errorf("%v", err)
			}
			if code := p.code(t); code != 1 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// staleSocket returns a socket that no process listens on.
func staleSocket(t *testing.T) string {
	t.Helper()
	socket := socketPath(t)
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return socket
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	socket := staleSocket(t)
	e, p := serveSocket(t, socket, nil)
	again, err := open(t, bridge(t, socket), client.Config{Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	output(t, again, sh("true"))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	p.code(t)
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestHelpersStartSideBySide starts several helpers with sockets in one directory at once.
func TestHelpersStartSideBySide(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(socketPath(t))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // it is closed before
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var starting sync.WaitGroup
	var helpers []*process
	for i := range 4 {
		p := launch(t, helperArgv(t, "serve", "--socket", filepath.Join(dir, strconv.Itoa(i))), nil)
		helpers = append(helpers, p)
		cfg := client.Config{Token: token, Start: start(t, "/")}
		starting.Go(func() {
			e, err := open(t, p, cfg, nil)
			if err != nil {
				t.Errorf("helper %d: %v", i, err)
				return
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	info, err := held.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range helpers {
		if runtime.GOOS != "linux" || os.Geteuid() != 0 {
			break // others cannot list the open files of a helper
		}
		eventually(t, "a helper opens the directory to lock it", func() bool {
			names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Process.Pid))
			return slices.ContainsFunc(names, func(name string) bool {
				opened, err := os.Stat(name)
				return err == nil && os.SameFile(info, opened)
			})
		})
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	starting.Wait()
}

// TestDialLeavesInputBlocking checks the flags of the stdin that a shell shares.
func TestDialLeavesInputBlocking(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(p *exec.Cmd, in *os.File) error
		code int
	}{
		{"no listener", func(_ *exec.Cmd, in *os.File) error {
			_, err := in.WriteString("{}\n")
			return err
		}, 3},
		{"a signal", func(p *exec.Cmd, _ *os.File) error { return p.Process.Signal(unix.SIGTERM) }, 143},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pipe [2]int
			if err := unix.Pipe(pipe[:]); err != nil {
				t.Fatal(err)
			}
			r, w := os.NewFile(uintptr(pipe[0]), "r"), os.NewFile(uintptr(pipe[1]), "w")
			t.Cleanup(func() { _, _ = r.Close(), w.Close() })
			blocking := func() bool {
				flags, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_GETFL, 0)
				if err != nil {
					t.Fatal(err)
				}
				return flags&unix.O_NONBLOCK == 0
			}
			argv := helperArgv(t, "dial", "--socket", socketPath(t))
			p := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			p.Stdin = r
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the change", func() bool { return !blocking() })
			if err := tt.end(p, w); err != nil {
				t.Error(err)
			}
			if _ = p.Wait(); p.ProcessState.ExitCode() != tt.code {
				t.Errorf("%v, want exit code %d", p.ProcessState, tt.code)
			}
			if !blocking() {
				t.Error("the input is non-blocking")
			}
		})
	}
}

// TestDialCarriesAllBytes sends a first line and more in one write, and receives all of it back.
func TestDialCarriesAllBytes(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var echoing sync.WaitGroup
	defer echoing.Wait()
	defer l.Close() //nolint:errcheck // it ends Accept
	echoing.Go(func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	})
	b := bridge(t, socket)
	defer time.AfterFunc(30*time.Second, func() { _ = b.Process.Kill() }).Stop() // bytes are missing
	sent := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent) // never fails
	sent = append([]byte("{}\n"), sent...)
	echoing.Go(func() { _, _ = b.Write(sent) })
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, the same: %t, %v", n, len(sent), bytes.Equal(got, sent), err)
	}
	if err := b.in.Close(); err != nil {
		t.Error(err)
	}
	if code := b.code(t); code != 0 {
		t.Errorf("exit code %d, %q", code, b.stderrText)
	}
}

func TestDialWithoutListener(t *testing.T) {
	for name, socket := range map[string]string{"missing": socketPath(t), "stale": staleSocket(t)} {
		p := bridge(t, socket)
		if _, err := p.Write([]byte("{}\n")); err != nil {
			t.Fatal(err)
		}
		if code := p.code(t); code != 3 || !strings.Contains(p.stderrText.String(), socket) {
			t.Errorf("%s: exit code %d, %q", name, code, p.stderrText)
		}
	}
}

// TestLeaseOfRealHelper ends the first client and then another one, after which the helper ends.
func TestLeaseOfRealHelper(t *testing.T) {
	t.Parallel()
	m := mark(t)
	socket := socketPath(t)
	e, p := serveSocket(t, socket, nil, "--ttl", "100ms")
	stay(t, e, m)
	second, err := open(t, bridge(t, socket), client.Config{Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()                      // the client of the first stream is gone
	output(t, second, sh("sleep 0.3")) // the second one keeps the helper, beyond its TTL
	if len(marked(m)) < 5 {
		t.Error("processes ended although a client was connected")
	}
	for _, pid := range bridges(t, socket) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := marked(m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// bridges returns the process IDs of the bridges to the socket.
func bridges(t *testing.T, socket string) []int {
	t.Helper()
	var pids []int
	for _, pid := range marked(socket) {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(args), "\x00dial\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestReconnectResumesOutput kills the bridge several times while a command prints.
func TestReconnectResumesOutput(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("looks for processes in /proc")
	}
	socket := socketPath(t)
	var cuts int
	e, p := serveSocket(t, socket, func() (io.ReadWriteCloser, error) {
		return bridge(t, socket), nil
	})
	const lines = 700_000
	r, w := io.Pipe()
	sum := sha256.New()
	var reading sync.WaitGroup
	reading.Go(func() {
		in := bufio.NewReader(io.TeeReader(r, sum))
		for n := 1; ; n++ {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			switch {
			case n == 50_000:
				_ = p.Close()
				cuts++
			case n%200_000 == 0:
				for _, pid := range bridges(t, socket) {
					_ = unix.Kill(pid, unix.SIGKILL)
					cuts++
				}
			}
		}
	})
	result, err := e.Exec(t.Context(), env.Command{
		Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo ran >>ran; seq %d; exit 7", lines)}, Stdout: w,
	})
	_ = w.Close()
	reading.Wait()
	if err != nil || result.ExitCode != 7 {
		t.Errorf("%+v, %v", result, err)
	}
	want := sha256.New()
	for i := range lines {
		fmt.Fprintln(want, i+1)
	}
	if got, want := fmt.Sprintf("%x", sum.Sum(nil)), fmt.Sprintf("%x", want.Sum(nil)); got != want {
		t.Errorf("the output is not exact: %s, want %s", got, want)
	}
	if ran := output(t, e, sh("cat ran")); ran != "ran\n" {
		t.Errorf("it ran more than once: %q", ran)
	}
	if cuts < 3 {
		t.Errorf("only %d cuts", cuts)
	}
}

// TestLongHelloIsCutOff sends an endless first line.
func TestLongHelloIsCutOff(t *testing.T) {
	socket := socketPath(t)
	e, _ := serveSocket(t, socket, nil)
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(c, strings.NewReader(strings.Repeat("x", 64<<20)))
	if err == nil || n >= 2<<20 {
		t.Errorf("%d bytes were taken, %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	output(t, e, sh("true"))
}

// TestOtherUsersAreRejected opens the directory to other users, whom the helper itself rejects.
func TestOtherUsersAreRejected(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("perl is not installed")
	}
	socket := socketPath(t)
	serveSocket(t, socket, nil)
	for name := socket; len(name) > len(os.TempDir()); name = filepath.Dir(name) {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	script := `use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "connect: $!";
print $s qq({"version":` + strconv.Itoa(wire.Version) + `,"client":"x","token":"$ARGV[1]"}\n);
$s->flush; print "answer: ", scalar <$s>;`
	for uid, served := range map[uint32]bool{0: true, 65534: false} {
		cmd := exec.CommandContext(t.Context(), perl, "-e", script, socket, token)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if got, err := cmd.Output(); served != strings.HasPrefix(string(got), "answer: {") {
			t.Errorf("user %d: %q, %v", uid, got, err)
		}
	}
}
