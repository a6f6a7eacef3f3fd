package env

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"strings"
)

// FS returns the working directory of e as a file system of package io/fs. It implements
// fs.ReadDirFS, fs.ReadLinkFS, fs.StatFS and fs.ReadFileFS; unlike [ReadFile], the latter has no
// limit of size. Names follow fs.ValidPath and so cannot leave the working directory, but symlinks
// can: FS does not confine its callers.
//
// Package io/fs has no contexts, so ctx serves all calls, which fail after its end. The file system
// may be used concurrently, a single open file may not.
func FS(ctx context.Context, e FileReader) fs.FS {
	f := fileSystem{ctx: ctx, inner: e}
	if i, ok := e.(interface{ Info() Info }); ok {
		f.windows = i.Info().OS == "windows"
	}
	return f
}

type fileSystem struct {
	ctx     context.Context
	inner   FileReader
	windows bool
}

var (
	_ fs.ReadDirFS   = fileSystem{}
	_ fs.ReadLinkFS  = fileSystem{}
	_ fs.StatFS      = fileSystem{}
	_ fs.ReadFileFS  = fileSystem{}
	_ fs.ReadDirFile = (*openDir)(nil)
)

// Open opens a file, or a directory as an fs.ReadDirFile.
func (f fileSystem) Open(name string) (fs.File, error) {
	if err := f.check("open", name); err != nil {
		return nil, err
	}
	file, err := f.inner.Open(f.ctx, name)
	if err == nil {
		return file, nil
	}
	if !errors.Is(err, ErrIsDir) {
		return nil, err
	}
	info, err := f.inner.Stat(f.ctx, name)
	if err != nil {
		return nil, err
	}
	return &openDir{fs: f, name: name, info: info}, nil
}

// Stat describes a file and follows symlinks.
func (f fileSystem) Stat(name string) (fs.FileInfo, error) {
	if err := f.check("stat", name); err != nil {
		return nil, err
	}
	return f.inner.Stat(f.ctx, name)
}

// Lstat describes a file, or a symlink itself.
func (f fileSystem) Lstat(name string) (fs.FileInfo, error) {
	if err := f.check("lstat", name); err != nil {
		return nil, err
	}
	return f.inner.Lstat(f.ctx, name)
}

// ReadLink returns the target of a symlink.
func (f fileSystem) ReadLink(name string) (string, error) {
	if err := f.check("readlink", name); err != nil {
		return "", err
	}
	return f.inner.ReadLink(f.ctx, name)
}

// ReadDir lists a directory, sorted by name.
func (f fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.check("readdir", name); err != nil {
		return nil, err
	}
	return f.inner.ReadDir(f.ctx, name)
}

// ReadFile reads a whole file.
func (f fileSystem) ReadFile(name string) ([]byte, error) {
	if err := f.check("open", name); err != nil {
		return nil, err
	}
	return ReadFile(f.ctx, f.inner, name, math.MaxInt64)
}

// check rejects names that are invalid in package io/fs. On Windows it also rejects a backslash and
// a colon, with which a name can lead out of the working directory.
func (f fileSystem) check(op, name string) error {
	if fs.ValidPath(name) && (!f.windows || !strings.ContainsAny(name, `\:`)) {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
}

// openDir is an open directory. The first ReadDir lists it whole.
type openDir struct {
	fs     fileSystem
	name   string
	info   fs.FileInfo
	listed bool
	rest   []fs.DirEntry
	closed bool
}

// Stat describes the directory at the time of Open.
func (d *openDir) Stat() (fs.FileInfo, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "stat", Path: d.name, Err: fs.ErrClosed}
	}
	return d.info, nil
}

// Read fails: a directory has no bytes.
func (d *openDir) Read([]byte) (int, error) {
	err := ErrIsDir
	if d.closed {
		err = fs.ErrClosed
	}
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: err}
}

// Close closes the directory.
func (d *openDir) Close() error {
	if d.closed {
		return &fs.PathError{Op: "close", Path: d.name, Err: fs.ErrClosed}
	}
	d.closed, d.rest = true, nil
	return nil
}

// ReadDir returns the next n entries and then io.EOF, or all remaining ones if n is not positive.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		entries, err := d.fs.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.listed, d.rest = true, entries
	}
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	page := d.rest[:n:n]
	d.rest = d.rest[n:]
	return page, nil
}
