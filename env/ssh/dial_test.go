package ssh

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

func TestDialNoServer(t *testing.T) {
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	sends := func(text string, times int) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, strings.Repeat(text, times)) }
	}
	for name, tc := range map[string]struct {
		serve func(net.Conn)
		short bool // the time is short
		want  string
		is    error
	}{
		"silence": {
			serve: silent, short: true, want: "no answer within 200ms (is the host up",
			is: os.ErrDeadlineExceeded,
		},
		"silence after the version": {
			serve: func(c net.Conn) { sends("SSH-2.0-x\r\n", 1)(c); silent(c) },
			short: true, want: "no answer within 200ms", is: os.ErrDeadlineExceeded,
		},
		"a line without an end": {serve: sends("x", 1<<20), want: "is that an SSH server?"},
		"lines without an end":  {serve: sends("HTTP/1.1\r\n", 1<<17), want: "is that an SSH server?"},
		"the end at once":       {serve: sends("", 1), want: "is that an SSH server?"},
		"garbage after the version": {
			serve: func(c net.Conn) { sends("SSH-2.0-x\r\n", 1)(c); sends("\xff", 1<<16)(c) },
			want:  "127.0.0.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHome(t)
			s := listen(t, tc.serve)
			target := Target{Host: s.String()}
			if tc.short {
				target.Timeout = 200 * time.Millisecond
			}
			err := m.connect(t, target)
			var failed *ConnectError
			if !errors.As(err, &failed) || failed.Host != s.String() ||
				!strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("got the error %v, want a ConnectError with %q", err, tc.want)
			}
			eventually(t, "the end of the connection", func() bool { return s.open() == 0 })
		})
	}
}

func TestDialRefused(t *testing.T) {
	m := newHome(t)
	err := m.connect(t, Target{Host: "user@127.0.0.1:1"})
	var failed *ConnectError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "nothing listens on that port") &&
		os.PathSeparator == '/' {
		t.Errorf("got the error %v", err)
	}
}

func TestDialLinesBeforeVersion(t *testing.T) {
	m, s := newLogin(t, "", "Welcome\r\nto the\nhost\r\n")
	if err := m.connect(t, Target{Host: s.String()}); err != nil {
		t.Error(err)
	}
}

