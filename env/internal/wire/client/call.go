package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// maxTries bounds how often one call is sent.
	maxTries = 64
	// maxEarlyEnds is how many responses in a row may end early on a connection that stays. A
	// server that closes may cut off a response before its connection; one that does it again and
	// again violates the protocol.
	maxEarlyEnds = 4
	// callBuffer is the size of the buffer for a response.
	callBuffer = 64 << 10
	// maxName bounds the names of files that are sent, far above the limits of systems.
	maxName = 16 << 10
)

var (
	// errLost reports that the connection was lost before the response. Calls do not return it.
	errLost = errors.New("the connection was lost")
	// errBroken ends a call in the middle of which the connection was lost, and that cannot be
	// repeated.
	errBroken = errors.New("the connection was lost during the call")
	// errName is the error of systems for a name that is too long.
	errName = errors.New("file name too long")
)

// request is one HTTP request.
type request struct {
	method, path string
	query        url.Values
	body         []byte
	content      *upload // a body that the caller gives
	op           string  // the id of a change
}

// response is the response to a request. It belongs to one goroutine, except for close.
type response struct {
	c      *Client
	l      *link
	ctx    context.Context // of the request; ends with the response
	body   io.ReadCloser
	buf    *bufio.Reader
	frames wire.FrameReader
}

