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

// errIncomplete reports that a change was not made because its content did not arrive.
var errIncomplete = errors.New("the connection was lost before the content arrived")

// WriteFile implements env.Environment. After a lost connection the client requests the outcome of
// the write. It repeats one that was not made if the content is small or unread.
func (c *Client) WriteFile(ctx context.Context, name string, r io.Reader,
	opts env.WriteOptions,
) (env.Written, error) {
	var written env.Written
	query, err := named("name", name)
	if err != nil {
		return written, env.PathError("write", name, err)
	}
	if opts.Mode != 0 {
		query.Set("mode", strconv.FormatUint(uint64(opts.Mode), 10))
	}
	if opts.MustNotExist {
		query.Set("new", "1")
	}
	if opts.IfSHA256 != "" {
		if sum, err := hex.DecodeString(opts.IfSHA256); err != nil || len(sum) != sha256.Size {
			return written, env.PathError("write", name,
				fmt.Errorf("condition %q: %w", opts.IfSHA256, fs.ErrInvalid))
		}
		query.Set("sha256", opts.IfSHA256)
	}
	err = c.change(ctx, request{method: "PUT", path: "/file", query: query}, r, &written)
	return written, env.PathError("write", name, err)
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
	return env.PathError("remove", name, err)
}

// CopyIn implements env.Environment. After a lost connection it does as WriteFile.
func (c *Client) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	query, err := named("dir", dir)
	if err == nil {
		err = c.change(ctx, request{method: "POST", path: "/tree", query: query}, archive, nil)
	}
	return env.PathError("copyin", dir, err)
}

// change sends a request that changes files, with the content if that is not nil, and decodes the
// value of the response into v. When it returns, the change has ended.
func (c *Client) change(ctx context.Context, r request, content io.Reader, v any) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	// The end of ctx ends the content. Once all of it is on its way, only the response has the
	// outcome.
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
		_ = wire.Decode(end.Value, v) // only the error is used
	}
	if err = c.unwrap(end, v); errors.Is(err, env.ErrProtocol) {
		err = unknownOutcome(err)
	}
	return err
}

// unknownOutcome returns the error of a change that was sent and may have been made.
func unknownOutcome(err error) error {
	if errors.Is(err, env.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
}

// after calls f after a time, unless ctx ends earlier.
func (c *Client) after(ctx context.Context, d time.Duration, f func()) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		f()
	case <-ctx.Done():
	}
}

// fileChange is a change of files in progress.
type fileChange struct {
	c       *Client
	request request
	life    context.Context // of its requests
	source  *source         // nil for a change without content
}

// run returns the outcome of the change. Its error is why it was not made, or
// env.ErrUnknownOutcome.
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
			return nil, err // earlier attempts were not made
		}
		// the server no longer starts an id after its outcome was requested
		w.request.op = w.c.newID()
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
		op, failed := w.requestOutcome(ctx)
		switch {
		case failed != nil:
			return nil, unknownOutcome(failed)
		case op.Known && !op.CutOff && op.Outcome != nil:
			return op.Outcome, nil
		}
		if failed := w.failure(ctx); failed != nil {
			return nil, failed
		}
	}
	return nil, errBroken
}

// failure returns why the client gave the change up; nil if it did not.
func (w *fileChange) failure(ctx context.Context) error {
	if w.source != nil && w.source.failure() != nil {
		return w.source.failure()
	}
	return env.ContextError(ctx)
}

// requestOutcome requests the outcome of the change. The server responds when it has ended; one
// that has not started by then never starts. Its error wraps env.ErrUnknownOutcome if the server
// has forgotten it.
func (w *fileChange) requestOutcome(ctx context.Context) (wire.ChangeOutcome, error) {
	var op wire.ChangeOutcome
	// Even if ctx has ended already this is worth waiting for, though not for ever.
	bounded, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { w.c.after(bounded, w.c.limits.response, cancel) })
	defer stop()
	err := w.c.value(bounded, request{method: "GET", path: "/op/" + url.PathEscape(w.request.op)}, &op)
	if err != nil && bounded.Err() != nil {
		err = errors.Join(env.ContextError(ctx), errSilent)
	}
	return op, err
}
