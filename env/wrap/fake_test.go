package wrap_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// scriptedEnv is an environment for tests of decorators and functions: its files are those of a
// temporary folder, its commands are a Go function.
type scriptedEnv struct {
	dir  string
	goos string
	run  func(ctx context.Context, cmd env.Command) (env.Result, error)

	mu     sync.Mutex
	calls  []string
	closed bool
}

var _ env.Environment = (*scriptedEnv)(nil)

func newScriptedEnv(t *testing.T) *scriptedEnv {
	t.Helper()
	return &scriptedEnv{
		dir:  t.TempDir(),
		goos: "linux",
		run:  func(context.Context, env.Command) (env.Result, error) { return env.Result{}, nil },
	}
}

// call notes that a method was called and says whether it may go on.
func (s *scriptedEnv) call(method string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, method)
	if s.closed {
		return fs.ErrClosed
	}
	return nil
}

// called returns the names of the methods called since the last time.
func (s *scriptedEnv) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *scriptedEnv) host(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return filepath.Join(s.dir, filepath.FromSlash(name))
}

func (s *scriptedEnv) Info() env.Info {
	return env.Info{
		Backend:    "scripted",
		OS:         s.goos,
		Arch:       "amd64",
		WorkDir:    filepath.ToSlash(s.dir),
		Shell:      []string{"/bin/sh", "-c"},
		Guarantees: []env.Guarantee{{Promise: env.AtomicWrite, Strength: env.BestEffort, By: "the test"}},
	}
}

func (s *scriptedEnv) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	if err := s.call("Exec"); err != nil {
		return env.Result{}, err
	}
	return s.run(ctx, cmd)
}

func (s *scriptedEnv) Open(_ context.Context, name string) (fs.File, error) {
	if err := s.call("Open"); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	info, err := os.Stat(s.host(name))
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: env.ErrIsDir}
	}
	return os.Open(s.host(name))
}

func (s *scriptedEnv) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	if err := s.call("Stat"); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return os.Stat(s.host(name))
}

func (s *scriptedEnv) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	if err := s.call("Lstat"); err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return os.Lstat(s.host(name))
}

func (s *scriptedEnv) ReadLink(_ context.Context, name string) (string, error) {
	if err := s.call("ReadLink"); err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return os.Readlink(s.host(name))
}

func (s *scriptedEnv) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	if err := s.call("ReadDir"); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return os.ReadDir(s.host(name))
}

func (s *scriptedEnv) WriteFile(
	_ context.Context, name string, r io.Reader, _ env.WriteOptions,
) (env.Written, error) {
	if err := s.call("WriteFile"); err != nil {
		return env.Written{}, &fs.PathError{Op: "write", Path: name, Err: err}
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return env.Written{}, &fs.PathError{Op: "write", Path: name, Err: err}
	}
	_, statErr := os.Stat(s.host(name))
	if err := os.MkdirAll(filepath.Dir(s.host(name)), 0o777); err != nil {
		return env.Written{}, err
	}
	if err := os.WriteFile(s.host(name), data, 0o666); err != nil {
		return env.Written{}, err
	}
	return env.Written{Size: int64(len(data)), Created: errors.Is(statErr, fs.ErrNotExist)}, nil
}

func (s *scriptedEnv) Remove(_ context.Context, name string, opts env.RemoveOptions) error {
	if err := s.call("Remove"); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	if opts.Recursive {
		return os.RemoveAll(s.host(name))
	}
	return os.Remove(s.host(name))
}

// CopyIn understands regular files only.
func (s *scriptedEnv) CopyIn(_ context.Context, dir string, archive io.Reader) error {
	if err := s.call("CopyIn"); err != nil {
		return &fs.PathError{Op: "copyin", Path: dir, Err: err}
	}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, archive)
			return err
		}
		if err != nil {
			return &fs.PathError{Op: "copyin", Path: dir, Err: err}
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.host(dir), h.Name), data, 0o666); err != nil {
			return err
		}
	}
}

// CopyOut understands regular files only, and needs their names.
func (s *scriptedEnv) CopyOut(
	_ context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	if err := s.call("CopyOut"); err != nil {
		return nil, &fs.PathError{Op: "copyout", Path: dir, Err: err}
	}
	var b strings.Builder
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(slices.Values(names)) {
		data, err := os.ReadFile(filepath.Join(s.host(dir), name))
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{
			Name: name, Mode: 0o644,
			Size: int64(len(data)),
		}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(b.String())), nil
}

func (s *scriptedEnv) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// put makes a file in the folder of s.
func (s *scriptedEnv) put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.host(name)), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.host(name), []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (s *scriptedEnv) link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, s.host(name)); err != nil {
		t.Fatal(err)
	}
}
