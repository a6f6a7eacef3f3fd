package wire

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
	walk      func(context.Context, string, env.WalkOptions, func(env.Entry) error) error
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

func (f *fakeEnv) Walk(ctx context.Context, root string, opts env.WalkOptions, fn func(env.Entry) error) error {
	if f.walk == nil {
		return env.Walk(ctx, struct{ env.FileReader }{f}, root, opts, fn)
	}
	return f.walk(ctx, root, opts, fn)
}

func (f *fakeEnv) Info() env.Info { return env.Info{Backend: "fake", OS: "linux", WorkDir: "/"} }

func (f *fakeEnv) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// noLeaks checks that a test leaves no goroutine behind.
func noLeaks(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// within fails the test if f takes too long.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: it takes too long", what)
	}
}

// sequence returns size bytes that tell where in an output they stand.
func sequence(from int64, size int) []byte {
	p := make([]byte, size)
	for i := range p {
		o := from + int64(i)
		p[i] = byte(o ^ o>>8 ^ o>>16*7)
	}
	return p
}

// pipeEnd is an end of a pipe that has no deadlines.
type pipeEnd struct {
	io.Reader
	io.Writer
	close func() error
}

func (p *pipeEnd) Close() error { return p.close() }

// newPipe returns the ends of a stream without deadlines.
func newPipe() (ours, theirs io.ReadWriteCloser) {
	a, b := net.Pipe()
	return &pipeEnd{a, a, a.Close}, &pipeEnd{b, b, b.Close}
}
