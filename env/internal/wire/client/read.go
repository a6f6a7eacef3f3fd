package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// plain hides the optional interfaces of an environment.
type plain struct{ env.Environment }

// ReadFiles implements env.MultiReader.
func (c *Client) ReadFiles(ctx context.Context, names []string,
	limit int64,
) ([]env.FileContent, error) {
	if limit <= 0 {
		limit = env.DefaultReadLimit
	}
	body, err := jsonBody(wire.ReadRequest{Names: wire.Texts(names), Limit: limit})
	if errors.Is(err, env.ErrTooLarge) {
		return env.ReadFiles(ctx, plain{c}, names, limit)
	}
	if err == nil {
		err = c.enter(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read files: %w", err)
	}
	defer c.calls.Done()
	var contents []env.FileContent
	err = c.retry(ctx, func(l *link) error {
		r := fileList{names: names, limit: limit, left: env.MaxReadFiles}
		a, err := c.send(ctx, l, request{method: "POST", path: "/read", body: body})
		if err != nil {
			return err
		}
		defer a.close()
		contents, err = r.contents(a)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read files: %w", err)
	}
	return contents, nil
}

// fileList reads a response with several files.
type fileList struct {
	names     []string
	limit     int64
	left      int64 // how many bytes of all files may still come
	files     []env.FileContent
	remaining int64 // of the file that is coming
	discard   bool  // it does not fit
}

func (r *fileList) contents(a *response) ([]env.FileContent, error) {
	for {
		kind, size, err := a.head()
		if err != nil {
			return nil, err
		}
		switch {
		case kind == wire.FrameRecords && r.remaining == 0:
			err = r.header(a, size)
		case kind == wire.FrameData && int64(size) <= r.remaining:
			err = r.data(a, size)
		case kind == wire.FrameEnd && r.remaining == 0:
			end, err := a.last(size)
			if err == nil {
				err = a.c.decodeError(end.Error)
			}
			if err == nil && len(r.files) != len(r.names) {
				err = a.malformed("%d of %d files", len(r.files), len(r.names))
			}
			return r.files, err
		default:
			err = a.unexpected(kind)
		}
		if err != nil {
			return nil, err
		}
	}
}

// header reads the header of the next file.
func (r *fileList) header(a *response, size int) error {
	payload, err := a.payload(size)
	if err != nil {
		return err
	}
	var list []wire.ReadHeader
	if err := wire.Decode(payload, &list); err != nil {
		return a.c.violation(err)
	}
	next := len(r.files)
	if len(list) != 1 || next == len(r.names) || list[0].Index != next || list[0].Size < 0 ||
		list[0].Size > r.limit ||
		(list[0].Error != nil && list[0].Size > 0) {
		return a.malformed("the header of file %d of %d", next+1, len(r.names))
	}
	name := r.names[next]
	file := env.FileContent{Name: name, Err: env.PathError("read", name,
		a.c.decodeError(list[0].Error))}
	if err := file.Err; errors.Is(err, fs.ErrClosed) || errors.Is(err, env.ErrGone) {
		return err
	}
	if file.Err == nil {
		file.Data = []byte{}
	}
	r.remaining, r.discard = list[0].Size, list[0].Size > r.left
	if r.discard {
		file.Data, file.Err = nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf(
			"%w: more than %d bytes with the files before it", env.ErrTooLarge, env.MaxReadFiles)}
	} else {
		r.left -= r.remaining
	}
	r.files = append(r.files, file)
	return nil
}

// data reads a part of the current file.
func (r *fileList) data(a *response, size int) error {
	payload, err := a.payload(size)
	if err != nil {
		return err
	}
	r.remaining -= int64(size)
	if file := &r.files[len(r.files)-1]; !r.discard {
		file.Data = append(file.Data, payload...)
	}
	return nil
}
