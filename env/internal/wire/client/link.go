package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// firstPause and longestPause bound the pauses between attempts to connect.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
	// host is the host name in requests. It is never resolved.
	host = "sandbox:80"
)

// link is one connection.
type link struct {
	conn        *linkConn
	stream      *linkStream
	connectedAt time.Time
	// responded reports that a response came over it.
	responded atomic.Bool
}

// close closes the connection. Requests in progress end.
func (l *link) close() {
	l.stream.closedLocally.Store(true)
	_ = l.conn.Close()   // it only ends requests, and never fails
	_ = l.stream.Close() // the stream is given up anyway
}

func (l *link) isClosed() bool {
	select {
	case <-l.stream.Done:
		return true
	default:
		return false
	}
}

// linkConn is HTTP/2 on a link.
type linkConn struct {
	*http.ClientConn
	frames *frameValidator
}

// RoundTrip sends a request. A violation of HTTP/2 is env.ErrProtocol, also as an error of the
// body.
func (c *linkConn) RoundTrip(r *http.Request) (*http.Response, error) {
	c.frames.requests.Add(1)
	resp, err := c.ClientConn.RoundTrip(r)
	if err != nil {
		return nil, protocolError(err)
	}
	resp.Body = &linkBody{resp.Body}
	return resp, nil
}

type linkBody struct{ io.ReadCloser }

func (b *linkBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, protocolError(err)
}

// protocolError wraps the error with which net/http ends a connection because of a violation. Only
// the name of its type identifies it.
func protocolError(err error) error {
	if err != nil && strings.HasSuffix(fmt.Sprintf("%T", err), "ConnectionError") {
		return fmt.Errorf("%w: HTTP/2: %w", env.ErrProtocol, err)
	}
	return err
}

// linkStream is the stream below a connection after the handshake.
type linkStream struct {
	*wire.Conn
	frames           *frameValidator
	protocolViolated atomic.Bool
	closedLocally    atomic.Bool
}

func newLinkStream(stream io.ReadWriteCloser) *linkStream {
	s := &linkStream{Conn: wire.NewConn(stream)}
	s.frames = newFrameValidator(s.Conn)
	return s
}

func (s *linkStream) Read(p []byte) (int, error) {
	n, err := s.frames.Read(p)
	if errors.Is(err, env.ErrProtocol) {
		s.protocolViolated.Store(true)
	}
	return n, err
}

// reconnectLoop keeps the client connected until it ends.
func (c *Client) reconnectLoop(life context.Context, l *link) {
	defer close(c.disconnected)
	tries := attempts{since: time.Now(), pause: firstPause}
	for {
		<-l.stream.Done
		if l.stream.protocolViolated.Load() {
			c.fail(fmt.Errorf("%w: the server broke the rules of HTTP/2", env.ErrProtocol))
			return
		}
		if !c.setLink(nil) {
			return
		}
		tries.lost(l, max(c.cfg.Redial, 3*c.cfg.PingEvery))
		next, err := c.redial(life, &tries)
		if err != nil {
			c.fail(err)
			return
		}
		if !c.setLink(next) {
			next.close()
			return
		}
		l = next
	}
}

// attempts are the attempts to connect since a connection last had a response.
type attempts struct {
	since time.Time
	pause time.Duration
	wait  bool // the first attempt is made at once
}

// lost accounts for a lost connection. One with a response, or that lasted so long that the server
// must have acknowledged pings, starts the attempts anew. The duration of any other does not count
// as time without a connection: no request may have needed it.
func (t *attempts) lost(l *link, long time.Duration) {
	lasted := time.Since(l.connectedAt)
	if l.responded.Load() || lasted >= long {
		*t = attempts{since: time.Now(), pause: firstPause}
		return
	}
	if up := time.Since(t.since); up < lasted {
		lasted = up
	}
	t.since = t.since.Add(lasted)
}

// redial reconnects. It gives up Redial after the last connection with a response, so that a server
// that accepts connections and never responds delays no call for ever.
func (c *Client) redial(life context.Context, t *attempts) (*link, error) {
	ctx, cancel := context.WithDeadline(life, t.since.Add(c.cfg.Redial))
	defer cancel()
	last := errors.New("the connection was lost")
	for {
		if t.wait {
			// Clients that lost one server at once do not come back at once.
			timer := time.NewTimer(t.pause/2 + rand.N(t.pause))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			t.pause = min(2*t.pause, longestPause)
		}
		t.wait = true
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", env.ErrGone, last)
		}
		l, err := c.reconnect(ctx)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, env.ErrGone), errors.Is(err, env.ErrProtocol):
			return nil, err
		}
		if ctx.Err() == nil { // an attempt that the end of the time cuts has no reason of its own
			last = err
		}
	}
}

