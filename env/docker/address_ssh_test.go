//go:build linux

package docker_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// overSSH starts a server on the machine of the tests' daemon, and makes a client of it the program
// ssh. More are lines of the client's configuration.
func overSSH(t *testing.T, more ...string) *daemons.SSHD {
	t.Helper()
	s := daemons.NewSSHD(t, daemons.SSHDConfig{Vars: []string{
		"DOCKER_HOST=" + daemons.DockerHost(t),
		"PATH=" + os.Getenv("PATH"),
	}})
	useClient(t, s, more...)
	return s
}

// useClient makes a configured client the program ssh.
func useClient(t *testing.T, s *daemons.SSHD, more ...string) {
	t.Helper()
	t.Setenv("PATH", s.Client(t, more...)+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// noSessions checks that all connections end.
func noSessions(t *testing.T, s *daemons.SSHD) {
	t.Helper()
	var left []int
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if left = s.Sessions(); len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("connections are left: %v", left)
}

func TestSSH(t *testing.T) {
	s := overSSH(t)
	t.Setenv("DOCKER_HOST", s.Host())
	e, err := docker.Connect(t.Context(), docker.Address{})
	if err != nil {
		t.Fatal(err)
	}
	if e.Address() != s.Host() || len(s.Sessions()) == 0 {
		t.Errorf("the address is %s, on %d connections", e.Address(), len(s.Sessions()))
	}
	box := start(t, e, docker.Config{})
	work(t, box)
	if err := errors.Join(box.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	if exists(t, daemons.DockerHost(t), box.Container()) {
		t.Error("the container is left")
	}
	noSessions(t, s)
}

// work writes and reads a file, and has a dialogue with a command.
func work(t *testing.T, box env.Environment) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789abcde\n"), 40_000)
	if _, err := box.WriteFile(t.Context(), "dir/f", bytes.NewReader(content),
		env.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := env.ReadFile(t.Context(), box, "dir/f", 1<<20)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d of %d bytes, %v", len(got), len(content), err)
	}
	// Each line is answered before the next one is sent.
	in, typed := io.Pipe()
	out, heard := io.Pipe()
	go func() {
		defer typed.Close() //nolint:errcheck // never fails
		answer := make([]byte, 100)
		for _, line := range []string{"one", "two"} {
			_, _ = io.WriteString(typed, line+"\n")
			n, err := io.ReadAtLeast(out, answer, len("<one>\n"))
			if err != nil || string(answer[:n]) != "<"+line+">\n" {
				t.Errorf("the answer to %q is %q, %v", line, answer[:n], err)
			}
		}
	}()
	var last bytes.Buffer
	res, err := box.Exec(t.Context(), env.Command{
		Argv:  []string{"sh", "-c", `while read -r x; do echo "<$x>"; done; echo end >&2; exit 3`},
		Stdin: in, Stdout: heard, Stderr: &last,
	})
	if err != nil || res.ExitCode != 3 || last.String() != "end\n" {
		t.Errorf("%+v, %v, %q", res, err, last.String())
	}
}

// TestSSHCut ends all connections while a command runs.
func TestSSHCut(t *testing.T) {
	s := overSSH(t)
	envtest.Survives(t, open(t, connectTo(t, s.Host()), docker.Config{}), 1, s.Cut)
}

// TestSSHGone ends the server while a command runs. The error reports that it may have run, and
// comes when the container is certainly gone.
func TestSSHGone(t *testing.T) {
	s := overSSH(t)
	box := start(t, connectTo(t, s.Host()), docker.Config{
		Options: remote.Options{TTL: 3 * time.Second},
	})
	done := envtest.Sleeping(t, box, "")
	s.Stop()
	if o := await(t, done, "the command hangs"); !errors.Is(o.Err, env.ErrUnknownOutcome) &&
		!errors.Is(o.Err, env.ErrGone) {
		t.Errorf("the command ended with %+v", o)
	}
	if _, err := box.Stat(t.Context(), "/"); !errors.Is(err, env.ErrGone) {
		t.Errorf("afterwards: %v", err)
	}
	if err := box.Close(); err == nil || !strings.Contains(err.Error(), box.Container()) {
		t.Errorf("close cannot reach the container and returns %v", err)
	}
	host := daemons.DockerHost(t)
	for end := time.Now().Add(2 * time.Minute); exists(t, host, box.Container()); {
		if time.Now().After(end) {
			t.Fatal("the container is left")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestSSHRefuses fails in the ways of ssh: at once, with the reason and a remedy, and without a
// prompt.
func TestSSHRefuses(t *testing.T) {
	s := overSSH(t)
	asked := t.TempDir() + "/asked"
	askpass := t.TempDir() + "/askpass"
	if err := os.WriteFile(askpass, []byte("#!/bin/sh\necho \"$@\" >> "+asked+"\nsleep 60\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSH_ASKPASS", askpass)
	t.Setenv("SSH_ASKPASS_REQUIRE", "force")
	t.Setenv("DISPLAY", ":99")
	stranger := overSSH(t)
	if err := stranger.Revoke(); err != nil {
		t.Fatal(err)
	}
	bare := daemons.NewSSHD(t, daemons.SSHDConfig{Vars: []string{"PATH=/none"}})
	for _, tt := range []struct {
		name   string
		server *daemons.SSHD
		host   string // default: the server's
		byName bool   // by a context
		more   []string
		path   string // default: the client's
		want   []string
	}{
		{name: "wrong key", server: stranger, want: []string{"Permission denied", "ssh-add"}},
		{
			name: "unknown host key", server: s, more: []string{"UserKnownHostsFile /dev/null"},
			want: []string{"Host key verification failed", "known_hosts"},
		},
		{
			name: "unknown host key, by a context", server: s, byName: true,
			more: []string{"UserKnownHostsFile /dev/null"},
			want: []string{"Host key verification failed", "known_hosts"},
		},
		{
			name: "nobody listens", server: s, host: "ssh://127.0.0.1:1",
			want: []string{"Connection refused", "ssh HOST docker version"},
		},
		{
			name: "no such host", server: s, host: "ssh://nowhere.invalid",
			want: []string{"nowhere.invalid", "ssh HOST docker version"},
		},
		{
			name: "no docker on the host", server: bare,
			want: []string{"not found", "install the program docker on that host"},
		},
		{name: "no ssh", server: s, path: t.TempDir(), want: []string{"install the program ssh here"}},
		{
			name: "no daemon on the host", server: s, host: s.Host() + "/no/such.sock",
			want: []string{"no/such.sock"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			useClient(t, tt.server, tt.more...)
			if tt.path != "" {
				t.Setenv("PATH", tt.path)
			}
			tt.host = cmp.Or(tt.host, tt.server.Host())
			address := docker.Address{Host: tt.host}
			if tt.byName {
				dir, restore := configured(t, "{}")
				defer restore()
				makeContext(t, dir, "far", "host="+tt.host)
				address = docker.Address{Context: "far"}
			}
			start := time.Now()
			e, err := docker.Connect(t.Context(), address)
			if err == nil {
				t.Fatal("it connects", e.Close())
			}
			t.Log(time.Since(start).Round(time.Millisecond), err)
			var down *docker.DaemonError
			if !errors.As(err, &down) || down.Address != tt.host {
				t.Errorf("got %v, want a *DaemonError", err)
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v lacks %q", err, text)
				}
			}
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%q has more than one line", err.Error())
			}
			if question, err := os.ReadFile(asked); err == nil {
				t.Errorf("a prompt: %q", question)
				_ = os.Remove(asked)
			}
			noSessions(t, tt.server)
		})
	}
}

// TestSSHSilent connects to a host that accepts connections and sends nothing.
func TestSSHSilent(t *testing.T) {
	useClient(t, daemons.NewSSHD(t, daemons.SSHDConfig{}))
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // it sent nothing
	ctx, cancel := context.WithCancelCause(t.Context())
	hungUp, ended, why := make(chan error, 1), make(chan error, 1), errors.New("given up")
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			cancel(why)
			_, err = io.Copy(io.Discard, conn)
			err = errors.Join(err, conn.Close())
		}
		hungUp <- err
	}()
	go func() {
		_, err := docker.Connect(ctx, docker.Address{Host: "ssh://" + silent.Addr().String()})
		ended <- err
	}()
	if err := await(t, ended, "it hangs"); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
	if err := await(t, hungUp, "ssh continues"); err != nil {
		t.Error(err)
	}
}

// TestSSHContext has the address in a context of the docker command.
func TestSSHContext(t *testing.T) {
	s := overSSH(t)
	dir, restore := configured(t, "{}")
	defer restore()
	makeContext(t, dir, "far", "host="+s.Host())
	e, err := docker.Connect(t.Context(), docker.Address{Context: "far"})
	if err != nil {
		t.Fatal(err)
	}
	if e.Address() != s.Host() || len(s.Sessions()) == 0 {
		t.Errorf("it is at %s, by %d connections", e.Address(), len(s.Sessions()))
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	noSessions(t, s)
}