// TestOpenAfterClose uses a host after its end.
func TestOpenAfterClose(t *testing.T) {
	_, s := newLogin(t, "", "")
	h, err := Connect(t.Context(), Target{Host: s.String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Open(t.Context(), Config{}); !errors.Is(err, fs.ErrClosed) ||
		!strings.Contains(err.Error(), s.String()) {
		t.Errorf("Open: %v", err)
	}
	ticket := Ticket{
		Ticket: remote.Ticket{Session: "abc", Token: "x", TTL: remote.DefaultTTL},
		Dir:    "/d", Program: "/p",
	}
	if _, err := h.Attach(t.Context(), ticket); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Attach: %v", err)
	}
}

// cancelled dials until a condition holds, and ends the context.
func cancelled(t *testing.T, r *route, what string, cond func() bool) {
	t.Helper()
	gone := errors.New("the user is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.try(ctx) }()
	eventually(t, what, cond)
	cancel(gone)
	var failed *ConnectError
	if err := <-done; !errors.Is(err, gone) || errors.As(err, &failed) {
		t.Errorf("got the error %v, want that of the context", err)
	}
}

func TestDialEndsWithTheContext(t *testing.T) {
	m := newHome(t)
	s := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r := m.route(t, Target{Host: s.String(), Timeout: time.Hour})
	cancelled(t, r, "the connection", func() bool { return s.open() == 1 })
	eventually(t, "the end of the connection", func() bool { return s.open() == 0 })
}

func TestConnectionOutlivesTheContextOfDial(t *testing.T) {
	m, s := newLogin(t, "", "")
	ctx, cancel := context.WithCancel(t.Context())
	client, err := m.route(t, Target{Host: s.String(), Timeout: time.Minute}).dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _, err = client.SendRequest(aliveRequest, true, nil)
	if err := errors.Join(err, client.Close()); err != nil {
		t.Error(err)
	}
	eventually(t, "the end of the connection", func() bool { return s.open() == 0 })
}

// chain is a host behind two jump hosts, and a home directory with their settings.
type chain struct {
	home
	first, second, last *server
}

func newChain(t *testing.T) chain {
	t.Helper()
	host, key := newKey(t, "ed25519"), newKey(t, "ed25519")
	c := serverConfig{keys: []gossh.Signer{host.signer}, users: []gossh.PublicKey{key.public()}}
	w := chain{newHome(t), newServer(t, c), newServer(t, c), newServer(t, c)}
	w.write(t, "id_ed25519", key.private(t, ""))
	w.write(t, "known_hosts", "first,second,last "+authorized(host.public()))
	ports := strings.NewReplacer("P1", w.first.port, "P2", w.second.port, "P3", w.last.port)
	w.write(t, "config", ports.Replace(`
Host first
  HostKeyAlias first
  User one
  Port P1
Host second
  HostKeyAlias second
  Port P2
  ProxyJump nowhere
Host last
  HostKeyAlias last
  Port P3
  ProxyJump first,two@second
Host behind
  Port 1
  ProxyJump last
Host *
  HostName 127.0.0.1
`))
	return w
}

func (w chain) open() [3]int { return [3]int{w.first.open(), w.second.open(), w.last.open()} }

// dial logs in to a host, also over the jump hosts.
func (w chain) dial(t *testing.T, host string) (*route, *gossh.Client) {
	t.Helper()
	r := w.route(t, Target{Host: host})
	client, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, client
}

// ended waits for the end of all connections.
func (w chain) ended(t *testing.T) {
	t.Helper()
	eventually(t, "the end of all connections", func() bool { return w.open() == [3]int{} })
}

func TestJump(t *testing.T) {
	w := newChain(t)
	r, client := w.dial(t, "three@last")
	if _, _, err := client.SendRequest(aliveRequest, true, nil); err != nil {
		t.Error(err)
	}
	if got := w.open(); got != [3]int{1, 1, 1} {
		t.Errorf("%v connections", got)
	}
	if way := strings.Split((&Host{route: r}).Route(), " via "); len(way) != 3 ||
		!strings.HasPrefix(way[0], "three@") || !strings.HasPrefix(way[2], "one@") {
		t.Errorf("the way is %q", way)
	}
	want := [3]string{"one", "two", "three"}
	eventually(t, "the login of each user", func() bool {
		return [3]string{w.first.names(), w.second.names(), w.last.names()} == want
	})
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	w.ended(t)
}

func TestJumpHostLost(t *testing.T) {
	for i, name := range []string{"first", "second", "last"} {
		t.Run(name, func(t *testing.T) {
			w := newChain(t)
			_, client := w.dial(t, "last")
			[]*server{w.first, w.second, w.last}[i].hangUp()
			_ = client.Wait() // returns at the end
			w.ended(t)
		})
	}
}

func TestJumpToMissingHost(t *testing.T) {
	w := newChain(t)
	err := w.connect(t, Target{Host: "behind"})
	var failed *ConnectError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "@127.0.0.1:"+w.last.port+": ") ||
		strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got the error %v, want a ConnectError that names the jump host", err)
	}
	w.ended(t)
}

func TestJumpToASilentHost(t *testing.T) {
	w := newChain(t)
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	config := w.read(t, "config")
	w.write(t, "config", strings.Replace(config, "Port 1\n", "Port "+silent.port+"\n", 1))
	r := w.route(t, Target{Host: "behind"})
	cancelled(t, r, "the connection", func() bool { return silent.open() == 1 })
	w.ended(t)
	eventually(t, "the end of the last one", func() bool { return silent.open() == 0 })
}
