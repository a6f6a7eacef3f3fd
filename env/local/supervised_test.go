//go:build unix

package local_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

// thisProgram returns this test program as a helper.
func thisProgram(tb testing.TB) remote.Helper {
	tb.Helper()
	path, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	args := []string{"-test.run=^TestHelperProcess$", "-test.timeout=0", "--"}
	return remote.Helper{Binary: path, Args: args}
}

// TestHelperProcess is the helper of other tests.
func TestHelperProcess(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("other tests start this in a process")
	}
	syscall.Exit(sandboxd.Run(flag.Args()))
}

// supervise returns a supervised environment, by default in a temporary directory, which is closed
// at the end of the test.
func supervise(tb testing.TB, cfg local.Config) *local.SupervisedEnvironment {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	e, err := local.Supervised(tb.Context(), cfg, thisProgram(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return e
}

// TestPrepared opens an environment with a helper that was read ahead, although its stored file is
// gone by then, and another one with the same Config, which stores it anew.
func TestPrepared(t *testing.T) {
	t.Parallel()
	h := remote.Helper{NoBuild: true, Cache: t.TempDir()}
	open := func(cfg local.Config) {
		t.Helper()
		cfg.Dir = t.TempDir()
		e, err := local.Supervised(t.Context(), cfg, h)
		if missing := (*remote.MissingHelperError)(nil); errors.As(err, &missing) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	stored := func() int {
		t.Helper()
		files, err := os.ReadDir(filepath.Join(h.Cache, "sandboxagent"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	open(local.Config{})
	local.Prepare(h).Close()
	p := local.Prepare(h)
	p.Close()
	p.Close()
	(*local.Prepared)(nil).Close()

	p = local.Prepare(h)
	defer p.Close()
	local.AwaitPrepared(p)
	if err := os.RemoveAll(filepath.Join(h.Cache, "sandboxagent")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(h.Cache, "sandboxagent"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(local.Config{Prepared: p})
	if n := stored(); n != 0 {
		t.Errorf("the environment has stored %d files", n)
	}
	open(local.Config{Prepared: p})
	if n := stored(); n != 1 {
		t.Errorf("the next environment has stored %d files", n)
	}
}

// TestSupervisedContract runs the conformance suite.
func TestSupervisedContract(t *testing.T) {
	t.Parallel()
	envtest.Run(t, envtest.Options{
		New: func(t *testing.T) env.Environment {
			e, err := local.Supervised(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t))
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	})
}
