package ssh_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// ticket returns the ticket of an environment, by way of its encoding.
func ticket(t *testing.T, e *ssh.Environment) ssh.Ticket {
	t.Helper()
	text, err := json.Marshal(e.Ticket())
	var again ssh.Ticket
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestAttach reattaches to an environment while its first client is connected, after another one
// has left, after the first was cut off for good, and after its end.
func TestAttach(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	proxy, to := behind(t, s)
	far, near := connect(t, to), connect(t, target(t, s))
	work := s.MakeDir(t)
	first := start(t, far, ssh.Config{WorkDir: work, Options: remote.Options{TTL: 15 * time.Second}})
	pass := ticket(t, first)
	attach := func() *ssh.Environment {
		t.Helper()
		e, err := near.Attach(t.Context(), pass)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	second := attach()
	does(t, first, "echo first >> f")
	does(t, second, "echo second >> f")
	if got := does(t, first, "cat f"); got != "first\nsecond\n" ||
		second.Session() != first.Session() || second.Info().WorkDir != work {
		t.Errorf("%q, %s, %+v", got, second.Session(), second.Info())
	}
	running := background(t.Context(), second, sh("while :; do sleep 0.1; done"))
	if err := second.Leave(); err != nil {
		t.Error(err)
	}
	if o := <-running; o.err == nil {
		t.Error("the command of a client that has left has a result")
	}
	if _, err := second.ReadDir(t.Context(), "."); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a client that has left: %v", err)
	}
	does(t, first, "echo alone >> f")
	third := attach()
	proxy.Stop() // cuts the first one off
	if got := does(t, third, "cat f"); got != "first\nsecond\nalone\n" {
		t.Errorf("%q", got)
	}
	if err := third.Leave(); err != nil {
		t.Error(err)
	}
	last := attach() // no client was connected
	does(t, last, "cat f")
	if err := last.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	nothingLeft(t, s, pass.Session)
	if _, err := near.Attach(t.Context(), pass); !errors.Is(err, env.ErrGone) {
		t.Errorf("after the end: %v", err)
	}
	if err := first.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("the first one's close: %v", err)
	}
}

// TestAttachClose ends an environment for both of its clients.
func TestAttachClose(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	for _, closer := range []int{0, 1} {
		first := start(t, h, ssh.Config{Options: remote.Options{TTL: time.Hour}})
		second, err := h.Attach(t.Context(), ticket(t, first))
		if err != nil {
			t.Fatal(err)
		}
		both := []*ssh.Environment{first, second}
		other := both[1-closer]
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		result := background(ctx, other, command("/bin/sleep", "1000"))
		eventually(t, "the command runs", func() bool {
			return envtest.AliveOnHost(t, "/bin/sleep", "1000")
		})
		if err := both[closer].Close(); err != nil {
			t.Error(err)
		}
		if o := <-result; !o.gone() {
			t.Errorf("the command of the other one: %+v", o)
		}
		if _, err := other.ReadDir(ctx, "."); !errors.Is(err, env.ErrGone) {
			t.Errorf("a list of the other one: %v", err)
		}
		// A helper that still answers reports that the environment was closed.
		if err := other.Close(); err != nil && !errors.Is(err, env.ErrGone) {
			t.Errorf("the other one's close: %v", err)
		}
		nothingLeft(t, s, first.Session())
	}
}

// TestAttachRefused attaches with invalid tickets, and too late.
func TestAttachRefused(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	h := connect(t, target(t, s))
	e := open(t, h, ssh.Config{})
	good := ticket(t, e)
	for _, tt := range []struct {
		name  string
		spoil func(*ssh.Ticket)
	}{
		{"empty", func(p *ssh.Ticket) { *p = ssh.Ticket{} }},
		{"session", func(p *ssh.Ticket) { p.Session = "../x" }},
		{"directory", func(p *ssh.Ticket) { p.Dir = "x" }},
		{"program", func(p *ssh.Ticket) { p.Program = "" }},
		{"ttl", func(p *ssh.Ticket) { p.TTL = -1 }},
	} {
		bad := good
		tt.spoil(&bad)
		var invalid *ssh.ConfigError
		if _, err := h.Attach(t.Context(), bad); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	bad := good
	bad.Token = "0123456789abcdef0123456789"
	if _, err := h.Attach(t.Context(), bad); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("another token: %v", err)
	}
	bad = good
	bad.Dir += "x"
	if _, err := h.Attach(t.Context(), bad); !errors.Is(err, env.ErrGone) {
		t.Errorf("another directory: %v", err)
	}
	does(t, e, "true")
	short := start(t, h, ssh.Config{Options: remote.Options{TTL: time.Second}})
	if err := short.Leave(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s, short.Session())
	if _, err := h.Attach(t.Context(), ticket(t, short)); !errors.Is(err, env.ErrGone) {
		t.Errorf("after the TTL: %v", err)
	}
}
