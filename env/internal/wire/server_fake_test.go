package wire

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// fakeEnv is an environment whose methods are what a test needs. Those that are not set are unsupported.
type fakeEnv struct {
	exec      func(context.Context, env.Command) (env.Result, error)
	open      func(context.Context, string) (fs.File, error)
	stat      func(context.Context, string) (fs.FileInfo, error)
	readDir   func(context.Context, string) ([]fs.DirEntry, error)
	writeFile func(context.Context, string, io.Reader, env.WriteOptions) (env.Written, error)
	remove    func(context.Context, string, env.RemoveOptions) error
	copyIn    func(context.Context, string, io.Reader) error
	copyOut   func(context.Context, string, ...string) (io.ReadCloser, error)
	walk      func(context.Context, string, search.WalkOptions, func(search.Entry) error) error
	close     func() error
}

func unsupported(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: errors.ErrUnsupported}
}

func (f *fakeEnv) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	if f.exec == nil {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: errors.ErrUnsupported}
	}
	return f.exec(ctx, cmd)
}

func (f *fakeEnv) Open(ctx context.Context, name string) (fs.File, error) {
	if f.open == nil {
		return nil, unsupported("open", name)
	}
	return f.open(ctx, name)
}

func (f *fakeEnv) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if f.stat == nil {
		return nil, unsupported("stat", name)
	}
	return f.stat(ctx, name)
}

func (f *fakeEnv) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if f.readDir == nil {
		return nil, unsupported("readdir", name)
	}
	return f.readDir(ctx, name)
}

func (f *fakeEnv) WriteFile(ctx context.Context, name string, r io.Reader, opts env.WriteOptions) (env.Written, error) {
	if f.writeFile == nil {
		return env.Written{}, unsupported("write", name)
	}
	return f.writeFile(ctx, name, r, opts)
}

func (f *fakeEnv) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	if f.remove == nil {
		return unsupported("remove", name)
	}
	return f.remove(ctx, name, opts)
}

func (f *fakeEnv) CopyIn(ctx context.Context, dir string, r io.Reader) error {
	if f.copyIn == nil {
		return unsupported("copyin", dir)
	}
	return f.copyIn(ctx, dir, r)
}

func (f *fakeEnv) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	if f.copyOut == nil {
		return nil, unsupported("copyout", dir)
	}
	return f.copyOut(ctx, dir, names...)
}

func (f *fakeEnv) Walk(ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error) error {
	if f.walk == nil {
		return search.Walk(ctx, struct{ env.FileReader }{f}, root, opts, fn)
	}
	return f.walk(ctx, root, opts, fn)
}

func (f *fakeEnv) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, struct{ env.FileReader }{f}, opts)
}

func (f *fakeEnv) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, struct{ env.FileReader }{f}, opts, fn)
}

func (f *fakeEnv) Info() env.Info { return env.Info{Backend: "fake", OS: "linux", WorkDir: "/"} }

func (f *fakeEnv) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}
