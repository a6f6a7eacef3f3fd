// Package wiretest provides a fake environment, an in-memory stream and checks for the tests of the
// wire's client and server.
package wiretest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Env is an environment whose methods a test sets. Methods that are not set are unsupported.
type Env struct {
	OnExec      func(context.Context, env.Command) (env.Result, error)
	OnOpen      func(context.Context, string) (fs.File, error)
	OnStat      func(context.Context, string) (fs.FileInfo, error)
	OnLstat     func(context.Context, string) (fs.FileInfo, error)
	OnReadLink  func(context.Context, string) (string, error)
	OnReadDir   func(context.Context, string) ([]fs.DirEntry, error)
	OnWriteFile func(context.Context, string, io.Reader, env.WriteOptions) (env.Written, error)
	OnRemove    func(context.Context, string, env.RemoveOptions) error
	OnCopyIn    func(context.Context, string, io.Reader) error
	OnCopyOut   func(context.Context, string, ...string) (io.ReadCloser, error)
	OnWalk      func(context.Context, string, search.WalkOptions, func(search.Entry) error) error
	OnClose     func() error
}

// Exec returns an environment that runs commands with exec.
func Exec(exec func(context.Context, env.Command) (env.Result, error)) *Env {
	return &Env{OnExec: exec}
}

func unsupported(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: errors.ErrUnsupported}
}

// Exec implements env.Environment.
func (f *Env) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	if f.OnExec == nil {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: errors.ErrUnsupported}
	}
	return f.OnExec(ctx, cmd)
}

// Open implements env.Environment.
func (f *Env) Open(ctx context.Context, name string) (fs.File, error) {
	if f.OnOpen == nil {
		return nil, unsupported("open", name)
	}
	return f.OnOpen(ctx, name)
}

// Stat implements env.Environment.
func (f *Env) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if f.OnStat == nil {
		return nil, unsupported("stat", name)
	}
	return f.OnStat(ctx, name)
}

// Lstat implements env.Environment.
func (f *Env) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	if f.OnLstat == nil {
		return nil, unsupported("lstat", name)
	}
	return f.OnLstat(ctx, name)
}

// ReadLink implements env.Environment.
func (f *Env) ReadLink(ctx context.Context, name string) (string, error) {
	if f.OnReadLink == nil {
		return "", unsupported("readlink", name)
	}
	return f.OnReadLink(ctx, name)
}

// ReadDir implements env.Environment.
func (f *Env) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if f.OnReadDir == nil {
		return nil, unsupported("readdir", name)
	}
	return f.OnReadDir(ctx, name)
}

// WriteFile implements env.Environment.
func (f *Env) WriteFile(ctx context.Context, name string, r io.Reader,
	opts env.WriteOptions,
) (env.Written, error) {
	if f.OnWriteFile == nil {
		return env.Written{}, unsupported("write", name)
	}
	return f.OnWriteFile(ctx, name, r, opts)
}

// Remove implements env.Environment.
func (f *Env) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	if f.OnRemove == nil {
		return unsupported("remove", name)
	}
	return f.OnRemove(ctx, name, opts)
}

// CopyIn implements env.Environment.
func (f *Env) CopyIn(ctx context.Context, dir string, r io.Reader) error {
	if f.OnCopyIn == nil {
		return unsupported("copyin", dir)
	}
	return f.OnCopyIn(ctx, dir, r)
}

// CopyOut implements env.Environment.
func (f *Env) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	if f.OnCopyOut == nil {
		return nil, unsupported("copyout", dir)
	}
	return f.OnCopyOut(ctx, dir, names...)
}

// Walk implements search.Searcher.
func (f *Env) Walk(ctx context.Context, root string, opts search.WalkOptions,
	fn func(search.Entry) error,
) error {
	if f.OnWalk == nil {
		return search.Walk(ctx, struct{ env.FileReader }{f}, root, opts, fn)
	}
	return f.OnWalk(ctx, root, opts, fn)
}

// Glob implements search.Searcher.
func (f *Env) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, struct{ env.FileReader }{f}, opts)
}

// Grep implements search.Searcher.
func (f *Env) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, struct{ env.FileReader }{f}, opts, fn)
}

// Info implements env.Environment.
func (f *Env) Info() env.Info { return env.Info{Backend: "fake", OS: "linux", WorkDir: "/"} }

// Close implements env.Environment.
func (f *Env) Close() error {
	if f.OnClose == nil {
		return nil
	}
	return f.OnClose()
}

// NoLeaks checks that a test leaves no goroutine behind.
func NoLeaks(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Within fails the test if f takes too long.
func Within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s: it takes too long", what)
	}
}

// Sequence returns size bytes of an output, from the offset from on, which differ from others.
func Sequence(from int64, size int) []byte {
	p := make([]byte, size)
	for i := range p {
		o := from + int64(i)
		p[i] = byte(o ^ o>>8 ^ o>>16*7)
	}
	return p
}

// PipeEnd is an end of a pipe that has no deadlines.
type PipeEnd struct {
	io.Reader
	io.Writer
	OnClose func() error
}

// Close implements io.Closer.
func (p *PipeEnd) Close() error { return p.OnClose() }

// NewPipe returns the ends of a stream without deadlines.
func NewPipe() (a, b io.ReadWriteCloser) {
	x, y := net.Pipe()
	return &PipeEnd{x, x, x.Close}, &PipeEnd{y, y, y.Close}
}
