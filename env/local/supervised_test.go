//go:build unix

package local_test

import (
	"flag"
	"os"
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
