package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// current returns the connection of a client; nil without one.
func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// TestQuietConnectionLost loses a connection without requests for longer than Redial.
// Another one follows.
func TestQuietConnectionLost(t *testing.T) {
	wiretest.NoLeaks(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, tc := range map[string]struct {
		ping time.Duration
	}{
		"pings":    {ping: time.Second},
		"no pings": {ping: time.Hour},
	} {
		wg.Go(func() {
			const redial = 3 * time.Second
			c := connected(t, &wiretest.Env{
				OnStat: func(context.Context, string) (fs.FileInfo, error) { return nil, fs.ErrNotExist },
			}, func(cfg *Config) { cfg.Redial, cfg.PingEvery = redial, tc.ping })
			for range 2 {
				var l *link
				wiretest.Eventually(t, "a quiet time", func() bool {
					l = c.current()
					return l != nil && time.Since(l.connectedAt) > redial+redial/5
				})
				c.lose()
				wiretest.Eventually(t, "another connection", func() bool {
					next := c.current()
					return next != nil && next != l || c.endedWith(nil) != nil
				})
				if err := c.endedWith(nil); err != nil {
					t.Errorf("%s: the client has ended: %v", name, err)
				}
			}
			if _, err := c.Stat(t.Context(), "f"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: Stat gives %v, want the error of the server", name, err)
			}
		})
	}
}

// TestNoResponses has a server that accepts every connection and never responds. The client ends.
func TestNoResponses(t *testing.T) {
	wiretest.NoLeaks(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	settings, ack := "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	pong := "\x00\x00\x08\x06\x01\x00\x00\x00\x00" + "unasked!"
	for name, tc := range map[string]struct {
		sent  string
		stays bool
	}{
		"silence":               {stays: true},
		"settings and silence":  {sent: settings + ack, stays: true},
		"the end":               {},
		"settings, and the end": {sent: settings + ack},
		"a pong without a ping": {sent: settings + ack + pong},
	} {
		wg.Go(func() {
			c := impatient(t, Config{
				Redial: 300 * time.Millisecond, PingEvery: 50 * time.Millisecond,
				Dial: greets(func(c *wire.Conn) {
					_, _ = c.Read(make([]byte, 4096)) // the preface of HTTP/2
					go func() { _, _ = io.Copy(io.Discard, c) }()
					_, _ = io.WriteString(c, tc.sent)
					if !tc.stays {
						_ = c.Close() // a pipe's never fails
					}
				}),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			if _, err := c.Stat(ctx, "f"); !errors.Is(err, env.ErrGone) {
				t.Errorf("%s: Stat gives %v, want ErrGone", name, err)
			}
		})
	}
}

// stalling is a stream whose writes can be made to stall until it is closed.
type stalling struct {
	net.Conn
	stalled chan struct{} // closed to stall
	waiting chan struct{} // closed once a Write waits
	closed  chan struct{}
	wait    sync.Once
	once    sync.Once
}

func (s *stalling) Write(p []byte) (int, error) {
	select {
	case <-s.stalled:
		s.wait.Do(func() { close(s.waiting) })
		<-s.closed
		return 0, io.ErrClosedPipe
	default:
		return s.Conn.Write(p)
	}
}

func (s *stalling) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// TestOneDirectionStalls has a stream not take anything any more while pings of the server still
// arrive. It is given up, and another one follows.
func TestOneDirectionStalls(t *testing.T) {
	wiretest.NoLeaks(t)
	server := server.New(server.Config{
		Open: func(context.Context, json.RawMessage) (env.Environment, error) {
			return &wiretest.Env{OnStat: func(context.Context, string) (fs.FileInfo, error) {
				return nil,
					fs.ErrNotExist
			}}, nil
		},
		PingEvery: time.Second,
	})
	var served sync.WaitGroup
	defer served.Wait()
	defer func() { _ = server.Close() }() // the client has closed the environment
	var first *stalling
	c := impatient(t, Config{
		Redial: time.Minute, PingEvery: 3 * time.Second,
		Dial: func(context.Context) (io.ReadWriteCloser, error) {
			near, far := net.Pipe()
			// a stream may end at any time
			served.Go(func() { _ = server.Serve(context.Background(), far) })
			if first != nil {
				return near, nil
			}
			first = &stalling{
				Conn: near, stalled: make(chan struct{}), waiting: make(chan struct{}),
				closed: make(chan struct{}),
			}
			return first, nil
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if _, err := c.Stat(ctx, "f"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Stat gives %v", err)
	}
	close(first.stalled)
	if _, err := c.Stat(ctx, "f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat gives %v, want the error of the server", err)
	}
	select {
	case <-first.waiting:
	default:
		t.Error("the stream has not stalled")
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// hostileFrame breaks the rules of HTTP/2.
type hostileFrame struct {
	sent      string
	requested bool // only a client with a request notices
}

// TestHostileFrames has a server break the rules of HTTP/2, with a request in progress and without.
func TestHostileFrames(t *testing.T) {
	settings, ack := "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	setting := func(id byte, value string) string {
		return "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00" + string(id) + value
	}
	frames := map[string]hostileFrame{
		"text":                        {sent: "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 100)},
		"zeros":                       {sent: strings.Repeat("\x00", 100)},
		"no settings":                 {sent: "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"},
		"settings that are too large": {sent: setting(5, "\xff\xff\xff\xff")},
		"settings acknowledged twice": {sent: settings + ack + ack},
		"settings of a stream":        {sent: "\x00\x00\x00\x04\x00\x00\x00\x00\x01"},
		"settings cut in half":        {sent: "\x00\x00\x05\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40"},
		"a push setting":              {sent: setting(2, "\x00\x00\x00\x02")},
		"a huge window":               {sent: setting(4, "\x80\x00\x00\x00")},
		"small frames":                {sent: setting(5, "\x00\x00\x3f\xff")},
		"a setting behind others": {sent: "\x00\x00\x0c\x04\x00\x00\x00\x00\x00" +
			"\x00\x03\x00\x00\x00\x09\x00\x08\x00\x00\x00\x02"},
	}
	for name, frame := range map[string]hostileFrame{ // behind settings
		"a huge frame":              {sent: "\xff\xff\xff\x00\x00\x00\x00\x00\x01"},
		"an unknown frame":          {sent: "\x00\x00\x00\x77\x00\x00\x00\x00\x00"},
		"a priority":                {sent: "\x00\x00\x05\x02\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00"},
		"a push":                    {sent: "\x00\x00\x04\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02"},
		"data without a request":    {sent: "\x00\x00\x01\x00\x00\x00\x00\x00\x63x"},
		"a frame that is too large": {sent: "\x04\x00\x01\x00\x00\x00\x00\x00\x01"},
		"data of the connection":    {sent: "\x00\x00\x01\x00\x00\x00\x00\x00\x00x"},
		"headers without a request": {sent: "\x00\x00\x01\x01\x05\x00\x00\x00\x63\x88"},
		"a short ping":              {sent: "\x00\x00\x07\x06\x00\x00\x00\x00\x001234567"},
		"a ping of a stream":        {sent: "\x00\x00\x08\x06\x00\x00\x00\x00\x0112345678"},
		"a reset of the connection": {sent: "\x00\x00\x04\x03\x00\x00\x00\x00\x00\x00\x00\x00\x01"},
		"a short goodbye":           {sent: "\x00\x00\x04\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01"},
		"a short window":            {sent: "\x00\x00\x03\x08\x00\x00\x00\x00\x00\x00\x00\x01"},
		"a window without an end": {
			sent:      strings.Repeat("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff", 2),
			requested: true,
		},
		"malformed headers": {sent: "\x00\x00\x02\x01\x05\x00\x00\x00\x01\xff\xff", requested: true},
	} {
		frame.sent = settings + frame.sent
		frames[name] = frame
	}
	for name, tc := range frames {
		t.Run(name, func(t *testing.T) {
			for _, requested := range []bool{true, false} {
				if tc.requested && !requested {
					continue
				}
				wiretest.NoLeaks(t)
				c := impatient(t, Config{Redial: time.Minute, Dial: greets(func(c *wire.Conn) {
					_, _ = io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
					for frames := http2.NewFramer(nil, c); requested; {
						f, err := frames.ReadFrame()
						if err != nil {
							return
						}
						if f.Header().Type == http2.FrameHeaders {
							break
						}
					}
					go func() { _, _ = io.Copy(io.Discard, c) }()
					_, _ = io.WriteString(c, tc.sent)
				})})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				if !requested {
					wiretest.Eventually(t, "the client to end", func() bool { return c.endedWith(nil) != nil })
				}
				if _, err := c.Stat(ctx, "f"); !errors.Is(err, env.ErrProtocol) {
					t.Errorf("request %t: Stat gives %v, want ErrProtocol", requested, err)
				}
				cancel()
			}
		})
	}
}
