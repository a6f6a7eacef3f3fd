package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strconv"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// errIncomplete says that a change did not happen, because the content did not arrive.
var errIncomplete = errors.New("the connection was lost before the content had arrived")

// WriteFile implements env.Environment. When the connection breaks, the client asks what became of the write, and begins
// it again if it did not happen and the content is small or was not read yet.
func (c *Client) WriteFile(ctx context.Context, name string, r io.Reader, opts env.WriteOptions) (env.Written, error) {
	var written env.Written
	query, err := named("name", name)
	if err != nil {
		return written, pathError("write", name, err)
	}
	if opts.Mode != 0 {
		query.Set("mode", strconv.FormatUint(uint64(opts.Mode), 10))
	}
	if opts.MustNotExist {
		query.Set("new", "1")
	}
	if opts.IfSHA256 != "" {
		if sum, err := hex.DecodeString(opts.IfSHA256); err != nil || len(sum) != sha256.Size {
			return written, pathError("write", name, fmt.Errorf("condition %q: %w", opts.IfSHA256, fs.ErrInvalid))
		}
		query.Set("sha256", opts.IfSHA256)
	}
	err = c.change(ctx, request{method: "PUT", path: "/file", query: query}, r, &written)
	return written, pathError("write", name, err)
}

// Remove implements env.Environment.
func (c *Client) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	query, err := named("name", name)
	if err == nil {
		if opts.Recursive {
			query.Set("recursive", "1")
		}
		err = c.change(ctx, request{method: "DELETE", path: "/file", query: query}, nil, nil)
	}
	return pathError("remove", name, err)
}

// CopyIn implements env.Environment. When the connection breaks, it is as with WriteFile.
func (c *Client) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	query, err := named("dir", dir)
	if err == nil {
		err = c.change(ctx, request{method: "POST", path: "/tree", query: query}, archive, nil)
	}
	return pathError("copyin", dir, err)
}

// change sends a request that changes files, with what r gives if that is not nil, and decodes the value of its answer
// into v. When it returns, the change has ended.
func (c *Client) change(ctx context.Context, r request, content io.Reader, v any) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	// The end of ctx ends the content. Once all of it is on its way, only the answer tells whether it counts.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	w := &fileChange{c: c, request: r, life: life}
	if content != nil {
		w.source = newSource(ctx, content)
	}
	stop := context.AfterFunc(ctx, func() {
		if w.source == nil {
			cancel()
			return
		}
		w.source.stop()
		c.after(life, c.limits.response, cancel)
	})
	defer stop()
	end, err := w.run(ctx)
	if err != nil {
		return err
	}
	if end.Error != nil && v != nil && len(end.Value) > 0 {
		_ = wire.Decode(end.Value, v) // the error says enough
	}
	if err = c.unwrap(end, v); errors.Is(err, env.ErrProtocol) {
		err = unknownOutcome(err)
	}
	return err
}

// unknownOutcome returns the error of a change that may have happened, since it was sent.
func unknownOutcome(err error) error {
	if errors.Is(err, env.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
}

// after calls f when a time has passed, unless ctx ends before.
func (c *Client) after(ctx context.Context, d time.Duration, f func()) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		f()
	case <-ctx.Done():
	}
}

// changing is one change.
type fileChange struct {
	c       *Client
	request request
	life    context.Context // of its requests
	source  *source         // nil for a change without content
}

// run returns how the change ended. Its error says why it did not happen, or that nobody knows.
func (w *fileChange) run(ctx context.Context) (*wire.EndRecord, error) {
	for range maxTries {
		if w.source != nil {
			var err error
			if w.request.content, err = w.source.upload(); err != nil {
				return nil, err
			}
		}
		l, err := w.c.connection(ctx)
		if err != nil {
			return nil, err // what was sent before did not happen
		}
		w.request.op = w.c.newID() // what has been asked about is not made any more under the same id
		end, err := w.c.exchange(w.life, l, w.request, 0, nil)
		switch {
		case err == nil:
			return end, nil
		case errors.Is(err, env.ErrProtocol):
			return nil, unknownOutcome(err)
		}
		// The content failed, the context ended or the connection broke.
		if w.source != nil {
			_ = w.request.content.Close() // never fails
		}
		op, asked := w.requestOutcome(ctx)
		switch {
		case asked != nil:
			return nil, unknownOutcome(asked)
		case op.Known && !op.CutOff && op.Outcome != nil:
			return op.Outcome, nil
		}
		if failed := w.failure(ctx); failed != nil {
			return nil, failed
		}
	}
	return nil, errBroken
}

// failure returns why this side gave the change up; nil if it did not.
func (w *fileChange) failure(ctx context.Context) error {
	if w.source != nil && w.source.failure() != nil {
		return w.source.failure()
	}
	return contextError(ctx)
}

// ask asks what became of the change. The server answers when it has ended, and does not make it any more if it has not
// begun by then. If it does not know, that is an error that wraps env.ErrUnknownOutcome.
func (w *fileChange) requestOutcome(ctx context.Context) (wire.ChangeOutcome, error) {
	var op wire.ChangeOutcome
	// Even if ctx has ended already this is worth waiting for, though not for ever.
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { w.c.after(asking, w.c.limits.response, cancel) })
	defer stop()
	err := w.c.value(asking, request{method: "GET", path: "/op/" + url.PathEscape(w.request.op)}, &op)
	if err != nil && asking.Err() != nil {
		err = errors.Join(contextError(ctx), errSilent)
	}
	return op, err
}
