package ssh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestPortableContract runs the conformance suite without a helper, on hosts that are difficult in several ways at once.
func TestPortableContract(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config daemons.SSHDConfig
		small  bool
	}{
		{"root", daemons.SSHDConfig{}, true},
		{"bash", daemons.SSHDConfig{
			Account: &daemons.Account{Shell: "/bin/bash", Profile: map[string]string{".bashrc": noisyProfile}, Home: daemons.HomeNoexec}, Sftp: daemons.SftpServer,
		}, true},
		{"dash", daemons.SSHDConfig{
			Account: &daemons.Account{Shell: "/bin/dash", Home: daemons.HomeReadOnly}, Options: []string{"MaxSessions 1"}, Sftp: daemons.SftpNone,
		}, true},
		{"dropbear", daemons.SSHDConfig{Account: &daemons.Account{Shell: "/bin/bash"}, Dropbear: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.config.Dropbear && os.Getenv(portableVar) == "" {
				besideDropbear(t)
				return
			}
			s := server(t, tt.config)
			h := connect(t, target(t, s))
			envtest.Run(t, envtest.Options{
				New: func(t *testing.T) env.Environment {
					e, err := h.Open(t.Context(), config(t, ssh.Config{Helper: ssh.HelperOff, WorkDir: s.MakeFolder(t)}))
					if err != nil {
						t.Fatal(err)
					}
					return e
				},
				Known: portable.Known(), NoTerminals: true, Alive: alive, Small: tt.small,
			})
		})
	}
}

// portableVar tells a process of besideDropbear that it is one.
const portableVar = "SANDBOXAGENT_TEST_PORTABLE"

// dropbearDefect is what dropbear says when it ends a connection since a client has closed a session whose output it was
// about to send (2022.83 does so now and then). All that uses the connection is lost then, whoever the client is.
const dropbearDefect = "Failed assertion (common-channel.c"

// besideDropbear runs the test in a process of its own, and again where a connection has met that defect.
func besideDropbear(t *testing.T) {
	const most = 4
	for tries := 1; ; tries++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout=20m")
		cmd.Env = append(os.Environ(), portableVar+"=yes")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil && strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
			t.Skip("in its own process: " + string(out))
		case err == nil && strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
			return
		case strings.Contains(string(out), dropbearDefect) && tries < most:
			t.Logf("dropbear has ended a connection (%s); once more", dropbearDefect)
		default:
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// notes collects what is noted.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notes) has(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.lines, func(line string) bool { return strings.Contains(line, text) })
}

// openPortable opens an environment without a helper, in a folder of its own.
func openPortable(t *testing.T, s *daemons.SSHD, c ssh.Config) *ssh.Environment {
	t.Helper()
	c.Helper = ssh.HelperOff
	if c.WorkDir == "" {
		c.WorkDir = s.MakeFolder(t)
	}
	h := connect(t, target(t, s))
	note := c.Note
	c = config(t, c)
	if note != nil {
		c.Note = note
	}
	e, err := h.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// closes closes an environment at the end of a test.
func closes(t *testing.T, e *ssh.Environment) *ssh.Environment {
	t.Helper()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// TestPortableFiles moves content of all sizes, with and without SFTP.
func TestPortableFiles(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config daemons.SSHDConfig
		noted  bool // that there is no SFTP
	}{
		{"internal", daemons.SSHDConfig{}, false},
		{"server", daemons.SSHDConfig{Sftp: daemons.SftpServer}, false},
		{"none", daemons.SSHDConfig{Sftp: daemons.SftpNone}, true},
		{"noisy", daemons.SSHDConfig{Account: &daemons.Account{Profile: map[string]string{".bashrc": noisyProfile}}, Sftp: daemons.SftpServer}, true},
		{"one session", daemons.SSHDConfig{Options: []string{"MaxSessions 1"}}, false},
		{"dropbear", daemons.SSHDConfig{Account: &daemons.Account{}, Dropbear: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := server(t, tt.config)
			said := new(notes)
			e := closes(t, openPortable(t, s, ssh.Config{Note: said.add}))
			for _, size := range []int{0, 1000, 1 << 20, 1<<20 + 1, 4 << 20, 9<<20 + 12345} {
				data := make([]byte, size)
				_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data) // never fails
				// The size of this reader is not known.
				written, err := e.WriteFile(t.Context(), "file", io.MultiReader(bytes.NewReader(data)), env.WriteOptions{Mode: 0o640})
				if err != nil || written.Size != int64(size) || written.InPlace {
					t.Fatalf("write %d bytes: %+v, error %v", size, written, err)
				}
				local, err := os.ReadFile(filepath.Join(e.Info().WorkDir, "file"))
				if err != nil || !bytes.Equal(local, data) {
					t.Errorf("of %d bytes, the file holds %d, error %v", size, len(local), err)
				}
				got, err := env.ReadFile(t.Context(), e, "file", 64<<20)
				if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
					t.Errorf("of %d bytes, %d are read, error %v", size, len(got), err)
				}
				if info, err := e.Stat(t.Context(), "file"); err != nil || info.Mode() != 0o640 {
					t.Errorf("mode %v, error %v", info, err)
				}
			}
			if got := said.has("SFTP"); got != tt.noted {
				t.Errorf("noted that there is no SFTP: %v, want %v; %q", got, tt.noted, said.lines)
			}
			if entries, err := e.ReadDir(t.Context(), "."); err != nil || len(entries) != 1 {
				t.Errorf("the folder holds %v, error %v", entries, err)
			}
		})
	}
}

