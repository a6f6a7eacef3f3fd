package wrap_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// scriptedEnv is a local environment without optional interfaces whose commands are a Go function.
type scriptedEnv struct {
	env.Environment
	dir  string
	goos string
	// guarantees are those of Info.
	guarantees []env.Guarantee
	run        func(ctx context.Context, cmd env.Command) (env.Result, error)

	mu     sync.Mutex
	ran    int // the number of calls of Exec
	closed bool
}

func newScriptedEnv(t *testing.T) *scriptedEnv {
	t.Helper()
	dir := t.TempDir()
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // Tests that need its error have called it.
	return &scriptedEnv{
		Environment: e, dir: dir, goos: "linux",
		run: func(context.Context, env.Command) (env.Result, error) { return env.Result{}, nil },
	}
}

func (s *scriptedEnv) host(name string) string {
	return filepath.Join(s.dir, filepath.FromSlash(name))
}

func (s *scriptedEnv) Info() env.Info {
	info := s.Environment.Info()
	info.OS = s.goos
	info.Guarantees = s.guarantees
	return info
}

func (s *scriptedEnv) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran++
	if s.closed {
		return s.Environment.Exec(ctx, cmd)
	}
	return s.run(ctx, cmd)
}

func (s *scriptedEnv) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.Environment.Close()
}

// put makes a file in the directory of s.
func (s *scriptedEnv) put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.host(name)), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.host(name), []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// symlink makes a symlink in the directory of s.
func (s *scriptedEnv) symlink(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, s.host(name)); err != nil {
		t.Fatal(err)
	}
}
