package ssh_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// runaways are commands that leave processes in the ways in which one gets away from its parents.
var runaways = []string{
	`sleep 1000`,
	`setsid sleep 1000 & wait`,
	`nohup sleep 1000 >/dev/null 2>&1 & wait`,
	`setsid sh -c 'setsid sleep 1000 &'; sleep 1000`,
	`setsid env -i PATH="$PATH" sh -c '(sleep 1000 &) ; exit'; sleep 1000`,
	`trap '' TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT PIPE; while :; do sleep 1000; done' & while :; do sleep 1000; done`,
}

// clientVar holds what the client process of a test does.
const clientVar = "SANDBOXAGENT_TEST_CLIENT"

// client is a process of its own that opens an environment.
type client struct {
	Host, Key, KnownHosts, WorkDir, Session string
}

// TestClientProcess is the client that other tests kill. It prints each step.
func TestClientProcess(t *testing.T) {
	text := os.Getenv(clientVar)
	if text == "" {
		t.Skip("this is for other tests, which start it in a process of its own")
	}
	var c client
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	fmt.Println("begun")
	h, err := ssh.Connect(t.Context(), ssh.Target{
		Host: c.Host, ConfigFile: os.DevNull,
		Identities: []string{c.Key}, KnownHosts: c.KnownHosts,
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := h.Open(t.Context(), config(t, ssh.Config{
		WorkDir: c.WorkDir,
		Options: remote.Options{Session: c.Session, TTL: 2 * time.Second},
	}))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("opened")
	for _, script := range runaways {
		go func() {
			_, _ = e.Exec(context.Background(), env.Command{Argv: []string{
				"/bin/sh", "-c",
				script,
			}})
		}()
	}
	select {}
}

// startClient starts a client process, and returns when it has begun, and what it says from then
// on.
func startClient(t *testing.T, s *daemons.SSHD, session string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	text, err := json.Marshal(client{
		s.User() + "@" + s.Address(), s.Key(), s.KnownHosts(),
		s.MakeDir(t), session,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClientProcess$")
	cmd.Env = append(os.Environ(), clientVar+"="+string(text), helperVar+"="+helperProgram)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the client says %q, %v", line, err)
	}
	return cmd, said
}

// TestClientKilled kills a client while commands run. Nothing of them is left when the time to live
// has passed.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	const session = "killed"
	cmd, said := startClient(t, s, session)
	if line, err := said.ReadString('\n'); err != nil || line != "opened\n" {
		t.Fatalf("the client says %q, %v", line, err)
	}
	sleeping := func() (n int) {
		for _, pid := range s.Processes() {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "sleep\n" {
				n++
			}
		}
		return n
	}
	const count = 9
	eventually(t, "the commands run", func() bool { return sleeping() >= count })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s, session)
	if account() != nil {
		eventually(t, "the end of all processes", func() bool { return len(s.Processes()) == 0 })
	}
}

// TestClientKilledWhileOpening kills a client in all phases of a start, the sending of the helper
// among them.
func TestClientKilledWhileOpening(t *testing.T) {
	needFull(t, "kills in all phases of a start")
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	whole := time.Duration(0)
	const steps = 8
	for i := range steps {
		session := fmt.Sprintf("killed-%d", i)
		_ = os.RemoveAll(filepath.Join(s.Home(), ".cache"))
		cmd, said := startClient(t, s, session)
		began := time.Now()
		if i == 0 {
			if line, err := said.ReadString('\n'); err != nil || line != "opened\n" {
				t.Fatalf("the client says %q, %v", line, err)
			}
			whole = time.Since(began)
		} else {
			time.Sleep(time.Duration(i) * whole / steps) // a moment of the start
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, s, session)
		if account() != nil {
			eventually(t, "the end of all processes", func() bool { return len(s.Processes()) == 0 })
		}
	}
}

// TestLaunchCutOff ends the connection when the directory of an environment is there and its helper
// is not started yet.
func TestLaunchCutOff(t *testing.T) {
	t.Parallel()
	bin, err := os.MkdirTemp("/tmp", "ssh-test-bin-") //nolint:usetesting // an ordinary user passes through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	// The script asks for the time at that point.
	gate := fmt.Sprintf("#!/bin/sh\n: >%[1]s/waits\nwhile ! [ -e %[1]s/on ]; do sleep 0.1; "+
		"done\necho 1\n", bin)
	if err := errors.Join(os.Chmod(bin, 0o777), os.WriteFile(filepath.Join(bin, "date"), []byte(gate),
		0o755)); err != nil {
		t.Fatal(err)
	}
	s := server(t, daemons.SSHDConfig{Account: account(), Vars: []string{"PATH=" + bin + ":" +
		os.Getenv("PATH")}})
	h := connect(t, target(t, s))
	const session = "cut-off"
	opened := make(chan error, 1)
	go func() {
		_, err := h.Open(t.Context(), config(t, ssh.Config{
			Options: remote.Options{Session: session},
		}))
		opened <- err
	}()
	eventually(t, "the script waits", func() bool {
		return unix.Access(filepath.Join(bin, "waits"),
			unix.F_OK) == nil
	})
	s.Cut()
	if err := <-opened; !typed(err) {
		t.Errorf("%T %v", err, err)
	}
	if err := os.WriteFile(filepath.Join(bin, "on"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s, session)
}

// helperOf returns what the host lists of an environment.
func helperOf(t *testing.T, h *ssh.Host, session string) ssh.Listed {
	t.Helper()
	list, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(l ssh.Listed) bool { return l.Session == session })
	if i < 0 {
		t.Fatalf("%s is not among %v", session, list)
	}
	return list[i]
}

// TestHelperKilled kills the helper. Calls end long before the time to live has passed, and what it
// leaves is collected.
func TestHelperKilled(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	dead, err := h.Open(t.Context(), config(t, ssh.Config{
		Options: remote.Options{TTL: time.Hour},
	}))
	if err != nil {
		t.Fatal(err)
	}
	lives := open(t, h, ssh.Config{WorkDir: s.MakeDir(t)})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := dead.Exec(ctx, env.Command{Argv: []string{
			"/bin/sh", "-c",
			"setsid sh -c 'while :; do sleep 1000; done' & sleep 1000",
		}})
		result <- err
	}()
	eventually(t, "the command runs", func() bool { return len(left(t, s, dead.Session())) > 4 })
	l := helperOf(t, h, dead.Session())
	if l.Garbage || l.PID <= 1 || l.TTL != time.Hour || l.Owner != "127.0.0.1" ||
		time.Since(l.Created).Abs() > time.Minute {
		t.Fatalf("%+v", l)
	}
	if err := unix.Kill(l.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, env.ErrGone) || !errors.Is(err, env.ErrUnknownOutcome) {
		t.Errorf("the command: %v", err)
	}
	if _, err := dead.ReadDir(ctx, "."); !errors.Is(err, env.ErrGone) {
		t.Errorf("a list: %v", err)
	}
	if err := dead.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("close: %v", err)
	}
	if l := helperOf(t, h, dead.Session()); !l.Garbage {
		t.Errorf("it runs: %+v", l)
	}
	survivors := left(t, s, dead.Session())
	if len(survivors) < 2 {
		t.Fatalf("no process survives: %v", survivors)
	}
	for _, opts := range []remote.CollectOptions{{DryRun: true}, {}} {
		done, err := h.Collect(ctx, opts)
		if err != nil || len(done) != 1 || done[0].Name != dead.Session() || done[0].Err != nil {
			t.Errorf("%+v: %+v, %v", opts, done, err)
		}
		if now := left(t, s, dead.Session()); opts.DryRun && !slices.Equal(now, survivors) ||
			!opts.DryRun && len(now) > 0 {
			t.Errorf("%+v leaves %v", opts, now)
		}
	}
	if done, err := h.Collect(ctx, remote.CollectOptions{}); err != nil || len(done) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := lives.Exec(ctx, env.Command{Argv: []string{"/bin/true"}}); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// TestCollectAll ends an environment that runs.
