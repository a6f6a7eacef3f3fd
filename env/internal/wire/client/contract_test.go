package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// noPing is longer than a test: a machine that others use may take a long time for a frame on a
// stream that delivers byte by byte, and no stream of these tests is silent for ever.
const noPing = time.Hour

// patient is a client that waits as long.
func patient(cfg *client.Config) { cfg.PingEvery = noPing }

// localServer serves a local environment over any number of streams.
type localServer struct {
	server  *server.Server
	streams sync.WaitGroup
	// between, if set, stands between the two ends of a stream.
	between func(client, server net.Conn) (io.ReadWriteCloser, io.ReadWriteCloser)
}

// serveLocal returns a server of a local environment in dir, in decorate if that is set. The test
// ends it.
func serveLocal(
	t testing.TB, dir string, decorate func(env.Environment) env.Environment,
) *localServer {
	t.Helper()
	p := &localServer{server: server.New(server.Config{
		Open: func(context.Context, json.RawMessage) (env.Environment, error) {
			e, err := local.New(local.Config{Dir: dir})
			if err != nil {
				return nil, err
			}
			return wrap.Chain(e, decorate), nil
		},
		PingEvery: noPing,
	})}
	t.Cleanup(func() {
		if err := p.server.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
		p.streams.Wait()
	})
	return p
}

// dial makes a stream to the server.
func (p *localServer) dial() func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		near, far := net.Pipe()
		var client, server io.ReadWriteCloser = near, far
		if p.between != nil {
			client, server = p.between(near, far)
		}
		// a stream may end at any time
		p.streams.Go(func() { _ = p.server.Serve(context.Background(), server) })
		return client, nil
	}
}

// open returns a client of the server. The test closes it.
func (p *localServer) open(t testing.TB, change func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Dial: p.dial()}
	if change != nil {
		change(&cfg)
	}
	c, err := client.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, env.ErrGone) {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// TestContract runs the conformance suite over a pipe.
func TestContract(t *testing.T) {
	envtest.Run(t, envtest.Options{
		New: func(t *testing.T) env.Environment {
			return serveLocal(t, t.TempDir(), nil).open(t, patient)
		},
	})
}

// TestContractSlices runs it over a stream that delivers byte by byte.
func TestContractSlices(t *testing.T) {
	full(t)
	envtest.Run(t, envtest.Options{
		Small: true,
		New: func(t *testing.T) env.Environment {
			p := serveLocal(t, t.TempDir(), nil)
			p.between = func(client, server net.Conn) (io.ReadWriteCloser, io.ReadWriteCloser) {
				return &sliced{Conn: client}, &sliced{Conn: server}
			}
			return p.open(t, patient)
		},
	})
}

// TestContractSlowDecorated runs it over a stream that is slow, with all decorators that change
// nothing around the client, and one around what is served.
func TestContractSlowDecorated(t *testing.T) {
	full(t)
	logger := slog.New(slog.NewJSONHandler(io.Discard, nil))
	envtest.Run(t, envtest.Options{
		Small: true,
		New: func(t *testing.T) env.Environment {
			p := serveLocal(t, t.TempDir(), func(e env.Environment) env.Environment {
				return wrap.Logging(e, logger, nil)
			})
			p.between = func(client, server net.Conn) (io.ReadWriteCloser, io.ReadWriteCloser) {
				return newDelayed(client, 3*time.Millisecond, 100<<20), newDelayed(server, 3*time.Millisecond,
					100<<20)
			}
			return wrap.Apply(p.open(t, patient), wrap.Options{
				Logger: logger,
				Vars:   &vars.Filter{Mode: vars.All},
			})
		},
		Known: map[string]string{"exec/bad_vars": "FilterVars leaves out what is no variable"},
	})
}

// full skips a test unless the environment requests all combinations.
func full(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make test-full: it runs the whole contract once more")
	}
}

// sliced delivers its first 20,000 bytes one by one, and then in pieces of odd sizes, which are
// larger from 2 MB on.
type sliced struct {
	net.Conn
	read int
}

func (s *sliced) Read(p []byte) (int, error) {
	size := 1
	switch {
	case s.read > 2_000_000:
		size = s.read%65_537 + 1
	case s.read > 20_000:
		size = s.read%4001 + 1
	}
	n, err := s.Conn.Read(p[:min(size, len(p))])
	s.read += n
	return n, err
}

// delayed delivers what was sent a while later, and not more of it at once than a line of limited
// width takes.
type delayed struct {
	net.Conn
	delay  time.Duration
	width  int // bytes in a second
	line   chan packet
	once   sync.Once
	closed chan struct{}
	rest   []byte
	free   time.Time // when the line is free again
}

type packet struct {
	data []byte
	due  time.Time
}

func newDelayed(c net.Conn, delay time.Duration, width int) *delayed {
	d := &delayed{
		Conn: c, delay: delay, width: width, line: make(chan packet, 64),
		closed: make(chan struct{}),
	}
	go func() {
		defer close(d.line)
		for {
			buf := make([]byte, 16<<10)
			n, err := d.Conn.Read(buf)
			if n > 0 {
				select {
				case d.line <- packet{buf[:n], time.Now().Add(delay)}:
				case <-d.closed:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *delayed) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		next, ok := <-d.line
		if !ok {
			return 0, io.EOF
		}
		if d.free.Before(next.due) {
			d.free = next.due
		}
		d.free = d.free.Add(time.Duration(len(next.data)) * time.Second / time.Duration(d.width))
		if wait := time.Until(d.free); wait > 0 {
			time.Sleep(wait)
		}
		d.rest = next.data
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *delayed) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}
