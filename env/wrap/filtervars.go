package wrap

import (
	"context"
	"io"
	"io/fs"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// FilterVars filters the variables of every command before they reach e; a nil filter means the
// default filter. It does not filter the base variables, which e adds itself. An empty filter.OS
// means the system that e reports. The filter is copied.
//
// The returned environment owns e: its Close closes e.
func FilterVars(e env.Environment, filter *vars.Filter) env.Environment {
	var f vars.Filter
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
	inner  env.Environment
	filter vars.Filter
}

var (
	_ env.Environment = (*filterVars)(nil)
	_ search.Searcher = (*filterVars)(nil)
	_ env.MultiReader = (*filterVars)(nil)
)

func (f *filterVars) Info() env.Info { return f.inner.Info() }

func (f *filterVars) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
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

func (f *filterVars) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.inner.Lstat(ctx, name)
}

func (f *filterVars) ReadLink(ctx context.Context, name string) (string, error) {
	return f.inner.ReadLink(ctx, name)
}

func (f *filterVars) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return f.inner.ReadDir(ctx, name)
}

func (f *filterVars) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	return f.inner.WriteFile(ctx, name, r, opts)
}

func (f *filterVars) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	return f.inner.Remove(ctx, name, opts)
}

func (f *filterVars) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	return f.inner.CopyIn(ctx, dir, archive)
}

func (f *filterVars) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	return f.inner.CopyOut(ctx, dir, names...)
}

func (f *filterVars) Close() error { return f.inner.Close() }

func (f *filterVars) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, f.inner, root, opts, fn)
}

func (f *filterVars) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, f.inner, opts, fn)
}

func (f *filterVars) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, f.inner, opts)
}

func (f *filterVars) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	return env.ReadFiles(ctx, f.inner, names, limit)
}
