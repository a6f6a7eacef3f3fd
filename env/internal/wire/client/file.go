package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// Stat implements env.Environment.
func (c *Client) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return c.describe(ctx, "stat", name)
}

// Lstat implements env.Environment.
func (c *Client) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return c.describe(ctx, "lstat", name)
}

func (c *Client) describe(ctx context.Context, op, name string) (fs.FileInfo, error) {
	var info wire.FileInfo
	if err := c.get(ctx, "/"+op, name, &info); err != nil {
		return nil, env.PathError(op, name, err)
	}
	return fileInfo{info}, nil
}

// ReadLink implements env.Environment.
func (c *Client) ReadLink(ctx context.Context, name string) (string, error) {
	var target wire.Text
	if err := c.get(ctx, "/link", name, &target); err != nil {
		return "", env.PathError("readlink", name, err)
	}
	return string(target), nil
}

// get requests the value that path has for the file name.
func (c *Client) get(ctx context.Context, path, name string, value any) error {
	query, err := named("name", name)
	if err != nil {
		return err
	}
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	return c.value(ctx, request{method: "GET", path: path, query: query}, value)
}

// ReadDir implements env.Environment.
func (c *Client) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	entries, err := c.readDir(ctx, name)
	return entries, env.PathError("readdir", name, err)
}

