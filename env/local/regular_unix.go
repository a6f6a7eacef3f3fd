//go:build unix

package local

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/regular"
)

// regularOpener is an Environment, or a type of another package that embeds one.
type regularOpener interface {
	openRegular(ctx context.Context, name string) (io.ReadCloser, int64, error)
}

func init() { //nolint:gochecknoinits // package search does not import this one
	regular.OpenOf = func(e env.FileReader) regular.Open {
		if e, ok := e.(regularOpener); ok {
			return e.openRegular
		}
		return nil
	}
}

// openRegular is a regular.Open. It fails for a symlink. The file is not safe for concurrent use.
func (e *Environment) openRegular(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	path, err := e.startOp(ctx, "open", name)
	if err != nil {
		return nil, 0, err
	}
	defer e.work.Done()
	f := &regularFile{ctx: ctx, closed: e.done, name: name}
	if err := f.open(path); err != nil {
		return nil, 0, pathError("open", name, err)
	}
	return f, f.left, nil
}

// regularFile is a lighter file, read once from start to end.
type regularFile struct {
	ctx    context.Context
	closed <-chan struct{}
	name   string
	fd     int
	// left is the number of bytes to come; 0 or less if unknown, since files of some file systems have
	// content but no size.
	left int64
}

func (f *regularFile) open(path string) (err error) {
	f.fd, err = again(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|nonBlocking, 0)
	})
	if err != nil {
		return err
	}
	var info unix.Stat_t
	_, err = again(func() (int, error) { return 0, unix.Fstat(f.fd, &info) })
	if err == nil {
		switch info.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			f.left = info.Size
		case unix.S_IFDIR:
			err = unix.EISDIR
		default:
			err = unix.ENXIO
		}
	}
	if err != nil {
		_ = unix.Close(f.fd)
	}
	return err
}

// Read implements io.Reader.
func (f *regularFile) Read(p []byte) (int, error) {
	err := contextError(f.ctx)
	if isClosed(f.closed) {
		err = fs.ErrClosed
	}
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
	}
	n, err := again(func() (int, error) { return unix.Read(f.fd, p) })
	switch {
	case err != nil:
		return 0, pathError("read", f.name, err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	if f.left -= int64(n); f.left == 0 {
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (f *regularFile) Close() error { return pathError("close", f.name, unix.Close(f.fd)) }

// again makes a system call until no signal interrupts it.
func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
