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

// runaways are commands whose processes escape from their parents in different ways.
var runaways = []string{
	`sleep 1000`,
	`setsid sleep 1000 & wait`,
	`nohup sleep 1000 >/dev/null 2>&1 & wait`,
	`setsid sh -c 'setsid sleep 1000 &'; sleep 1000`,
	`setsid env -i PATH="$PATH" sh -c '(sleep 1000 &) ; exit'; sleep 1000`,
	`trap '' TERM HUP INT
setsid sh -c 'trap "" TERM HUP INT PIPE; while :; do sleep 1000; done' &
while :; do sleep 1000; done`,
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
	fmt.Println("started")
	h, err := ssh.Connect(t.Context(), ssh.Target{
		Host: c.Host, ConfigFile: os.DevNull,
		Identities: []string{c.Key}, KnownHosts: c.KnownHosts,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, h, ssh.Config{
		WorkDir: c.WorkDir, Options: remote.Options{Session: c.Session, TTL: 2 * time.Second},
	})
	fmt.Println("opened")
	for _, script := range runaways {
		go func() {
			_, _ = e.Exec(context.Background(), sh(script)) // until the kill
		}()
	}
	select {}
}

// startClient starts a client process, waits for its first line, and returns the following ones.
func startClient(t *testing.T, s *daemons.SSHD, session string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	text, err := json.Marshal(client{
		s.User() + "@" + s.Address(), s.Key(), s.KnownHosts(), s.MakeDir(t), session,
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
	output := bufio.NewReader(out)
	if line, err := output.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("the client prints %q, %v", line, err)
	}
	return cmd, output
}

// TestClientKilled kills a client while commands run. Nothing of them is left when the TTL has
// passed.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	const session = "killed"
	cmd, output := startClient(t, s, session)
	if line, err := output.ReadString('\n'); err != nil || line != "opened\n" {
		t.Fatalf("the client prints %q, %v", line, err)
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

// TestClientKilledWhileOpening kills a client in all phases of a start, the delivery of the helper
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
		cmd, output := startClient(t, s, session)
		started := time.Now()
		if i == 0 {
			if line, err := output.ReadString('\n'); err != nil || line != "opened\n" {
				t.Fatalf("the client prints %q, %v", line, err)
			}
			whole = time.Since(started)
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

// TestLaunchCutOff ends the connection when the directory of an environment exists and its helper
// has not started yet.
func TestLaunchCutOff(t *testing.T) {
	t.Parallel()
	//nolint:usetesting // an ordinary user has to pass through it
	bin, err := os.MkdirTemp("/tmp", "ssh-test-bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	// The script calls date at that point.
	gate := fmt.Sprintf("#!/bin/sh\n: >%[1]s/waits\nwhile ! [ -e %[1]s/on ]; do sleep 0.1; "+
		"done\necho 1\n", bin)
	if err := errors.Join(os.Chmod(bin, 0o777),
		os.WriteFile(filepath.Join(bin, "date"), []byte(gate), 0o755)); err != nil {
		t.Fatal(err)
	}
	s := server(t, daemons.SSHDConfig{
		Account: account(), Vars: []string{"PATH=" + bin + ":" + os.Getenv("PATH")},
	})
	h := connect(t, target(t, s))
	const session = "cut-off"
	opened := make(chan error, 1)
	go func() {
		c := ssh.Config{Options: remote.Options{Session: session}}
		_, err := h.Open(t.Context(), config(t, c))
		opened <- err
	}()
	eventually(t, "the script waits", func() bool {
		return unix.Access(filepath.Join(bin, "waits"), unix.F_OK) == nil
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

// TestHelperKilled kills the helper. Calls end long before the TTL has passed, and Collect removes
// its remains.
func TestHelperKilled(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	dead := start(t, h, ssh.Config{Options: remote.Options{TTL: time.Hour}})
	lives := open(t, h, ssh.Config{WorkDir: s.MakeDir(t)})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	result := background(ctx, dead, sh("setsid sh -c 'while :; do sleep 1000; done' & sleep 1000"))
	eventually(t, "the command runs", func() bool { return len(left(t, s, dead.Session())) > 4 })
	l := helperOf(t, h, dead.Session())
	if l.Garbage || l.PID <= 1 || l.TTL != time.Hour || l.Owner != "127.0.0.1" ||
		time.Since(l.Created).Abs() > 10*time.Minute {
		t.Fatalf("%+v", l)
	}
	if err := unix.Kill(l.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if o := <-result; !errors.Is(o.err, env.ErrGone) || !errors.Is(o.err, env.ErrUnknownOutcome) {
		t.Errorf("the command: %v", o.err)
	}
	wantGone(t, dead)
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
	does(t, lives, "true")
}

// TestCollectAll ends a running environment.
func TestCollectAll(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: ownAccount(t)}) // others keep their environments
	e := start(t, connect(t, target(t, s)), ssh.Config{Options: remote.Options{TTL: time.Hour}})
	other := connect(t, target(t, s))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	result := background(ctx, e, sh(runaways[len(runaways)-1]))
	eventually(t, "the command runs", func() bool { return len(left(t, s, e.Session())) > 4 })
	for _, dry := range []bool{true, false} {
		done, err := other.Collect(ctx, remote.CollectOptions{DryRun: dry, All: true})
		if err != nil || len(done) != 1 || done[0].Reason != "it was running" || done[0].Err != nil {
			t.Errorf("%+v, %v", done, err)
		}
	}
	if o := <-result; !o.gone() {
		t.Errorf("the command: %+v", o)
	}
	nothingLeft(t, s, e.Session())
	wantGone(t, e)
}

// TestHostKeyChangesBeforeReconnect reconnects to a host with another key. Nothing is sent to it.
func TestHostKeyChangesBeforeReconnect(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	e := start(t, h, ssh.Config{Options: remote.Options{TTL: time.Hour}})
	t.Cleanup(func() { // the helper waits for its client
		if err := unix.Kill(helperPID(t, s, e.Session()), unix.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	in, typed := io.Pipe()
	defer typed.Close() //nolint:errcheck // never fails
	result := background(ctx, e, env.Command{Argv: []string{"/bin/cat"}, Stdin: in})
	_, _ = io.WriteString(typed, "x")
	if err := s.NewHostKey(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"the command": (<-result).err,
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
	t.Fatalf("no helper of %s", session)
	return 0
}
