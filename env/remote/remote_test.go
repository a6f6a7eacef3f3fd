package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		field string
		o     Options
	}{
		{"", Options{}},
		{"", Options{Vars: []string{"A=", "B=x=y"}, Session: "a-1"}},
		{"var", Options{Vars: []string{"A"}}},
		{"var", Options{Vars: []string{"=x"}}},
		{"var", Options{Vars: []string{"A=\x00"}}},
		{"ttl", Options{TTL: -1}},
		{"start timeout", Options{StartTimeout: -1}},
		{"session", Options{Session: "../x"}},
		{"session", Options{Session: strings.Repeat("a", 64)}},
		{"helper", Options{Helper: Helper{Binary: os.DevNull}}},
	} {
		got, err := tt.o.Complete("backend")
		var config *ConfigError
		if errors.As(err, &config); (err == nil) != (tt.field == "") || config != nil &&
			(config.Field != tt.field || !strings.HasPrefix(err.Error(), "backend: "+tt.field+": ")) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.field)
		}
		if err == nil && (!IsSession(got.Session) || got.TTL != DefaultTTL ||
			got.StartTimeout != DefaultStartTimeout || got.Warn == nil) {
			t.Errorf("%+v is completed as %+v", tt.o, got)
		}
	}
	if got, err := (Options{TTL: time.Millisecond + 1}).Complete(""); got.TTL != 2*time.Millisecond {
		t.Errorf("the TTL is %s, %v", got.TTL, err)
	}
}

