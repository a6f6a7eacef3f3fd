package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

func snapshotOf(t *testing.T, e *treefake.Tree, opts snapshot.Options) *snapshot.Snapshot {
	t.Helper()
	opts.SpoolDir = t.TempDir()
	s, err := snapshot.Take(t.Context(), e, "", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A file that has become too large leaves the rest of the snapshot intact.
func TestSnapshotLeavesOutLargeFiles(t *testing.T) {
	dir := t.TempDir()
	fake := treefake.New(t, dir)
	old := strings.Repeat("o", 3000)
	treefake.Write(t, dir, map[string]treefake.File{
		"a": {Content: "a"}, "grown": {Content: "g"},
		"large": {Content: old},
	})
	before := snapshotOf(t, fake, snapshot.Options{MaxFileBytes: 1000}) // no effect at first
	treefake.Write(t, dir, map[string]treefake.File{
		"a": {Content: "b"}, "core": {}, "grown": {Content: old}, "large": {Content: old[1:]},
		"z": {Content: "z"},
	})
	if err := os.Truncate(filepath.Join(dir, "core"), 20<<30); err != nil {
		t.Skip("this file system has no sparse files: ", err)
	}
	after := snapshotOf(t, fake, snapshot.Options{Base: before, MaxFileBytes: 1000})
	if diff := cmp.Diff([]string{"core", "grown"}, after.Unreadable()); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "large", "z"}, snapshot.Differences(before, after)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	// A file beyond the default MaxBytes is left out as well.
	for name, opts := range map[string]snapshot.Options{
		"sum":     {MaxBytes: 9000, MaxFileBytes: -1},
		"default": {},
	} {
		opts.Base = before
		if got := snapshotOf(t, fake, opts).Unreadable(); !slices.Contains(got, "core") ||
			slices.Contains(got, "z") {
			t.Errorf("%s: left out %q, want core", name, got)
		}
	}
	_, err := snapshot.Take(t.Context(), fake, "", snapshot.Options{})
	if !errors.Is(err, env.ErrTreeTooLarge) || !strings.Contains(err.Error(), `"core"`) {
		t.Errorf("without a base: %v, want ErrTreeTooLarge with the name", err)
	}
}

func TestSnapshotOmit(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{
		"a": {Content: "a"}, "x/tracked": {Content: "t"},
		"x/y/b": {Content: "b"}, "z": {Content: "z"}, ".gitignore": {Content: "x\n"},
	})
	git(t, dir, nil, "init", "-q")
	git(t, dir, nil, "add", "-Af")
	fake := treefake.New(t, dir)
	base := snapshotOf(t, fake, snapshot.Options{})
	omit := func(name string) bool { return name == "x" || name == "z" }
	s := snapshotOf(t, fake, snapshot.Options{Base: base, Omit: omit, Include: []string{"z", "x/y/b"}})
	if diff := cmp.Diff([]string{".gitignore", "a"}, s.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// crowdedTree lists directories whose names start with d only while other calls wait.
type crowdedTree struct {
	*treefake.Tree
	mu      sync.Mutex
	waiting int
	crowd   chan struct{}
	listed  map[string]int
}

func (c *crowdedTree) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	c.mu.Lock()
	c.listed[name]++
	if strings.HasPrefix(name, "d") {
		if c.waiting++; c.waiting == 4 {
			close(c.crowd)
		}
	}
	c.mu.Unlock()
	if strings.HasPrefix(name, "d") {
		select {
		case <-c.crowd:
		case <-time.After(3 * time.Minute):
			return nil, errors.New("directories are listed one after the other")
		}
	}
	return c.Tree.ReadDir(ctx, name)
}

// Ignored directories of tracked files are listed concurrently; those below a missing one are not.
func TestConcurrentLists(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	tree := map[string]treefake.File{".gitignore": {Content: "d*\n"}, "gone/keep": {Content: "k"}}
	for i := range 20 {
		tree[fmt.Sprintf("d%d/f", i)] = treefake.File{Content: "f"}
		tree[fmt.Sprintf("gone/deep/%d/f", i)] = treefake.File{Content: "f"}
	}
	treefake.Write(t, dir, tree)
	git(t, dir, nil, "init", "-q")
	git(t, dir, nil, "add", "-Af")
	if err := os.RemoveAll(filepath.Join(dir, "gone", "deep")); err != nil {
		t.Fatal(err)
	}
	fake := &crowdedTree{
		Tree: treefake.New(t, dir), crowd: make(chan struct{}),
		listed: map[string]int{},
	}
	s, err := snapshot.Take(t.Context(), fake, "", snapshot.Options{SpoolDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if s.Len() != 22 {
		t.Errorf("%d files: %q, want 22", s.Len(), s.Files())
	}
	for name, n := range fake.listed {
		if n > 2 || strings.HasPrefix(name, "gone/") {
			t.Errorf("%s was listed %d times", name, n)
		}
	}
}

// A .git file points to the rules; another .git file or directory is not a repository.
func TestSnapshotInfoExclude(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	repo, linked := filepath.Join(dir, "repo"), filepath.Join(dir, "linked")
	treefake.Write(t, repo, map[string]treefake.File{
		"a":          {Content: "a"},
		".gitignore": {Content: "*.env\n"}, "sub/b": {Content: "b"},
	})
	git(t, repo, nil, "init", "-q")
	git(t, repo, nil, "add", "-A")
	git(t, repo, nil, "commit", "-q", "-m", "m")
	git(t, repo, nil, "worktree", "add", "-q", linked)
	treefake.Write(t, repo, map[string]treefake.File{".git/info/exclude": {Content: "*.secret\n"}})
	treefake.Write(t, linked, map[string]treefake.File{
		"x.secret":     {Content: "s"},
		"sub/y.secret": {Content: "s"},
	})
	if diff := cmp.Diff([]string{".gitignore", "a", "sub/b"}, takeSnapshot(t, linked,
		nil).Files()); diff != "" {
		t.Errorf("in a linked worktree (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b"}, takeSnapshot(t, filepath.Join(linked, "sub"),
		nil).Files()); diff != "" {
		t.Errorf("in a subdirectory (-want +got):\n%s", diff)
	}
	for name, entry := range map[string]map[string]treefake.File{
		"an empty .git": {"sub/.git/": {}}, "another directory": {"sub/.git/x": {Content: "x"}},
		"a file": {"sub/.git": {Content: "nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(filepath.Join(repo, "sub", ".git")); err != nil {
				t.Fatal(err)
			}
			treefake.Write(t, repo, entry)
			treefake.Write(t, repo, map[string]treefake.File{
				"sub/prod.env": {Content: "secret"},
				"sub/x.secret": {Content: "s"},
			})
			for _, dir := range []string{repo, filepath.Join(repo, "sub")} {
				for _, name := range takeSnapshot(t, dir, nil).Files() {
					if strings.HasSuffix(name, ".env") || strings.HasSuffix(name, ".secret") {
						t.Errorf("%s has %s, which git ignores", dir, name)
					}
				}
			}
		})
	}
}

// Files with the same content are paired by base name, in time linear in their number.
func TestPatchOfManyRenames(t *testing.T) {
	needGit(t)
	const n = 3000
	before, after := t.TempDir(), t.TempDir()
	old, now := map[string]treefake.File{}, map[string]treefake.File{}
	for i := range n {
		old[fmt.Sprintf("old/%d/f%d", i%50, i)] = treefake.File{Content: "same\n"}
		now[fmt.Sprintf("new/%d/f%d", i%50, n-1-i)] = treefake.File{Content: "same\n"}
	}
	treefake.Write(t, before, old)
	treefake.Write(t, after, now)
	one, two := takeSnapshot(t, before, nil), takeSnapshot(t, after, nil)
	_, stats := writePatch(t, one, two)
	if len(stats.Files) != n {
		t.Fatalf("%d changes, want %d", len(stats.Files), n)
	}
	for _, f := range stats.Files {
		if f.Status != snapshot.Renamed || filepath.Base(f.Path) != filepath.Base(f.From) {
			t.Fatalf("got %+v, want a rename with the same base name", f)
		}
	}
}