// reconnect makes one attempt to resume the session.
func (c *Client) reconnect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	l, welcome, err := c.connect(ctx)
	var turned *refusedError
	switch {
	case errors.As(err, &turned):
		return nil, fmt.Errorf("%w: %w", env.ErrGone, err)
	case err != nil:
		return nil, err
	case welcome.Session != c.session:
		l.close()
		return nil, fmt.Errorf("%w: another server has replaced it", env.ErrGone)
	}
	return l, nil
}

// refusedError is the error with which a server refuses a client.
type refusedError struct{ err error }

func (r *refusedError) Error() string { return "the server refuses: " + r.err.Error() }
func (r *refusedError) Unwrap() error { return r.err }

// connect opens a connection.
func (c *Client) connect(ctx context.Context) (*link, *wire.Welcome, error) {
	stream, err := c.cfg.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := newLinkStream(stream)
	free := context.AfterFunc(ctx, func() { _ = s.Close() }) // ends a Read or Write that waits
	welcome, err := c.handshake(s)
	var l *link
	if err == nil {
		l, err = c.newLink(ctx, s)
	}
	if !free() && err == nil {
		err = env.ContextError(ctx)
	}
	if err != nil {
		_ = s.Close() // err is the error
		if end := env.ContextError(ctx); end != nil {
			err = end
		}
		return nil, nil, err
	}
	return l, welcome, nil
}

// handshake sends the Hello and reads the Welcome.
func (c *Client) handshake(s *linkStream) (*wire.Welcome, error) {
	hello := wire.Hello{Version: wire.Version, Token: c.cfg.Token, Client: c.id, Session: c.session}
	if c.session == "" { // otherwise it has been started
		hello.Start = c.cfg.Start
	}
	line, err := hello.Encode()
	if err != nil {
		return nil, err
	}
	// A stream may take no more than the other side reads, and a server that refuses may not read.
	sent := make(chan error, 1)
	go func() { sent <- s.WriteLine(line) }() // HTTP/2 comes after it
	w, err := readWelcome(s.Conn)
	if err != nil {
		_ = s.Close() // ends the Write
	}
	if sentErr := <-sent; err == nil {
		err = sentErr
	}
	return w, err
}

// readWelcome reads a Welcome without an error.
func readWelcome(c *wire.Conn) (*wire.Welcome, error) {
	line, err := c.ReadLine(wire.MaxWelcome)
	switch {
	case errors.Is(err, wire.ErrLineTooLong):
		return nil, fmt.Errorf("%w: a welcome of more than %d bytes", env.ErrProtocol, wire.MaxWelcome)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the server sent %s and nothing more: %w", quoted(line), err)
	case err != nil:
		return nil, err
	}
	var w wire.Welcome
	if err := wire.Decode(line, &w); err != nil {
		return nil, fmt.Errorf("the server sent %s: %w", quoted(line), err)
	}
	return &w, checkWelcome(&w)
}

// quoted returns the start of the bytes received instead of a Welcome, such as the message of a
// shell that does not find the server.
func quoted(line []byte) string {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.200q", line)
}

// checkWelcome returns the error in a Welcome, or the first invalid field.
func checkWelcome(w *wire.Welcome) error {
	switch {
	case w.Error != nil:
		return &refusedError{w.Error.Err()}
	case w.Version != wire.Version:
		return fmt.Errorf("%w: protocol version %d of the server differs from version %d of "+
			"this program (use the same release on both sides)", env.ErrProtocol, w.Version, wire.Version)
	case w.Info == nil, w.Session == "", len(w.Session) > wire.MaxID:
		return fmt.Errorf("%w: an incomplete welcome", env.ErrProtocol)
	}
	return nil
}

// newLink starts HTTP/2 on a stream.
func (c *Client) newLink(ctx context.Context, s *linkStream) (*link, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return s, nil
		},
		Protocols:              protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{
			StrictMaxConcurrentRequests:   true,
			MaxReadFrameSize:              wire.ReadFrame,
			MaxReceiveBufferPerStream:     wire.Window,
			MaxReceiveBufferPerConnection: wire.ReceiveBuffer,
			SendPingTimeout:               c.cfg.PingEvery,
			PingTimeout:                   c.cfg.PingEvery,
		},
	}
	conn, err := transport.NewClientConn(ctx, "http", host)
	if err != nil {
		return nil, err
	}
	return &link{conn: &linkConn{conn, s.frames}, stream: s, connectedAt: time.Now()}, nil
}
