package env

import (
	"context"
	"io"
	"io/fs"
	"slices"
)

// FilterVars returns e with the variables of every command passed through filter before they reach e; nil means the
// default filter. The base variables, which e adds itself, are not seen here. If filter.OS is empty, it is the system
// that e reports. The filter is copied; everything but Exec is as in e.
//
// The environment returned owns e: its Close closes e.
func FilterVars(e Environment, filter *VarFilter) Environment {
	var f VarFilter
	if filter != nil {
		f = *filter
	}
	f.Pass = slices.Clone(f.Pass)
	if f.OS == "" {
		f.OS = e.Info().OS
	}
	return &filterVars{inner: e, filter: f}
}

type filterVars struct {
	inner  Environment
	filter VarFilter
}

var (
	_ Environment = (*filterVars)(nil)
	_ Walker      = (*filterVars)(nil)
	_ Searcher    = (*filterVars)(nil)
	_ MultiReader = (*filterVars)(nil)
)

func (f *filterVars) Info() Info { return f.inner.Info() }

func (f *filterVars) Exec(ctx context.Context, cmd Command) (Result, error) {
	if len(cmd.Vars) > 0 {
		cmd.Vars = f.filter.Apply(cmd.Vars)
	}
	return f.inner.Exec(ctx, cmd)
}

func (f *filterVars) Open(ctx context.Context, name string) (fs.File, error) {
	return f.inner.Open(ctx, name)
}

func (f *filterVars) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.inner.Stat(ctx, name)
}

func (f *filterVars) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return f.inner.ReadDir(ctx, name)
}

func (f *filterVars) WriteFile(ctx context.Context, name string, r io.Reader, opts WriteOptions) (Written, error) {
	return f.inner.WriteFile(ctx, name, r, opts)
}

func (f *filterVars) Remove(ctx context.Context, name string, opts RemoveOptions) error {
	return f.inner.Remove(ctx, name, opts)
}

func (f *filterVars) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	return f.inner.CopyIn(ctx, dir, archive)
}

func (f *filterVars) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	return f.inner.CopyOut(ctx, dir, names...)
}

func (f *filterVars) Close() error { return f.inner.Close() }

func (f *filterVars) Walk(ctx context.Context, root string, opts WalkOptions, fn func(Entry) error) error {
	return Walk(ctx, f.inner, root, opts, fn)
}

func (f *filterVars) Grep(ctx context.Context, opts GrepOptions, fn func(GrepMatch) error) (GrepStats, error) {
	return Grep(ctx, f.inner, opts, fn)
}

func (f *filterVars) Glob(ctx context.Context, opts GlobOptions) ([]Entry, error) {
	return Glob(ctx, f.inner, opts)
}

func (f *filterVars) ReadFiles(ctx context.Context, names []string, limit int64) ([]FileContent, error) {
	return ReadFiles(ctx, f.inner, names, limit)
}
