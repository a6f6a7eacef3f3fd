package client

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Walk implements search.Searcher.
func (c *Client) Walk(ctx context.Context, root string, opts search.WalkOptions,
	fn func(search.Entry) error,
) error {
	body, err := jsonBody(wire.WalkRequest{
		Root: wire.Text(root), NoIgnore: opts.NoIgnore, MaxDepth: opts.MaxDepth,
		Details: opts.Details,
	})
	if err == nil {
		w := walk{fn: fn}
		_, err = c.search(ctx, request{method: "POST", path: "/walk", body: body},
			records(func(i *wire.FileInfo) error {
				if ctx.Err() != nil {
					return env.ContextError(ctx)
				}
				return w.entry(toEntry(i))
			}))
	}
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return walkError("walk", cmp.Or(root, "."), err)
}

// fnError is an error of the caller's function, which is returned unchanged.
type fnError struct{ err error }

func (e *fnError) Error() string { return e.err.Error() }
func (e *fnError) Unwrap() error { return e.err }

// walkError returns the error of a search. An error of the connection gets the name.
func walkError(op, name string, err error) error {
	var own *fnError
	switch {
	case errors.As(err, &own):
		return own.err
	case errors.Is(err, errBroken), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return env.PathError(op, name, err)
	}
	return err
}

// walk passes on the entries of a walk without those that the caller skips. The server sends them
// all.
type walk struct {
	fn      func(search.Entry) error
	skipped string // a directory with a slash at its end; "/" for everything
}

func (w *walk) entry(e search.Entry) error {
	if w.skipped == "/" || w.skipped != "" && strings.HasPrefix(e.Name+"/", w.skipped) {
		return nil
	}
	err := w.fn(e)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fs.SkipDir):
		return &fnError{err}
	case e.Mode.IsDir():
		w.skipped = e.Name + "/"
	case e.Err != nil: // an ignore file, with which nothing is skipped
	default:
		w.skipped = path.Dir(e.Name) + "/"
		if w.skipped == "./" {
			w.skipped = "/"
		}
	}
	return nil
}

// toEntry returns the entry of a walk.
func toEntry(i *wire.FileInfo) search.Entry {
	return search.Entry{
		Name: string(i.Name), Mode: i.Mode, Size: i.Size, ModTime: i.ModTime(),
		Stamp: i.Stamp, Err: i.Error.Err(),
	}
}

// search sends a request for a list and passes its records on as they arrive. It repeats the
// request only before the first record. The server's error comes with the value of the last frame.
func (c *Client) search(ctx context.Context, r request,
	take func([]byte) error,
) (*wire.EndRecord, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	started := false
	var end *wire.EndRecord
	err := c.retry(ctx, func(l *link) error {
		var err error
		end, err = c.exchange(ctx, l, r, wire.FrameRecords, func(payload []byte) error {
			started = true
			return take(payload)
		})
		if started && errors.Is(err, errLost) {
			return c.endedWith(errBroken)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return end, c.decodeError(end.Error)
}

// Grep implements search.Searcher.
func (c *Client) Grep(ctx context.Context, opts search.GrepOptions,
	fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	var stats search.GrepStats
	body, err := jsonBody(wire.GrepRequest{
		Pattern: wire.Text(opts.Pattern), Literal: opts.Literal, IgnoreCase: opts.IgnoreCase,
		Multiline: opts.Multiline,
		Path:      wire.Text(opts.Path), Glob: wire.Text(opts.Glob),
		Exclude: wire.Text(opts.Exclude),
		Types:   opts.Types, NoIgnore: opts.NoIgnore,
		Mode: opts.Mode, Before: opts.Before, After: opts.After,
		MaxMatches: opts.MaxMatches, MaxFileMatches: opts.MaxFileMatches,
		MaxLineBytes: opts.MaxLineBytes,
		MaxTime:      opts.MaxTime, MaxBytes: opts.MaxBytes,
	})
	if err != nil {
		return stats, err
	}
	last := ""
	end, err := c.search(ctx, request{method: "POST", path: "/grep", body: body},
		records(func(m *wire.GrepMatch) error {
			if ctx.Err() != nil {
				return env.ContextError(ctx)
			}
			// These counts are returned if the search ends before the server sends its own.
			if stats.Files == 0 || string(m.Name) != last {
				stats.Files++
				last = string(m.Name)
			}
			if !m.Context {
				stats.Matches += max(1, m.Count)
			}
			match := search.GrepMatch{
				Name: string(m.Name), Line: m.Line, Text: string(m.Text),
				LineCut: m.Cut, Context: m.Context, Count: m.Count,
			}
			if err := fn(match); err != nil {
				return &fnError{err}
			}
			return nil
		}))
	if end != nil && len(end.Value) > 0 {
		if err := wire.Decode(end.Value, &stats); err != nil {
			return stats, c.violation(err)
		}
	}
	if errors.Is(err, fs.SkipAll) {
		return stats, nil
	}
	return stats, walkError("grep", cmp.Or(opts.Path, "."), err)
}

// Glob implements search.Searcher.
func (c *Client) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	body, err := jsonBody(wire.GlobRequest{
		Pattern: wire.Text(opts.Pattern), Dir: wire.Text(opts.Dir), IgnoreCase: opts.IgnoreCase,
		NoIgnore: opts.NoIgnore, AnyType: opts.AnyType, Limit: opts.Limit,
	})
	if err == nil {
		err = c.enter(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer c.calls.Done()
	var found []search.Entry
	var remote error
	err = c.retry(ctx, func(l *link) error {
		found = nil
		take := c.bounded(records(func(i *wire.FileInfo) error {
			if len(found) >= c.limits.entries {
				return errListTooLong
			}
			found = append(found, toEntry(i))
			return nil
		}))
		end, err := c.exchange(ctx, l, request{method: "POST", path: "/glob", body: body},
			wire.FrameRecords, take)
		if err == nil {
			remote = c.decodeError(end.Error)
		}
		return err
	})
	if err != nil {
		return nil, walkError("glob", cmp.Or(opts.Dir, "."), err)
	}
	var unreadable *search.UnreadableError
	if remote != nil && !errors.As(remote, &unreadable) {
		return nil, remote
	}
	return found, remote
}
