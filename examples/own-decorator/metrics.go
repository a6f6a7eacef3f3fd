package main

import (
	"context"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// metrics counts the calls of an environment. Its other methods pass them on. It has the
// environment in a named field, so that no method of a later version bypasses it.
type metrics struct {
	inner env.Environment
	// commands ran for busy, in nanoseconds; reads and writes are calls that read or write files.
	commands, busy, reads, writes atomic.Int64
}

var (
	_ env.Environment = (*metrics)(nil)
	// optional interfaces, which make searches and reads of many files fast
	_ search.Searcher = (*metrics)(nil)
	_ env.MultiReader = (*metrics)(nil)
)

func (m *metrics) Info() env.Info { return m.inner.Info() }

func (m *metrics) Close() error { return m.inner.Close() }

func (m *metrics) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	start := time.Now()
	defer func() {
		m.commands.Add(1)
		m.busy.Add(int64(time.Since(start)))
	}()
	return m.inner.Exec(ctx, cmd)
}

func (m *metrics) Open(ctx context.Context, name string) (fs.File, error) {
	m.reads.Add(1)
	return m.inner.Open(ctx, name)
}

func (m *metrics) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	m.reads.Add(1)
	return m.inner.Stat(ctx, name)
}

func (m *metrics) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	m.reads.Add(1)
	return m.inner.Lstat(ctx, name)
}

func (m *metrics) ReadLink(ctx context.Context, name string) (string, error) {
	m.reads.Add(1)
	return m.inner.ReadLink(ctx, name)
}

func (m *metrics) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	m.reads.Add(1)
	return m.inner.ReadDir(ctx, name)
}

func (m *metrics) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	m.writes.Add(1)
	return m.inner.WriteFile(ctx, name, r, opts)
}

func (m *metrics) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	m.writes.Add(1)
	return m.inner.Remove(ctx, name, opts)
}

func (m *metrics) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	m.writes.Add(1)
	return m.inner.CopyIn(ctx, dir, archive)
}

func (m *metrics) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	m.reads.Add(1)
	return m.inner.CopyOut(ctx, dir, names...)
}

// Walk calls the function of the package, which works around any environment, as do the next ones.
func (m *metrics) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	m.reads.Add(1)
	return search.Walk(ctx, m.inner, root, opts, fn)
}

func (m *metrics) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	m.reads.Add(1)
	return search.Glob(ctx, m.inner, opts)
}

func (m *metrics) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	m.reads.Add(1)
	return search.Grep(ctx, m.inner, opts, fn)
}

func (m *metrics) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	m.reads.Add(1)
	return env.ReadFiles(ctx, m.inner, names, limit)
}
