package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// Open implements env.Environment.
func (e *Environment) Open(ctx context.Context, name string) (fs.File, error) {
	path, err := e.startOp(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	defer e.work.Done()
	f, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &file{ctx: ctx, closed: e.done, f: f, name: name}, nil
}

// openRegular opens a regular file without ever waiting for a special one. It checks first, since
// merely opening a device may have an effect, and again after opening.
func openRegular(path string, flag int) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := notRegular(info.Mode()); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = notRegular(info.Mode())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// file is an open file whose reads end with a context or with the environment.
type file struct {
	ctx    context.Context
	closed <-chan struct{}
	f      *os.File
	name   string
}

func (f *file) Stat() (fs.FileInfo, error) {
	info, err := f.f.Stat()
	return info, pathError("stat", f.name, err)
}

func (f *file) Read(p []byte) (int, error) {
	err := contextError(f.ctx)
	if isClosed(f.closed) {
		err = fs.ErrClosed
	}
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
	}
	n, err := f.f.Read(p)
	var pe *fs.PathError
	if errors.As(err, &pe) { // not io.EOF, which callers compare
		err = pathError("read", f.name, err)
	}
	return n, err
}

func (f *file) Close() error { return pathError("close", f.name, f.f.Close()) }

// Stat implements env.Environment.
func (e *Environment) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	path, err := e.startOp(ctx, "stat", name)
	if err != nil {
		return nil, err
	}
	defer e.work.Done()
	info, err := os.Stat(path)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return info, nil
}

// Lstat implements env.Environment.
func (e *Environment) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	path, err := e.startOp(ctx, "lstat", name)
	if err != nil {
		return nil, err
	}
	defer e.work.Done()
	info, err := os.Lstat(path)
	if err != nil {
		return nil, pathError("lstat", name, err)
	}
	return info, nil
}

// ReadLink implements env.Environment.
func (e *Environment) ReadLink(ctx context.Context, name string) (string, error) {
	path, err := e.startOp(ctx, "readlink", name)
	if err != nil {
		return "", err
	}
	defer e.work.Done()
	target, err := os.Readlink(path)
	if err == nil {
		return filepath.ToSlash(target), nil
	}
	// Systems differ in the error for a file that is not a symlink.
	if info, statErr := os.Lstat(path); statErr == nil && info.Mode().Type() != fs.ModeSymlink {
		err = fs.ErrInvalid
	}
	return "", pathError("readlink", name, err)
}

// ReadDir implements env.Environment.
func (e *Environment) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	path, err := e.startOp(ctx, "readdir", name)
	if err != nil {
		return nil, err
	}
	defer e.work.Done()
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = env.ErrNotDir
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	entries, err := list(ctx, path)
	return entries, pathError("readdir", name, err)
}

// list lists a directory by name until ctx ends. An error comes with the entries read before it.
func list(ctx context.Context, path string) (entries []fs.DirEntry, err error) {
	const piece = 4096 // entries, which are listed in some milliseconds
	f, err := os.OpenFile(path, os.O_RDONLY|directoryFlag, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // It was only read.
	for err == nil {
		var some []fs.DirEntry
		some, err = f.ReadDir(piece)
		entries = append(entries, some...)
		if err == nil {
			err = contextError(ctx)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// Remove implements env.Environment. The root of a file system is never removed.
func (e *Environment) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	path, err := e.startOp(ctx, "remove", name)
	if err != nil {
		return err
	}
	defer e.work.Done()
	if clean := filepath.Clean(path); filepath.Dir(clean) == clean {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrInvalid}
	}
	if !opts.Recursive {
		return pathError("remove", name, os.Remove(path))
	}
	if _, err := os.Lstat(path); err != nil {
		return pathError("remove", name, err)
	}
	return pathError("remove", name, os.RemoveAll(path))
}