func TestCollectAll(t *testing.T) {
	t.Parallel()
	if account() == nil {
		t.Skip("other tests have the same user") // whose environments would end, too
	}
	s := server(t, daemons.SSHDConfig{Account: account()})
	e, err := connect(t, target(t, s)).Open(t.Context(), config(t, ssh.Config{
		Options: remote.Options{TTL: time.Hour},
	}))
	if err != nil {
		t.Fatal(err)
	}
	other := connect(t, target(t, s))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		res, err := e.Exec(ctx, env.Command{Argv: []string{"/bin/sh", "-c", runaways[len(runaways)-1]}})
		if err == nil && res.Signal == "SIGKILL" { // that much was told
			err = env.ErrGone
		}
		result <- err
	}()
	eventually(t, "the command runs", func() bool { return len(left(t, s, e.Session())) > 4 })
	if done, err := other.Collect(ctx, remote.CollectOptions{DryRun: true, All: true}); err != nil ||
		len(done) != 1 || done[0].Reason != "it was running" {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := other.Collect(ctx, remote.CollectOptions{All: true}); err != nil || len(done) != 1 ||
		done[0].Err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	if err := <-result; !errors.Is(err, env.ErrGone) {
		t.Errorf("the command: %v", err)
	}
	nothingLeft(t, s, e.Session()) // a client that comes back in vain may be there for a moment
	if _, err := e.ReadDir(ctx, "."); !errors.Is(err, env.ErrGone) {
		t.Errorf("a list: %v", err)
	}
	if err := e.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("close: %v", err)
	}
}

// TestHostKeyChangesBeforeReconnect connects again to what is another host by now. Nothing is sent
// to it.
func TestHostKeyChangesBeforeReconnect(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	e, err := h.Open(t.Context(), config(t, ssh.Config{
		Options: remote.Options{TTL: time.Hour},
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the helper waits for its client
		if err := unix.Kill(helperPID(t, s, e.Session()), unix.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	in, typed := io.Pipe()
	defer typed.Close() //nolint:errcheck // never fails
	result := make(chan error, 1)
	go func() {
		_, err := e.Exec(ctx, env.Command{Argv: []string{"/bin/cat"}, Stdin: in})
		result <- err
	}()
	_, _ = io.WriteString(typed, "x")
	if err := s.NewHostKey(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"the command": <-result,
		"a list":      func() error { _, err := e.ReadDir(ctx, "."); return err }(),
		"close":       e.Close(),
	} {
		var key *ssh.HostKeyError
		if !errors.Is(err, env.ErrGone) || !errors.As(err, &key) || key.Kind != ssh.HostKeyChanged {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// helperPID finds the helper of an environment on this machine.
func helperPID(t *testing.T, s *daemons.SSHD, session string) int {
	t.Helper()
	for _, name := range left(t, s, session) {
		var pid int
		if _, err := fmt.Sscanf(name, "/proc/%d", &pid); err == nil && strings.Contains(name,
			`\x00serve\x00`) {
			return pid
		}
	}
	t.Fatalf("there is no helper of %s", session)
	return 0
}
