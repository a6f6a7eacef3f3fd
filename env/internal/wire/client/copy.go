package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// tree is the stream that CopyOut returns.
type tree struct {
	c      *Client
	ctx    context.Context // given to CopyOut, whose end ends reads
	dir    string
	cancel context.CancelFunc

	mu      sync.Mutex // held by Read
	content content
	err     error // sticky

	closing sync.Once
	closed  chan struct{}
}

// CopyOut implements env.Environment. A lost connection ends the stream with an error: the tree may
// change before the next one.
func (c *Client) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	body, err := jsonBody(wire.PackRequest{Dir: wire.Text(dir), Names: wire.Texts(names)})
	if err == nil {
		err = c.enter(ctx)
	}
	if err != nil {
		return nil, env.PathError("copyout", dir, err)
	}
	defer c.calls.Done()
	t := &tree{c: c, dir: dir, closed: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(ctx)
	err = c.retry(t.ctx, func(l *link) error {
		a, err := c.send(t.ctx, l, request{method: "POST", path: "/pack", body: body})
		if err != nil {
			return err
		}
		t.content = content{a: a}
		if err = t.content.start(); err != nil {
			a.close()
		}
		return err
	})
	if errors.Is(err, io.EOF) { // an archive without even an end
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		t.cancel()
		return nil, env.PathError("copyout", dir, err)
	}
	return t, nil
}

// Read implements io.Reader.
func (t *tree) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch err := env.ContextError(t.ctx); {
	case isDone(t.closed), t.c.isClosed():
		return 0, &fs.PathError{Op: "copyout", Path: t.dir, Err: fs.ErrClosed}
	case err != nil:
		return 0, &fs.PathError{Op: "copyout", Path: t.dir, Err: err}
	case t.err != nil:
		return 0, t.err
	}
	n, err := t.content.read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		t.err = io.EOF
	case isDone(t.closed), t.c.isClosed():
		t.err = env.PathError("copyout", t.dir, fs.ErrClosed)
	case errors.Is(err, errLost):
		t.err = env.PathError("copyout", t.dir, t.c.endedWith(errBroken))
	default:
		t.err = env.PathError("copyout", t.dir, err)
	}
	return n, t.err
}

// Close ends a Read in progress as well.
func (t *tree) Close() error {
	t.closing.Do(func() {
		close(t.closed)
		t.cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.content.a.close()
	})
	return nil
}
