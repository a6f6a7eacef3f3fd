package search_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// full reports whether the tests may take minutes and prove every combination.
func full() bool { return !testing.Short() }

// newEnv returns a local environment that is closed at the end of the test, by default in a
// temporary directory.
func newEnv(tb testing.TB, cfg local.Config) *local.Environment {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	e, err := local.New(cfg)
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

// writeFile writes a file below a directory, and creates its parents.
func writeFile(tb testing.TB, dir, name, content string) {
	tb.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o666); err != nil {
		tb.Fatal(err)
	}
}

func symlink(tb testing.TB, target, name string) {
	tb.Helper()
	if err := os.Symlink(target, name); err != nil {
		tb.Fatal(err)
	}
}
