package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

// BenchmarkUnchanged takes a snapshot of a tree of 10,000 files in which nothing has changed since
// the one before. The native way is git status.
func BenchmarkUnchanged(b *testing.B) {
	needGit(b)
	dir := b.TempDir()
	files := make(map[string]treefake.File)
	for i := range 10_000 {
		files[fmt.Sprintf("d%d/e%d/f%d.txt", i%20, i%200, i)] = treefake.File{
			Content: strings.Repeat("some text\n", 50),
		}
	}
	treefake.Write(b, dir, files)
	git(b, dir, nil, "init", "-q")
	git(b, dir, nil, "add", ".")
	git(b, dir, nil, "commit", "-qm", "first")
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // it has no state
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
		native.Time(b, func() error {
			git(b, dir, nil, "status", "--porcelain")
			return nil
		})
	}
	bench.Compare(b, ours, map[string]bench.Samples{"git-status": native})
}
