package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// maxData bounds a frame of content; minData is the smallest buffer for a read of content.
	maxData = 64 << 10
	minData = 4 << 10
)

// file returns a handler that holds a slot of the gate during h.
func (p *peer) file(h handler) handler {
	return func(r *http.Request, a *response) error {
		slot, err := p.s.gate.acquire(r.Context())
		if err != nil {
			return cause(r.Context())
		}
		defer slot.release()
		r.Body = readCloser{slot.reader(r.Body), r.Body}
		a.slot = slot
		return h(r, a)
	}
}

// open sends a file.
func (p *peer) open(r *http.Request, a *response) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	offset, err := q.number("offset")
	if err != nil {
		return err
	}
	f, err := p.s.environment().Open(r.Context(), q.text("name"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // It was only read.
	info, err := f.Stat()
	if err != nil {
		return err
	}
	description := []wire.FileInfo{toFileInfo(info.Name(), info)}
	if err := a.record(wire.FrameRecords, description); err != nil {
		return err
	}
	if offset > 0 {
		// One that is shorter by now has nothing to send.
		if _, err := io.CopyN(io.Discard, f, offset); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return a.content(r.Context(), f)
}

// content sends the bytes of r.
func (a *response) content(ctx context.Context, r io.Reader) error {
	for ctx.Err() == nil {
		room, err := a.reserve(minData, maxData)
		if err != nil {
			return err
		}
		n, err := r.Read(room)
		if n > 0 {
			a.commit(wire.FrameData, n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return cause(ctx)
}

func toFileInfo(name string, info fs.FileInfo) wire.FileInfo {
	t := info.ModTime()
	return wire.FileInfo{
		Name: wire.Text(name), Size: info.Size(), Mode: info.Mode(),
		Seconds: t.Unix(), Nanos: int64(t.Nanosecond()),
	}
}

// stat sends the description of a file.
func (p *peer) stat(r *http.Request, a *response) error {
	return describe(r, a, p.s.environment().Stat)
}

// lstat sends the description of a file, or of a symlink itself.
func (p *peer) lstat(r *http.Request, a *response) error {
	return describe(r, a, p.s.environment().Lstat)
}

func describe(
	r *http.Request, a *response, stat func(context.Context, string) (fs.FileInfo, error),
) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	info, err := stat(r.Context(), q.text("name"))
	if err == nil {
		a.value = toFileInfo(info.Name(), info)
	}
	return err
}

// link sends the target of a symlink.
func (p *peer) link(r *http.Request, a *response) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	target, err := p.s.environment().ReadLink(r.Context(), q.text("name"))
	if err == nil {
		a.value = wire.Text(target)
	}
	return err
}

// dir sends the entries of a directory.
func (p *peer) dir(r *http.Request, a *response) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	entries, err := p.s.environment().ReadDir(r.Context(), q.text("name"))
	b := newBatch(a)
	defer b.stop()
	for _, d := range entries {
		var entry wire.FileInfo
		if info, err := d.Info(); err == nil {
			entry = toFileInfo(d.Name(), info)
		} else {
			entry = wire.FileInfo{Name: wire.Text(d.Name()), Mode: d.Type(), Error: entryError(err)}
		}
		if err := b.add(entry); err != nil {
			return err
		}
	}
	if flushErr := b.flush(); flushErr != nil {
		return flushErr
	}
	return err
}

// read sends several files one after the other, with one slot of the gate and one file in memory,
// and the results of env.ReadFiles.
func (p *peer) read(r *http.Request, a *response) error {
	var request wire.ReadRequest
	if err := decodeBody(r, &request); err != nil {
		return err
	}
	left := int64(env.MaxReadFiles)
	for i, name := range request.Names {
		if r.Context().Err() != nil {
			return cause(r.Context())
		}
		data, err := p.readOne(r.Context(), string(name), request.Limit, left)
		left -= int64(len(data))
		header := wire.ReadHeader{Index: i, Size: int64(len(data)), Error: entryError(err)}
		if err := a.record(wire.FrameRecords, []wire.ReadHeader{header}); err != nil {
			return err
		}
		for len(data) > 0 {
			n := min(len(data), maxData)
			if err := a.frame(wire.FrameData, data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
	}
	return nil
}

// readOne reads one of several files, which may have left bytes at most.
func (p *peer) readOne(ctx context.Context, name string, limit, left int64) ([]byte, error) {
	if limit <= 0 {
		limit = env.DefaultReadLimit
	}
	if left >= limit {
		return env.ReadFile(ctx, p.s.environment(), name, limit)
	}
	data, err := env.ReadFile(ctx, p.s.environment(), name, max(left, 1)) // 0 would be no limit
	if errors.Is(err, env.ErrTooLarge) || int64(len(data)) > left {
		err = fmt.Errorf("%w: more than %d bytes with the files before it", env.ErrTooLarge,
			env.MaxReadFiles)
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, err
}

// pack sends a tree.
func (p *peer) pack(r *http.Request, a *response) error {
	var request wire.PackRequest
	if err := decodeBody(r, &request); err != nil {
		return err
	}
	tree, err := p.s.environment().CopyOut(r.Context(), string(request.Dir),
		wire.Strings(request.Names)...)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // It was only read.
	return a.content(r.Context(), tree)
}

// write writes a file.
func (p *peer) write(ctx context.Context, r *http.Request, q query) (any, error) {
	opts := env.WriteOptions{MustNotExist: q.flag("new"), IfSHA256: q.text("sha256")}
	if mode := q.text("mode"); mode != "" {
		bits, err := strconv.ParseUint(mode, 10, 32)
		if err != nil {
			return nil, errMalformed
		}
		opts.Mode = fs.FileMode(bits)
	}
	return p.s.environment().WriteFile(ctx, q.text("name"), r.Body, opts)
}

// remove removes a file or a directory.
func (p *peer) remove(ctx context.Context, _ *http.Request, q query) (any, error) {
	return nil, p.s.environment().Remove(ctx, q.text("name"),
		env.RemoveOptions{Recursive: q.flag("recursive")})
}

// unpack unpacks a tree.
func (p *peer) unpack(ctx context.Context, r *http.Request, q query) (any, error) {
	return nil, p.s.environment().CopyIn(ctx, q.text("dir"), r.Body)
}
