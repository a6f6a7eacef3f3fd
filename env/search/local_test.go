package search_test

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// full reports whether the tests may take minutes and prove every combination.
func full() bool { return !testing.Short() }

// needFull skips a test that is not for every run.
func needFull(tb testing.TB, why string) {
	tb.Helper()
	if !full() {
		tb.Skip("left to make test-full: " + why)
	}
}

// newEnv returns a local environment in a directory of its own, which is closed at the end of the
// test.
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

func put(tb testing.TB, e env.FileWriter, name, content string, opts env.WriteOptions) {
	tb.Helper()
	if _, err := e.WriteFile(tb.Context(), name, strings.NewReader(content), opts); err != nil {
		tb.Fatal(err)
	}
}

func link(tb testing.TB, target, name string) {
	tb.Helper()
	if err := os.Symlink(target, name); err != nil {
		tb.Fatal(err)
	}
}

// raceEnabled reports whether the race detector is built in, which slows searches down.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
