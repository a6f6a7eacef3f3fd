package ssh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// account returns an ordinary user where there can be one, and nil, the user of the tests,
// elsewhere.
func account() *daemons.Account {
	if os.Geteuid() != 0 {
		return nil
	}
	return &daemons.Account{}
}

// ownAccount returns an ordinary user for one test.
func ownAccount(t *testing.T) *daemons.Account {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an account of its own needs root")
	}
	return &daemons.Account{}
}

// servers are the servers that connections are lost to.
var servers = []struct {
	name   string
	config func() daemons.SSHDConfig
}{
	{"openssh", func() daemons.SSHDConfig { return daemons.SSHDConfig{Account: account()} }},
	{"dropbear", func() daemons.SSHDConfig {
		return daemons.SSHDConfig{Account: account(), Dropbear: true}
	}},
}

// server starts a server. At the end of the test nothing of its environments may be left.
func server(t *testing.T, c daemons.SSHDConfig) *daemons.SSHD {
	t.Helper()
	s := daemons.NewSSHD(t, c)
	user := uid(t, s.Home())
	t.Cleanup(func() {
		if c.Account == nil || user == 0 { // others have the same user
			return
		}
		defer func() { // a failed test leaves some
			for _, pid := range s.Processes() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}()
		eventually(t, "the end of all processes", func() bool { return len(s.Processes()) == 0 })
		directory := fmt.Sprintf("/tmp/sandboxagent-%d", user)
		if found, _ := filepath.Glob(directory + "/e-*"); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
		_ = os.RemoveAll(directory)
	})
	return s
}

// behind puts a proxy in front of a server, and returns a target that uses it.
func behind(t *testing.T, s *daemons.SSHD) (*toxiproxy.Proxy, ssh.Target) {
	t.Helper()
	all := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(io.Discard))
	proxy := toxiproxy.NewProxy(all, "sshd", "127.0.0.1:0", s.Address())
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	host, port, _ := strings.Cut(proxy.Listen, ":")
	known := filepath.Join(t.TempDir(), "known_hosts")
	line := fmt.Appendf(nil, "[%s]:%s %s\n", host, port, s.HostKey())
	if err := os.WriteFile(known, line, 0o600); err != nil {
		t.Fatal(err)
	}
	to := target(t, s)
	to.Host, to.KnownHosts = s.User()+"@"+proxy.Listen, known
	return proxy, to
}