func (c *Client) readDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	query, err := named("name", name)
	if err != nil {
		return nil, err
	}
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	var entries []fs.DirEntry
	var remote error
	err = c.retry(ctx, func(l *link) error {
		entries = nil
		take := c.bounded(records(func(i *wire.FileInfo) error {
			if name := string(i.Name); name == "" || name == "." || name == ".." ||
				strings.ContainsAny(name, "/\x00") {
				return fmt.Errorf("%w: an entry named %.100q", env.ErrProtocol, name)
			}
			if len(entries) >= c.limits.entries {
				return errListTooLong
			}
			entries = append(entries, dirEntry{*i})
			return nil
		}))
		end, err := c.exchange(ctx, l, request{method: "GET", path: "/dir", query: query},
			wire.FrameRecords, take)
		if err == nil {
			remote = c.decodeError(end.Error)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, remote // a listing that failed comes with its first entries
}

// errListTooLong ends a list that no system has.
var errListTooLong = fmt.Errorf("%w: a list exceeds its limit", env.ErrProtocol)

// bounded bounds the bytes of a list that is kept in memory.
func (c *Client) bounded(take func([]byte) error) func([]byte) error {
	size := 0
	return func(payload []byte) error {
		if size += len(payload); size > c.limits.listing {
			return errListTooLong
		}
		return take(payload)
	}
}

// fileInfo is an fs.FileInfo.
type fileInfo struct{ i wire.FileInfo }

func (d fileInfo) Name() string       { return string(d.i.Name) }
func (d fileInfo) Size() int64        { return d.i.Size }
func (d fileInfo) Mode() fs.FileMode  { return d.i.Mode }
func (d fileInfo) ModTime() time.Time { return d.i.ModTime() }
func (d fileInfo) IsDir() bool        { return d.i.Mode.IsDir() }
func (d fileInfo) Sys() any           { return nil }

// dirEntry is an fs.DirEntry.
type dirEntry struct{ i wire.FileInfo }

func (d dirEntry) Name() string      { return string(d.i.Name) }
func (d dirEntry) IsDir() bool       { return d.i.Mode.IsDir() }
func (d dirEntry) Type() fs.FileMode { return d.i.Mode.Type() }
func (d dirEntry) String() string    { return fs.FormatDirEntry(d) }

func (d dirEntry) Info() (fs.FileInfo, error) {
	if d.i.Error != nil {
		return nil, d.i.Error.Err()
	}
	return fileInfo(d), nil
}

// content is the payload of the data frames of a response.
type content struct {
	a    *response
	left int // of the frame's payload
}

// start waits for content. At its end the error is io.EOF or the error of the last
// frame.
func (s *content) start() error {
	for s.left == 0 {
		kind, size, err := s.a.head()
		switch {
		case err != nil:
			return err
		case kind == wire.FrameData:
			s.left = size
		case kind == wire.FrameEnd:
			end, err := s.a.last(size)
			if err == nil {
				err = s.a.c.decodeError(end.Error)
			}
			if err == nil {
				err = io.EOF
			}
			return err
		default:
			return s.a.unexpected(kind)
		}
	}
	return nil
}

// read reads. Its error is that of start.
func (s *content) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.start(); err != nil {
		return 0, err
	}
	n, err := s.a.read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// file is an open file.
type file struct {
	c      *Client
	ctx    context.Context // given to Open, whose end ends reads
	name   string
	info   wire.FileInfo
	cancel context.CancelFunc

	mu      sync.Mutex // held by Read
	content content
	offset  int64
	err     error // sticky

	closing sync.Once
	closed  chan struct{}
}

// Open implements env.Environment. After a lost connection the file is read on if it has not
// changed.
func (c *Client) Open(ctx context.Context, name string) (fs.File, error) {
	if err := c.enter(ctx); err != nil {
		return nil, env.PathError("open", name, err)
	}
	defer c.calls.Done()
	f := &file{c: c, name: name, closed: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(ctx)
	err := c.retry(f.ctx, func(l *link) error {
		var err error
		f.content, f.info, err = f.request(l)
		return err
	})
	if err != nil {
		f.cancel()
		return nil, env.PathError("open", name, err)
	}
	return f, nil
}

// request requests the content from the offset on, and reads the file's description.
func (f *file) request(l *link) (content, wire.FileInfo, error) {
	var info wire.FileInfo
	query, err := named("name", f.name)
	if err != nil {
		return content{}, info, err
	}
	if f.offset > 0 {
		query.Set("offset", strconv.FormatInt(f.offset, 10))
	}
	a, err := f.c.send(f.ctx, l, request{method: "GET", path: "/file", query: query})
	if err != nil {
		return content{}, info, err
	}
	if info, err = f.describe(a); err != nil {
		a.close()
		return content{}, info, err
	}
	return content{a: a}, info, nil
}

func (f *file) describe(a *response) (wire.FileInfo, error) {
	kind, size, err := a.head()
	switch {
	case err != nil:
		return wire.FileInfo{}, err
	case kind == wire.FrameEnd:
		end, err := a.last(size)
		if err == nil {
			err = a.c.decodeError(end.Error)
		}
		if err == nil {
			err = a.malformed("a file without a description")
		}
		return wire.FileInfo{}, err
	case kind != wire.FrameRecords:
		return wire.FileInfo{}, a.unexpected(kind)
	}
	payload, err := a.payload(size)
	if err != nil {
		return wire.FileInfo{}, err
	}
	var list []wire.FileInfo
	if err := wire.Decode(payload, &list); err != nil {
		return wire.FileInfo{}, a.c.violation(err)
	}
	if len(list) != 1 {
		return wire.FileInfo{}, a.malformed("%d descriptions of a file", len(list))
	}
	return list[0], nil
}

func (f *file) Stat() (fs.FileInfo, error) { return fileInfo{f.info}, nil }

// Read implements io.Reader.
func (f *file) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch err := env.ContextError(f.ctx); {
	case isDone(f.closed), f.c.isClosed():
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
	case f.err != nil:
		return 0, f.err
	}
	n, err := f.content.read(p)
	for range maxTries {
		if !errors.Is(err, errLost) {
			break
		}
		if err = f.resume(); err == nil {
			n, err = f.content.read(p)
		}
	}
	f.offset += int64(n)
	if err == nil {
		return n, nil
	}
	switch {
	case errors.Is(err, io.EOF):
		f.err = io.EOF
	case errors.Is(err, errLost):
		f.err = env.PathError("read", f.name, errBroken)
	case isDone(f.closed):
		f.err = env.PathError("read", f.name, fs.ErrClosed)
	default:
		f.err = env.PathError("read", f.name, err)
	}
	return n, f.err
}

// resume continues over the next connection.
func (f *file) resume() error {
	l, err := f.c.connection(f.ctx)
	if err != nil {
		return err
	}
	next, info, err := f.request(l)
	if err != nil {
		return err
	}
	if info.Size != f.info.Size || !info.ModTime().Equal(f.info.ModTime()) {
		next.a.close()
		return fmt.Errorf("%w while the connection was lost", env.ErrChanged)
	}
	f.content.a.close()
	f.content = next
	return nil
}

// Close ends a Read in progress as well.
func (f *file) Close() error {
	err := fs.ErrClosed
	f.closing.Do(func() {
		err = nil
		close(f.closed)
		f.cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.content.a.close()
	})
	return env.PathError("close", f.name, err)
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
