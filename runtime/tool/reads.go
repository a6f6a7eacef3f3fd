package tool

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/policy"
)

// Reads knows which files a session has read, or written, and in which state. With it a tool of
// another class than policy.ClassRead fails to write or remove a file that the session has not
// read, or that has changed since: by a command, a person or another agent. A new file needs no
// reading. CopyIn and files below a directory are not covered. Names that lead to the same file
// by symlinks are different files. A change within the resolution of the file system's clock,
// usually some milliseconds, that keeps the size is not noticed, and neither is one while a command
// runs that prints the file.
//
// The zero value knows no files. Its methods may be called concurrently.
type Reads struct {
	mu    sync.Mutex
	files map[string]fileState
}

// fileState tells two states of a file apart.
type fileState struct {
	size    int64
	changed time.Time
}

func stateOf(info fs.FileInfo) fileState { return fileState{info.Size(), info.ModTime()} }

// add records a file as read in a state.
func (r *Reads) add(e env.Environment, name string, info fs.FileInfo) {
	if !info.Mode().IsRegular() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files == nil {
		r.files = make(map[string]fileState)
	}
	r.files[changedName(e, name)] = stateOf(info)
}

// Add records files as read in their present states. Those that cannot be read are left out. A nil
// r records nothing.
func (r *Reads) Add(ctx context.Context, e env.Environment, names []string) {
	if r == nil {
		return
	}
	const most = 8 // at once
	slots := make(chan struct{}, most)
	var wg sync.WaitGroup
	for _, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if info, err := e.Stat(ctx, name); err == nil {
				r.add(e, name, info)
			}
		})
	}
	wg.Wait()
}

// check returns an error for a file that must be read before it is changed.
func (r *Reads) check(ctx context.Context, e env.Environment, name string) error {
	info, err := e.Stat(ctx, name)
	return r.checkState(e, name, info, err)
}

// checkRemove is check for a name whose symlink is not followed.
func (r *Reads) checkRemove(ctx context.Context, e env.Environment, name string) error {
	info, err := e.Lstat(ctx, name)
	return r.checkState(e, name, info, err)
}

func (r *Reads) checkState(e env.Environment, name string, info fs.FileInfo, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return nil // the change itself reports what is wrong
	case err != nil:
		return err
	}
	r.mu.Lock()
	state, known := r.files[changedName(e, name)]
	r.mu.Unlock()
	switch {
	case !known:
		return errorf(KindEditConflict, "%s was not changed, since you have not read it in this "+
			"session; read it first", shown(name))
	case state.size != info.Size() || !state.changed.Equal(info.ModTime()):
		return errorf(KindEditConflict, "%s was not changed, since it is another file than the one "+
			"that you have read: a command, a person or another agent has changed it; read it again "+
			"first", shown(name))
	}
	return nil
}

// over returns e with the rules of r for a call of a tool, and a function that is called after the
// tool has run. A nil r has none.
func (r *Reads) over(
	e env.Environment, t Tool, args json.RawMessage,
) (guarded env.Environment, done func(context.Context)) {
	done = func(context.Context) {}
	switch {
	case r == nil || e == nil:
		return e, done
	case t.Class == policy.ClassRead:
		return &readingEnv{Environment: e, reads: r}, done
	case t.Class == policy.ClassShell && t.Subjects != nil:
		return e, func(ctx context.Context) {
			for _, command := range t.Subjects(args) {
				r.Add(ctx, e, policy.Viewed(command))
			}
		}
	case t.ReadOnly:
		return e, done
	}
	return &writingEnv{Environment: e, reads: r}, done
}

// readingEnv records the files that are read.
type readingEnv struct {
	env.Environment
	reads *Reads
}

var (
	_ env.MultiReader = (*readingEnv)(nil)
	_ search.Searcher = (*readingEnv)(nil)
)

// Open implements env.FileReader.
func (g *readingEnv) Open(ctx context.Context, name string) (fs.File, error) {
	f, err := g.Environment.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil {
		g.reads.add(g.Environment, name, info)
	}
	return f, nil
}

// ReadFiles implements env.MultiReader.
func (g *readingEnv) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	g.reads.Add(ctx, g.Environment, names) // first, so that a change while they are read is noticed
	return env.ReadFiles(ctx, g.Environment, names, limit)
}

// Walk implements search.Searcher.
func (g *readingEnv) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, g.Environment, root, opts, fn)
}

// Glob implements search.Searcher.
func (g *readingEnv) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, g.Environment, opts)
}

// Grep implements search.Searcher.
func (g *readingEnv) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, g.Environment, opts, fn)
}

// writingEnv checks the files that are written or removed.
type writingEnv struct {
	env.Environment
	reads *Reads
}

// WriteFile implements env.FileWriter.
func (g *writingEnv) WriteFile(
	ctx context.Context, name string, content io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	if !opts.MustNotExist { // otherwise no file exists, or nothing is written
		if err := g.reads.check(ctx, g.Environment, name); err != nil {
			return env.Written{}, err
		}
	}
	written, err := g.Environment.WriteFile(ctx, name, content, opts)
	if err == nil {
		g.reads.Add(ctx, g.Environment, []string{name})
	}
	return written, err
}

// Remove implements env.FileWriter.
func (g *writingEnv) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	if err := g.reads.checkRemove(ctx, g.Environment, name); err != nil {
		return err
	}
	return g.Environment.Remove(ctx, name, opts)
}