// spoil puts a toxic on a proxy, in both directions. Connections end when it is taken off, if they
// have lost anything.
func spoil(t *testing.T, p *toxiproxy.Proxy, kind, attributes string) (mend func()) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"name":"%s-%s","type":"%s","stream":"%s","toxicity":1,"attributes":%s}`,
			kind, stream, kind, stream, attributes)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			t.Error(err)
		}
	}
	return func() {
		for _, stream := range []string{"upstream", "downstream"} {
			if err := p.Toxics.RemoveToxic(context.Background(), kind+"-"+stream); err != nil {
				t.Error(err)
			}
		}
	}
}

// spoilFor is spoil for a time.
func spoilFor(t *testing.T, d time.Duration, p *toxiproxy.Proxy, kind, attributes string) {
	t.Helper()
	mend := spoil(t, p, kind, attributes)
	timer := time.AfterFunc(d, mend)
	t.Cleanup(func() { timer.Stop() })
}

// freeze stops the processes of all connections, which stay open and silent.
func freeze(s *daemons.SSHD) {
	for _, pid := range s.Sessions() { // that of dropbear has the connection itself
		below, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
		for word := range strings.FieldsSeq(string(below)) {
			child, _ := strconv.Atoi(word)
			name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", child))
			if strings.HasPrefix(filepath.Base(name), "sshd") {
				_ = unix.Kill(child, unix.SIGSTOP)
			}
		}
		_ = unix.Kill(pid, unix.SIGSTOP)
	}
}

// left returns the processes and directories of an environment.
func left(t *testing.T, s *daemons.SSHD, session string) []string {
	t.Helper()
	found, _ := filepath.Glob(fmt.Sprintf("/tmp/sandboxagent-%d*/e-%s", uid(t, s.Home()), session))
	more, _ := filepath.Glob(s.Home() + "/.cache/sandboxagent/e-" + session)
	found = append(found, more...)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		vars, _ := os.ReadFile(p + "/environ")
		line, _ := os.ReadFile(p + "/cmdline")
		if bytes.Contains(vars, []byte(ssh.SessionVar+"="+session+"\x00")) ||
			bytes.Contains(line, []byte("/e-"+session)) {
			found = append(found, fmt.Sprintf("%s %q", p, line))
		}
	}
	return found
}

// nothingLeft waits until nothing of an environment is left.
func nothingLeft(t *testing.T, s *daemons.SSHD, session string) {
	t.Helper()
	var found []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if found = left(t, s, session); len(found) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("left: %v", found)
}

// halfway calls turn, once, when so many bytes have gone through it.
type halfway struct {
	io.Reader
	io.Writer
	bytes int
	turn  func()
}

func (h *halfway) pass(n int) {
	if h.bytes -= n; h.bytes <= 0 && h.turn != nil {
		turn := h.turn
		h.turn = nil
		turn()
	}
}

func (h *halfway) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.pass(n)
	return n, err
}

func (h *halfway) Write(p []byte) (int, error) {
	h.pass(len(p))
	return h.Writer.Write(p)
}

// lines is what seq writes.
func lines(t *testing.T, last int) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "seq", "1", strconv.Itoa(last)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// once checks that a command that adds a line to a file ran exactly once.
func once(t *testing.T, e env.Environment, name string) {
	t.Helper()
	if data, err := env.ReadFile(t.Context(), e, name, 100); err != nil || string(data) != "once\n" {
		t.Errorf("%s: it ran %q, %v", name, data, err)
	}
}

// midway has a command write, another one read, and writes a file, all at once. It calls fault when
// each is half done. The results must not differ from those without a fault.
func midway(ctx context.Context, t *testing.T, e env.Environment, fault func()) {
	t.Helper()
	var half, ended sync.WaitGroup
	half.Add(3)
	happened := make(chan struct{})
	turn := func() {
		half.Done()
		<-happened
	}
	content := make([]byte, 6<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	ended.Go(func() {
		var out bytes.Buffer
		res, err := e.Exec(ctx, env.Command{
			Argv:   []string{"/bin/sh", "-c", "echo once >> output; seq 1 900000; exit 7"},
			Stdout: &halfway{Writer: &out, bytes: 1 << 20, turn: turn},
		})
		if err != nil || res.ExitCode != 7 || !bytes.Equal(out.Bytes(), lines(t, 900_000)) {
			t.Errorf("output: %+v, %v, %d bytes", res, err, out.Len())
		}
	})
	ended.Go(func() {
		var out bytes.Buffer
		res, err := e.Exec(ctx, env.Command{
			Argv: []string{"/bin/sh", "-c", "echo once >> input; sha256sum; exit 5"}, Stdout: &out,
			Stdin: &halfway{Reader: bytes.NewReader(content), bytes: 3 << 20, turn: turn},
		})
		want := fmt.Sprintf("%x  -\n", sha256.Sum256(content))
		if err != nil || res.ExitCode != 5 || out.String() != want {
			t.Errorf("input: %+v, %v, %q", res, err, out.String())
		}
	})
	ended.Go(func() {
		small := content[:200<<10]
		in := &halfway{Reader: bytes.NewReader(small), bytes: len(small) / 2, turn: turn}
		_, err := e.WriteFile(ctx, "file", in, env.WriteOptions{})
		got, rerr := env.ReadFile(ctx, e, "file", 8<<20)
		if err != nil || rerr != nil || !bytes.Equal(got, small) {
			t.Errorf("file: %v, %d bytes, %v", err, len(got), rerr)
		}
	})
	half.Wait()
	fault()
	close(happened)
	ended.Wait()
	once(t, e, "output")
	once(t, e, "input")
}

// faults are ways to lose a connection. After each of them new ones can be made, at once or soon.
var faults = []struct {
	name  string
	fault func(t *testing.T, s *daemons.SSHD, p *toxiproxy.Proxy)
}{
	{"killed", func(_ *testing.T, s *daemons.SSHD, _ *toxiproxy.Proxy) { s.Cut() }},
	{"restarted", func(t *testing.T, s *daemons.SSHD, _ *toxiproxy.Proxy) {
		s.Stop()
		time.Sleep(3 * time.Second) // clients try in vain meanwhile
		if err := s.Restart(); err != nil {
			t.Error(err)
		}
	}},
	{"reset", func(t *testing.T, _ *daemons.SSHD, p *toxiproxy.Proxy) {
		spoilFor(t, 2*time.Second, p, "reset_peer", `{"timeout":0}`)
	}},
	{"silent", func(_ *testing.T, s *daemons.SSHD, _ *toxiproxy.Proxy) { freeze(s) }},
}

// lossTime is how long something may take that loses a connection on the way: twice the time of a
// keepalive, and what a slow machine takes with the race detector.
const lossTime = 10 * time.Minute

// TestConnectionLost loses the connection while commands and a file are half done.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	for _, of := range servers {
		for _, tt := range faults {
			t.Run(of.name+"/"+tt.name, func(t *testing.T) {
				if of.name != "openssh" && tt.name != "killed" || tt.name == "restarted" || tt.name == "reset" {
					needFull(t, "each fault on each server")
				}
				t.Parallel()
				s := server(t, of.config())
				proxy, to := behind(t, s)
				h := connect(t, impatient(t, to))
				e := open(t, h, ssh.Config{WorkDir: s.MakeDir(t)})
				idle := open(t, h, ssh.Config{WorkDir: s.MakeDir(t)})
				ctx, cancel := context.WithTimeout(t.Context(), lossTime)
				defer cancel()
				midway(ctx, t, e, func() { tt.fault(t, s, proxy) })
				does(t, idle, "echo once >> count")
				once(t, idle, "count")
			})
		}
	}
}

// typed reports whether an error is a *ConnectError or an *OpenError.
func typed(err error) bool {
	var c *ssh.ConnectError
	var s *ssh.OpenError
	return errors.As(err, &c) || errors.As(err, &s)
}

// openOnce opens an environment, runs a command once in it and closes it. An error must be typed.
func openOnce(
	ctx context.Context, t *testing.T, to ssh.Target, work, session string, ttl time.Duration,
) error {
	err := func() error {
		h, err := ssh.Connect(ctx, to)
		if err != nil {
			return err
		}
		defer h.Close() //nolint:errcheck // never fails
		e, err := h.Open(ctx, config(t, ssh.Config{
			WorkDir: work, Options: remote.Options{Session: session, TTL: ttl},
		}))
		if err != nil {
			return err
		}
		does(t, e, "echo once >> "+session)
		once(t, e, session)
		if err := e.Close(); !errors.Is(err, env.ErrGone) { // which a late fault causes
			return err
		}
		return nil
	}()
	if err != nil && !typed(err) {
		t.Errorf("%s: %T %v", session, err, err)
	}
	return err
}

// TestLostWhileOpening ends the connections in all phases of a start, the delivery of the helper
// among them.
func TestLostWhileOpening(t *testing.T) {
	needFull(t, "losses in all phases of a start")
	t.Parallel()
	for _, of := range servers {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			s := server(t, of.config())
			work, whole := s.MakeDir(t), time.Duration(0)
			const steps = 10
			for i := range steps + 1 {
				session := fmt.Sprintf("opening-%d", i)
				_ = os.RemoveAll(filepath.Join(s.Home(), ".cache"))
				started := time.Now()
				timer := time.AfterFunc(time.Duration(i)*whole/steps, s.Cut)
				if i == 0 {
					timer.Stop()
				}
				err := openOnce(t.Context(), t, target(t, s), work, session, 5*time.Second)
				timer.Stop()
				if i == 0 {
					if whole = time.Since(started); err != nil {
						t.Fatal(err)
					}
				}
				nothingLeft(t, s, session)
			}
		})
	}
}

// TestLostWhileClosing ends the connections while an environment is closed.
func TestLostWhileClosing(t *testing.T) {
	needFull(t, "losses in all phases of the end")
	t.Parallel()
	for _, of := range servers {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			s := server(t, of.config())
			h := connect(t, target(t, s))
			for i := range 8 {
				e := start(t, h, ssh.Config{Options: remote.Options{TTL: 5 * time.Second}})
				running := background(t.Context(), e, command("/bin/sleep", "1000"))
				timer := time.AfterFunc(time.Duration(i)*3*time.Millisecond, s.Cut)
				if err := e.Close(); err != nil && !errors.Is(err, env.ErrGone) {
					t.Errorf("step %d: %v", i, err)
				}
				timer.Stop()
				if o := <-running; o.err == nil {
					t.Errorf("step %d: the command has a result", i)
				}
				nothingLeft(t, s, e.Session())
			}
		})
	}
}
