package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

const (
	// idleTime bounds the silence of an environment that is read at the end, also after a timeout or a
	// signal.
	idleTime = 2 * time.Minute
	// readTime bounds the reading of an environment that is never silent.
	readTime = 2 * time.Hour
	// lateReadTime is readTime after the timeout of a run, when endTime is the idleTime.
	lateReadTime = 5 * time.Minute
)

// watch returns e with a context that ends when e is silent for too long during a read, or is read
// for too long. It ignores the end of ctx, which may have ended the command, except that a timeout
// of the run shortens both times. The caller calls stop.
func watch(
	ctx context.Context, e env.Environment,
) (_ context.Context, _ env.Environment, stop func()) {
	idle, total := idleTime, readTime
	if timedOut(ctx) {
		idle, total = endTime, lateReadTime
	}
	ctx, cancelTime := context.WithTimeoutCause(context.WithoutCancel(ctx), total,
		fmt.Errorf("the environment was not read within %v", total))
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(idle, func() {
		cancel(fmt.Errorf("the environment was silent for %v",
			idle))
	})
	return ctx, &watched{Environment: e, alive: func() { timer.Reset(idle) }}, func() {
		timer.Stop()
		cancel(nil)
		cancelTime()
	}
}

// watched reports each response of an environment that is read.
type watched struct {
	env.Environment
	alive func()
}

func (w *watched) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	defer w.alive()
	return w.Environment.Stat(ctx, name)
}

func (w *watched) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	defer w.alive()
	return w.Environment.Lstat(ctx, name)
}

func (w *watched) ReadLink(ctx context.Context, name string) (string, error) {
	defer w.alive()
	return w.Environment.ReadLink(ctx, name)
}

func (w *watched) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	defer w.alive()
	return w.Environment.ReadDir(ctx, name)
}

func (w *watched) Open(ctx context.Context, name string) (fs.File, error) {
	defer w.alive()
	f, err := w.Environment.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, w.alive}, nil
}

// Walk implements search.Searcher.
func (w *watched) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, w.Environment, root, opts, func(entry search.Entry) error {
		w.alive()
		return fn(entry)
	})
}

// Glob implements search.Searcher.
func (w *watched) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	defer w.alive()
	return search.Glob(ctx, w.Environment, opts)
}

// Grep implements search.Searcher.
func (w *watched) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, w.Environment, opts, func(m search.GrepMatch) error {
		w.alive()
		return fn(m)
	})
}

func (w *watched) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	defer w.alive()
	archive, err := w.Environment.CopyOut(ctx, dir, names...)
	if err != nil {
		return nil, err
	}
	return &watchedStream{archive, w.alive}, nil
}

var _ search.Searcher = (*watched)(nil)

type watchedFile struct {
	fs.File
	alive func()
}

func (f *watchedFile) Read(b []byte) (int, error) {
	defer f.alive()
	return f.File.Read(b)
}

type watchedStream struct {
	io.ReadCloser
	alive func()
}

func (s *watchedStream) Read(b []byte) (int, error) {
	defer s.alive()
	return s.ReadCloser.Read(b)
}