// endless gives bytes until it is stopped.
type endless struct {
	stop func(n int)
	n    int
}

func (r *endless) Read(p []byte) (int, error) {
	r.n += len(p)
	r.stop(r.n)
	return len(p), nil
}

// TestPortableFilesEnd ends transfers by SFTP in the middle: by the context, by a failing reader, and by closing a file.
func TestPortableFilesEnd(t *testing.T) {
	s := daemons.NewSSHD(t, daemons.SSHDConfig{})
	e := closes(t, openPortable(t, s, ssh.Config{}))
	if _, err := e.WriteFile(t.Context(), "large", strings.NewReader(strings.Repeat("x", 40<<20)), env.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why, broken := errors.New("enough"), errors.New("broken")
	_, err := e.WriteFile(ctx, "large", &endless{stop: func(n int) {
		if n > 8<<20 {
			cancel(why)
		}
	}}, env.WriteOptions{})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("a write that is cancelled: %v", err)
	}
	for _, failure := range []error{broken, errors.Join(broken, io.EOF)} {
		_, err = e.WriteFile(t.Context(), "large", io.MultiReader(strings.NewReader(strings.Repeat("y", 5<<20)), failing{failure}), env.WriteOptions{})
		if !errors.Is(err, broken) {
			t.Errorf("a write of what cannot be read: %v", err)
		}
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	f, err := e.Open(ctx, "large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, f, 2<<20); err != nil {
		t.Error(err)
	}
	cancel(why)
	if _, err := io.Copy(io.Discard, f); !errors.Is(err, why) {
		t.Errorf("a read that is cancelled: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if f, err = e.Open(t.Context(), "large"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a read of a closed file: %v", err)
	}
	if got, err := env.ReadFile(t.Context(), e, "large", 64<<20); err != nil || len(got) != 40<<20 || bytes.Trim(got, "x") != nil {
		t.Errorf("the file holds %d bytes, error %v", len(got), err)
	}
	if entries, err := e.ReadDir(t.Context(), "."); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, error %v", entries, err)
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestPortableVars looks for what commands get of a login.
func TestPortableVars(t *testing.T) {
	for _, shell := range []string{"/bin/bash", "/bin/dash"} {
		s := daemons.NewSSHD(t, daemons.SSHDConfig{
			Account: &daemons.Account{Shell: shell, Profile: map[string]string{".bashrc": "export FROM_RC=1 HOME\nsleep 3\n"}},
			Vars:    []string{"FROM_SERVER=1", "LC_TIME=C", "LANG=it's $here"},
		})
		e := closes(t, openPortable(t, s, ssh.Config{Vars: []string{"MINE=a b"}}))
		var out bytes.Buffer
		if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"env", "-0"}, Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, v := range strings.Split(out.String(), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			if !strings.HasPrefix(name, "SANDBOXAGENT_SH_") {
				got[name] = value
			}
		}
		for name, want := range map[string]string{"HOME": s.Home(), "USER": s.User(), "LC_TIME": "C", "LANG": "it's $here", "MINE": "a b"} {
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", shell, name, got[name], want)
			}
		}
		for _, name := range []string{"LOGNAME", "FROM_RC", "FROM_SERVER", "SSH_CONNECTION", "SSH_CLIENT"} {
			if value, ok := got[name]; ok {
				t.Errorf("%s: %s is %q, want none", shell, name, value)
			}
		}
	}
}

// TestPortableNoShell logs in where something else than a shell answers.
func TestPortableNoShell(t *testing.T) {
	for command, want := range map[string]string{
		"echo 'This account is not available.'; exit 1": "This account is not available",
		"cat":           "printf",
		"internal-sftp": "",
	} {
		t.Run(command, func(t *testing.T) {
			s := daemons.NewSSHD(t, daemons.SSHDConfig{Options: []string{"ForceCommand " + command}})
			h := connect(t, target(t, s))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := h.Open(ctx, config(t, ssh.Config{Helper: ssh.HelperOff}))
			var start *ssh.StartError
			if !errors.As(err, &start) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want a StartError with %q", err, want)
			}
			t.Log(err)
		})
	}
}