// send sends a request. Its error is errLost, the context's, env.ErrProtocol or the content's.
func (c *Client) send(ctx context.Context, l *link, r request) (*response, error) {
	req := (&http.Request{
		Method: r.method, Host: host, Header: make(http.Header),
		URL: &url.URL{Scheme: "http", Host: host, Path: r.path, RawQuery: r.query.Encode()},
	}).WithContext(ctx)
	switch {
	case r.content != nil:
		req.Body, req.ContentLength = r.content, r.content.size()
	case r.body != nil:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	if r.op != "" {
		req.Header.Set(wire.ChangeHeader, r.op)
	}
	resp, err := l.conn.RoundTrip(req)
	if err != nil {
		if r.content != nil && r.content.failure() != nil {
			return nil, r.content.failure()
		}
		return nil, c.failure(ctx, l, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // the status is the error
		return nil, c.failure(ctx, l, fmt.Errorf("%w: status %d", env.ErrProtocol, resp.StatusCode))
	}
	buf, _ := c.buffers.Get().(*bufio.Reader)
	buf.Reset(resp.Body)
	return &response{
		c: c, l: l, ctx: ctx, body: resp.Body, buf: buf,
		frames: wire.FrameReader{R: buf},
	}, nil
}

// failure classifies an error of a request or a response: errLost, the context's, or
// env.ErrProtocol, which ends the client.
func (c *Client) failure(ctx context.Context, l *link, err error) error {
	switch {
	case errors.Is(err, env.ErrProtocol):
		return c.violation(err)
	case ctx.Err() != nil:
		return env.ContextError(ctx)
	}
	if l.conn.Err() == nil && l.stream.closedLocally.CompareAndSwap(false, true) {
		// The server gave this response up. The others on this connection are not waited for.
		l.close()
		if c.earlyEnds.Add(1) > maxEarlyEnds {
			return c.violation(fmt.Errorf("%w: responses end early repeatedly", env.ErrProtocol))
		}
	}
	return errLost
}

// head reads the header of the next frame; payload, peek and read read the rest of it.
func (a *response) head() (wire.FrameKind, int, error) {
	kind, size, err := a.frames.Head()
	if err != nil {
		return 0, 0, a.c.failure(a.ctx, a.l, err)
	}
	return kind, size, nil
}

func (a *response) payload(size int) ([]byte, error) {
	p, err := a.frames.Payload(size)
	if err != nil {
		return nil, a.c.failure(a.ctx, a.l, err)
	}
	a.l.responded.Store(true)
	return p, nil
}

// peek waits for a part of a payload with size bytes left and returns it; skip consumes it.
func (a *response) peek(size int) ([]byte, error) {
	if _, err := a.buf.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, a.c.failure(a.ctx, a.l, err)
	}
	a.l.responded.Store(true)
	piece, _ := a.buf.Peek(min(size, a.buf.Buffered())) // buffered
	return piece, nil
}

// read reads a part of a payload into p.
func (a *response) read(p []byte) (int, error) {
	piece, err := a.peek(len(p))
	n := copy(p, piece)
	a.skip(n)
	return n, err
}

func (a *response) skip(size int) { _, _ = a.buf.Discard(size) } // buffered

// last decodes the payload of the last frame and verifies that nothing follows it.
func (a *response) last(size int) (*wire.EndRecord, error) {
	payload, err := a.payload(size)
	if err != nil {
		return nil, err
	}
	var end wire.EndRecord
	if err := wire.Decode(payload, &end); err != nil {
		return nil, a.c.violation(err)
	}
	return &end, a.finish()
}

// finish reads the end of a stream behind its last frame. It does not matter if that is lost.
func (a *response) finish() error {
	timer := time.AfterFunc(a.c.limits.response, func() { _ = a.body.Close() })
	defer timer.Stop()
	if _, _, err := a.frames.Head(); errors.Is(err, env.ErrProtocol) {
		return a.c.violation(err)
	}
	a.c.earlyEnds.Store(0)
	return nil
}

// close ends the response; the server is notified if more was to come.
func (a *response) close() {
	_ = a.body.Close() // its error does not matter
	a.buf.Reset(nil)
	a.c.buffers.Put(a.buf)
}

// unexpected ends the client because of a frame of the wrong kind.
func (a *response) unexpected(kind wire.FrameKind) error {
	return a.c.violation(fmt.Errorf("%w: unexpected frame of kind %d", env.ErrProtocol, kind))
}

// malformed ends the client because of the content of a frame.
func (a *response) malformed(format string, args ...any) error {
	return a.c.violation(fmt.Errorf("%w: "+format, append([]any{env.ErrProtocol}, args...)...))
}

// exchange sends a request and passes the payloads of the response's frames, which must be of the
// given kind, to take; kind 0 allows none. It returns the last frame.
func (c *Client) exchange(
	ctx context.Context, l *link, r request, kind wire.FrameKind, take func(payload []byte) error,
) (*wire.EndRecord, error) {
	a, err := c.send(ctx, l, r)
	if err != nil {
		return nil, err
	}
	defer a.close()
	for {
		got, size, err := a.head()
		switch {
		case err != nil:
			return nil, err
		case got == wire.FrameEnd:
			return a.last(size)
		case got != kind:
			return nil, a.unexpected(got)
		}
		payload, err := a.payload(size)
		if err != nil {
			return nil, err
		}
		if err := take(payload); err != nil {
			var own *fnError // the caller's, which may come from another environment
			if errors.Is(err, env.ErrProtocol) && !errors.As(err, &own) {
				return nil, c.violation(err)
			}
			return nil, err
		}
	}
}

// retry calls once with a connection, and again with the next one while it returns errLost.
func (c *Client) retry(ctx context.Context, once func(*link) error) error {
	for range maxTries {
		l, err := c.connection(ctx)
		if err != nil {
			return err
		}
		if err = once(l); !errors.Is(err, errLost) {
			return err
		}
	}
	return errBroken
}

// value sends a request that may be repeated until it has a response, and decodes its value into v
// unless v is nil.
func (c *Client) value(ctx context.Context, r request, v any) error {
	return c.retry(ctx, func(l *link) error { return c.single(ctx, l, r, v) })
}

// single is value over one connection.
func (c *Client) single(ctx context.Context, l *link, r request, v any) error {
	end, err := c.exchange(ctx, l, r, 0, nil)
	if err != nil {
		return err
	}
	return c.unwrap(end, v)
}

// unwrap returns the error of a last frame, or decodes its value.
func (c *Client) unwrap(end *wire.EndRecord, v any) error {
	if end.Error != nil {
		return c.decodeError(end.Error)
	}
	if v == nil {
		return nil
	}
	if err := wire.Decode(end.Value, v); err != nil {
		return c.violation(err)
	}
	return nil
}

// command sends a request without a body whose response has no value.
func (c *Client) command(ctx context.Context, r request) error { return c.value(ctx, r, nil) }

// records returns a function that decodes JSON arrays of T and passes their elements to take.
func records[T any](take func(*T) error) func([]byte) error {
	return func(payload []byte) error {
		var list []T
		if err := wire.Decode(payload, &list); err != nil {
			return err
		}
		for i := range list {
			if err := take(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// jsonBody returns v as the body of a request.
func jsonBody(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err == nil && len(body) > wire.MaxRequest {
		err = fmt.Errorf("a request of %d bytes: %w", len(body), env.ErrTooLarge)
	}
	return body, err
}

// named returns the query that names a file, or errName.
func named(key, name string) (url.Values, error) {
	if len(name) > maxName {
		return nil, errName
	}
	return url.Values{key: {name}}, nil
}
