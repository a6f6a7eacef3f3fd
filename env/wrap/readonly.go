package wrap

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// ReadOnly rejects every write to e: WriteFile, Remove and CopyIn return a *fs.PathError that wraps
// ErrReadOnly. Reading and searching are unchanged, even where e runs a program for them.
//
// Commands run where e keeps them from changing files: where ReadOnlyFiles or ConfinedCommands is
// enforced. Elsewhere a command runs if check returns nil, confined if e can do that; otherwise
// Exec returns a *StartError that wraps ErrReadOnly and the error of check. A nil check accepts
// none, and Info then reports no shell. So check has to look at the variables and the directory of
// a command too, which can turn a harmless program into another one. It may be called concurrently.
// It gets a copy of the command, so that the command that it checks is the one that runs.
//
// The returned environment owns e: its Close closes e.
func ReadOnly(e env.Environment, check func(env.Command) error) env.Environment {
	info := e.Info()
	return &readOnly{
		inner: e, check: check,
		confines: info.Strength(env.ConfinedCommands) != env.Absent,
		enforced: info.Strength(env.ReadOnlyFiles) == env.Enforced ||
			info.Strength(env.ConfinedCommands) == env.Enforced,
	}
}

type readOnly struct {
	inner env.Environment
	check func(env.Command) error
	// confines: e obeys Command.Confine; enforced: a hostile command cannot change files.
	confines, enforced bool
	closed             atomic.Bool
}

var (
	_ env.Environment = (*readOnly)(nil)
	_ search.Searcher = (*readOnly)(nil)
	_ env.MultiReader = (*readOnly)(nil)
)

func (r *readOnly) Info() env.Info {
	info := r.inner.Info()
	if !r.enforced && r.check == nil {
		info.Shell, info.NoShell = nil, env.ErrReadOnly.Error()
	}
	return info
}

func (r *readOnly) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	refuse := func(err error) (env.Result, error) {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: err}
	}
	if !r.enforced && r.check == nil {
		return refuse(r.refusal())
	}
	if !r.enforced {
		cmd.Argv, cmd.Vars = slices.Clone(cmd.Argv), slices.Clone(cmd.Vars)
		checked := cmd
		checked.Argv, checked.Vars = slices.Clone(cmd.Argv), slices.Clone(cmd.Vars)
		if err := r.check(checked); err != nil {
			return refuse(fmt.Errorf("%w: %w", r.refusal(), err))
		}
	}
	if r.confines {
		confine := env.Confinement{}
		if c := cmd.Confine; c != nil {
			confine.Hide, confine.Read = c.Hide, slices.Concat(c.Read, c.Write)
		}
		cmd.Confine = &confine
	}
	return r.inner.Exec(ctx, cmd)
}

func (r *readOnly) Open(ctx context.Context, name string) (fs.File, error) {
	f, err := r.inner.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return readOnlyFile{inner: f}, nil
}

func (r *readOnly) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return r.inner.Stat(ctx, name)
}

func (r *readOnly) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return r.inner.Lstat(ctx, name)
}

func (r *readOnly) ReadLink(ctx context.Context, name string) (string, error) {
	return r.inner.ReadLink(ctx, name)
}

func (r *readOnly) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return r.inner.ReadDir(ctx, name)
}

func (r *readOnly) WriteFile(
	_ context.Context, name string, _ io.Reader, _ env.WriteOptions,
) (env.Written, error) {
	return env.Written{}, &fs.PathError{Op: "write", Path: name, Err: r.refusal()}
}

func (r *readOnly) Remove(_ context.Context, name string, _ env.RemoveOptions) error {
	return &fs.PathError{Op: "remove", Path: name, Err: r.refusal()}
}

func (r *readOnly) CopyIn(_ context.Context, dir string, _ io.Reader) error {
	return &fs.PathError{Op: "copyin", Path: dir, Err: r.refusal()}
}

func (r *readOnly) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	return r.inner.CopyOut(ctx, dir, names...)
}

func (r *readOnly) Close() error {
	r.closed.Store(true)
	return r.inner.Close()
}

func (r *readOnly) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, r.inner, root, opts, fn)
}

func (r *readOnly) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, r.inner, opts, fn)
}

func (r *readOnly) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, r.inner, opts)
}

func (r *readOnly) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	return env.ReadFiles(ctx, r.inner, names, limit)
}

// refusal is ErrReadOnly, or fs.ErrClosed once the environment is closed.
func (r *readOnly) refusal() error {
	if r.closed.Load() {
		return fs.ErrClosed
	}
	return env.ErrReadOnly
}

// readOnlyFile hides methods that can change the file, such as the Chmod of an *os.File.
type readOnlyFile struct{ inner fs.File }

func (f readOnlyFile) Stat() (fs.FileInfo, error) { return f.inner.Stat() }
func (f readOnlyFile) Read(p []byte) (int, error) { return f.inner.Read(p) }
func (f readOnlyFile) Close() error               { return f.inner.Close() }
