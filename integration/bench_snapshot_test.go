package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

// BenchmarkUnchanged takes a snapshot of a tree of 10,000 files in which nothing has changed since
// the one before, in this process and by the helper, as run does. The native way is git status.
func BenchmarkUnchanged(b *testing.B) {
	dir := b.TempDir()
	text := []byte(strings.Repeat("some text\n", 50))
	for i := range 10_000 {
		name := filepath.Join(dir, fmt.Sprintf("d%d/e%d/f%d.txt", i%20, i%200, i))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	git := func(args ...string) error {
		out, err := exec.CommandContext(b.Context(), "git", append([]string{
			"-C", dir, "-c", "user.name=t", "-c", "user.email=t@e",
		}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "first"}} {
		if err := git(args...); err != nil {
			b.Fatal(err)
		}
	}
	direct, err := local.New(local.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	helped, err := supervised(b.Context(), b, dir)
	if err != nil {
		b.Fatal(err)
	}
	for name, e := range map[string]env.Environment{"direct": direct, "supervised": helped} {
		b.Run(name, func(b *testing.B) {
			defer e.Close() //nolint:errcheck // nothing has run in it
			first, err := snapshot.Take(b.Context(), e, "", snapshot.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer first.Close() //nolint:errcheck // it was only read
			var ours, native bench.Samples
			for b.Loop() {
				ours.Time(b, func() error {
					s, err := snapshot.Take(b.Context(), e, "", snapshot.Options{
						Base: first, TrustTimes: true,
					})
					if err != nil {
						return err
					}
					return s.Close()
				})
				native.Time(b, func() error { return git("status", "--porcelain") })
			}
			bench.Compare(b, ours, map[string]bench.Samples{"git-status": native})
		})
	}
}