// TestPortableDir looks for the working directory.
func TestPortableDir(t *testing.T) {
	s := daemons.NewSSHD(t, daemons.SSHDConfig{Account: &daemons.Account{Profile: map[string]string{"sub dir/.keep": ""}}})
	for dir, want := range map[string]string{"~": s.Home(), "~/sub dir": s.Home() + "/sub dir", "sub dir": s.Home() + "/sub dir", "/": "/"} {
		e := closes(t, openPortable(t, s, ssh.Config{WorkDir: dir}))
		if got := e.Info().WorkDir; got != want {
			t.Errorf("%q is %q, want %q", dir, got, want)
		}
	}
	for dir, want := range map[string]error{"missing": fs.ErrNotExist, "/etc/passwd": env.ErrNotDir, "/root": fs.ErrPermission} {
		h := connect(t, target(t, s))
		if _, err := h.Open(t.Context(), config(t, ssh.Config{Helper: ssh.HelperOff, WorkDir: dir})); !errors.Is(err, want) {
			t.Errorf("%q: error %v, want %v", dir, err, want)
		}
	}
}

// TestPortableCut ends the connection while commands run: nobody knows their outcome, the environment is gone, and nothing is
// left of it on the host.
func TestPortableCut(t *testing.T) {
	for name, c := range map[string]daemons.SSHDConfig{
		"openssh":     {Account: &daemons.Account{}},
		"one session": {Account: &daemons.Account{Shell: "/bin/dash"}, Options: []string{"MaxSessions 1"}},
		"dropbear":    {Account: &daemons.Account{}, Dropbear: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := daemons.NewSSHD(t, c)
			e := openPortable(t, s, ssh.Config{})
			var out bytes.Buffer
			if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "setsid sleep 4801 >/dev/null 2>&1 & sleep 4802 >/dev/null 2>&1 &"}, Stdout: &out}); err != nil {
				t.Fatal(err)
			}
			begun := make(chan struct{})
			done := make(chan error, 1)
			go func() {
				_, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "trap '' HUP TERM; echo; sleep 4803"}, Stdout: &signal{begun: begun}})
				done <- err
			}()
			<-begun
			s.Cut()
			err := <-done
			if !errors.Is(err, env.ErrUnknownOutcome) || !errors.Is(err, env.ErrGone) {
				t.Errorf("a command in progress: %v", err)
			}
			if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"true"}}); !errors.Is(err, env.ErrGone) {
				t.Errorf("a later command: %v", err)
			}
			if _, err := e.Stat(t.Context(), "."); !errors.Is(err, env.ErrGone) {
				t.Errorf("a later look: %v", err)
			}
			eventually(t, "all processes to end", func() bool { return len(s.Processes()) == 0 })
			_ = e.Close() // it is gone
			left, err := filepath.Glob("/tmp/.sandboxagent-*")
			for _, name := range left {
				if uid(t, name) == uid(t, s.Home()) {
					t.Errorf("%s is left, error %v", name, err)
				}
			}
		})
	}
}

// TestPortableHalfOpen stops the server's part of the connection: the host does not see that the client is gone, and ends what it
// started when the time for that has passed.
func TestPortableHalfOpen(t *testing.T) {
	s := daemons.NewSSHD(t, daemons.SSHDConfig{Account: &daemons.Account{Shell: "/bin/dash"}})
	e := openPortable(t, s, ssh.Config{TTL: 4 * time.Second})
	if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "setsid sleep 4805 >/dev/null 2>&1 & sleep 4806 >/dev/null 2>&1 &"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both processes", func() bool { return alive(t, "sleep", "4805") && alive(t, "sleep", "4806") })
	for end := time.Now().Add(7 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !alive(t, "sleep", "4805") || !alive(t, "sleep", "4806") {
			t.Fatal("a process has ended while the client is there")
		}
	}
	stopped := s.Sessions()
	// The part without rights is the one that has the connection.
	for _, pid := range stopped {
		below, err := exec.CommandContext(t.Context(), "pgrep", "-P", strconv.Itoa(pid)).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(below)) {
			n, _ := strconv.Atoi(word)
			stopped = append(stopped, n)
		}
	}
	for _, pid := range stopped {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
		_ = e.Close() // it is gone
	})
	eventually(t, "all processes to end", func() bool {
		return !alive(t, "sleep", "4805") && !alive(t, "sleep", "4806") && len(s.Processes()) == 0
	})
}

// signal closes begun when something is written.
type signal struct {
	once  sync.Once
	begun chan struct{}
}

func (s *signal) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	return len(p), nil
}

// TestPortableClose leaves nothing behind.
func TestPortableClose(t *testing.T) {
	s := daemons.NewSSHD(t, daemons.SSHDConfig{Account: &daemons.Account{Shell: "/bin/dash"}})
	e := openPortable(t, s, ssh.Config{})
	if e.Info().Strength(env.CleanCrash) != env.BestEffort {
		t.Errorf("guarantees %v", e.Info().Guarantees)
	}
	if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "setsid sleep 4804 >/dev/null 2>&1 &"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "all processes to end", func() bool { return len(s.Processes()) == 0 })
}