func TestCommandLines(t *testing.T) {
	p := &Program{Args: []string{"x"}}
	for want, got := range map[string][]string{
		"/h x serve":                        p.Serve("/h", "", 0),
		"/h x serve --socket /s --ttl 1m0s": p.Serve("/h", "/s", time.Minute),
		"/h x dial --socket @s --pid 1":     p.Dial("/h", "@s", "--pid", "1"),
	} {
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestIsolation(t *testing.T) {
	kill := env.Guarantee{Name: env.KillTree, Strength: env.Enforced, By: "helper"}
	found := env.Guarantee{Name: env.Isolation, Strength: env.Absent, By: "helper"}
	info := env.Info{Backend: "local", Guarantees: []env.Guarantee{found, kill}}
	for name, tt := range map[string]struct {
		isolation func(env.Guarantee) env.Guarantee
		want      []env.Guarantee
	}{
		"kept": {nil, []env.Guarantee{found, kill}},
		"replaced": {
			func(g env.Guarantee) env.Guarantee {
				return env.Guarantee{Strength: env.Enforced, By: "not " + g.By}
			},
			[]env.Guarantee{kill, {Name: env.Isolation, Strength: env.Enforced, By: "not helper"}},
		},
		"removed": {func(env.Guarantee) env.Guarantee { return env.Guarantee{} }, []env.Guarantee{kill}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Config{Backend: "b", Isolation: tt.isolation}.describe(info)
			if got.Backend != "b" || !slices.Equal(got.Guarantees, tt.want) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCollect(t *testing.T) {
	broken, missing := errors.New("broken"), errors.New("missing")
	for _, dry := range []bool{true, false} {
		removed := 0
		done, err := CollectOptions{DryRun: dry}.Collect(
			func(add func(kind, name, reason string, remove func() error)) error {
				add("k", "a", "old", func() error { removed++; return nil })
				add("k", "b", "old", func() error { removed++; return broken })
				return missing
			})
		want := []Collected{{Kind: "k", Name: "a", Reason: "old"}, {Kind: "k", Name: "b", Reason: "old"}}
		if !dry {
			want[1].Err = broken
		}
		if !slices.Equal(done, want) || !errors.Is(err, missing) || errors.Is(err, broken) == dry ||
			removed != len(want) && !dry || removed > 0 && dry {
			t.Errorf("dry %t: %+v, %v, %d calls", dry, done, err, removed)
		}
	}
}

// host serves an environment, as a helper does.
type host struct {
	*server.Server
	mu     sync.Mutex
	token  string
	start  helper.Start
	served sync.WaitGroup
	last   net.Conn // the client's end of the last stream
}

func newHost(t *testing.T) *host {
	h := &host{}
	h.Server = server.New(server.Config{
		Open: func(_ context.Context, start json.RawMessage) (env.Environment, error) {
			return &wiretest.Env{OnStat: func(context.Context, string) (fs.FileInfo, error) {
				return nil, fs.ErrExist // it was called
			}}, json.Unmarshal(start, &h.start)
		},
		Authorize: func(hello wire.Hello) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.token == "" {
				h.token = hello.Token
			}
			if h.token != hello.Token {
				return fs.ErrPermission
			}
			return nil
		},
	})
	t.Cleanup(func() {
		_ = h.Close() // a client may have closed it
		h.served.Wait()
	})
	return h
}

func (h *host) dial(context.Context) (io.ReadWriteCloser, error) {
	client, conn := net.Pipe()
	h.served.Go(func() { _ = h.Serve(context.Background(), conn) }) // it ends with the stream
	h.last = client
	return client, nil
}

// works reports whether calls reach the served environment.
func works(t *testing.T, e *Environment) {
	t.Helper()
	if _, err := e.Stat(t.Context(), "x"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a call: %v", err)
	}
}

// TestLife opens an environment, loses its stream, attaches to it, leaves it and closes it.
func TestLife(t *testing.T) {
	wiretest.NoLeaks(t)
	h := newHost(t)
	first, _ := h.dial(t.Context())
	left, closed := 0, 0
	cfg := Config{
		Backend: "b", Session: "s", Stream: first, Dial: h.dial, TTL: time.Minute, Args: []string{"a"},
		Dir: "/d", Vars: []string{"A=1"}, Left: func() { left++ },
		Close: func(closeHelper func() error) error {
			closed++
			return errors.Join(closeHelper(), errors.New("released"))
		},
	}
	e, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if h.start.Dir != "/d" || !slices.Equal(h.start.Vars, cfg.Vars) || e.Session() != "s" ||
		e.Info().Backend != "b" {
		t.Errorf("%+v, %+v", h.start, e.Info())
	}
	works(t, e)
	_ = h.last.Close() // the stream is lost
	works(t, e)

	ticket := e.Ticket()
	if !ticket.Valid() || (Ticket{}).Valid() {
		t.Errorf("%+v", ticket)
	}
	text, err := json.Marshal(ticket)
	var decoded Ticket
	if err = errors.Join(err, json.Unmarshal(text, &decoded)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ticket, decoded); diff != "" {
		t.Error(diff)
	}
	forged := ticket
	forged.Token = "x"
	cfg.Stream = nil
	if _, err := Attach(t.Context(), cfg, forged); !errors.Is(err, fs.ErrPermission) ||
		!strings.HasPrefix(err.Error(), "attach to s: ") {
		t.Errorf("another token: %v", err)
	}
	other, err := Attach(t.Context(), cfg, decoded)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Leave(); err != nil || left != 1 {
		t.Errorf("leave: %v, %d calls", err, left)
	}
	if err := other.Close(); err != nil || closed != 0 {
		t.Errorf("close after leave: %v, %d calls", err, closed)
	}
	works(t, e)
	for i := range 2 {
		err := e.Close()
		if closed != 1 || (err != nil) != (i == 0) {
			t.Errorf("close %d: %v, %d calls", i, err, closed)
		}
	}
}

// TestOneStream loses the only stream of an environment.
func TestOneStream(t *testing.T) {
	wiretest.NoLeaks(t)
	h := newHost(t)
	stream, _ := h.dial(t.Context())
	e, err := Open(t.Context(), Config{Stream: stream, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Close()
	if _, err := e.Stat(t.Context(), "x"); !errors.Is(err, env.ErrGone) {
		t.Errorf("a call: %v", err)
	}
	if err := e.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("close: %v", err)
	}
}

// TestOpenFails closes the stream of a helper that does not answer.
func TestOpenFails(t *testing.T) {
	wiretest.NoLeaks(t)
	client, conn := net.Pipe()
	_ = conn.Close()
	if _, err := Open(t.Context(), Config{Stream: client}); err == nil {
		t.Error("no error")
	}
	if _, err := client.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the stream is open: %v", err)
	}
}
