package snapshot_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// patchPaths are the changes between two snapshots in short.
func patchPaths(t *testing.T, before, after *snapshot.Snapshot) []string {
	t.Helper()
	_, stats := writePatch(t, before, after)
	var got []string
	for _, f := range stats.Files {
		got = append(got, string(f.Status)+" "+f.Path)
	}
	return got
}

func TestSnapshotIgnoresWhatGitIgnores(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{
		".gitignore": {Content: "*.log\nbuild/\n/newly\n"}, "src/main.go": {Content: "package main\n"},
		"tracked.log": {Content: "t\n"}, "other.log": {Content: "o\n"}, "build/out": {Content: "b\n"},
		"build/kept": {Content: "k\n"},
		"seen":       {Content: "s\n"}, "included.log": {Content: "i\n"}, "sub/link.log": {Target: "x"},
		"sub/a.log": {Content: "a\n"},
	})
	git(t, dir, nil, "init", "-q")
	git(t, dir, nil, "add", "-f", "tracked.log", "build/kept", "sub/link.log")

	snapshot := func(dir, sub string, base *snapshot.Snapshot) *snapshot.Snapshot {
		s, err := snapshot.Take(t.Context(), treefake.New(t, dir), sub, snapshot.Options{
			Base: base, Include: []string{"included.log", "missing.log", "../escape", ".git/config"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	empty := snapshot(t.TempDir(), "", nil)
	first := snapshot(dir, "", nil)
	want := []string{
		"A .gitignore", "A build/kept", "A included.log", "A seen", "A src/main.go", "A sub/link.log",
		"A tracked.log",
	}
	if diff := cmp.Diff(want, patchPaths(t, empty, first)); diff != "" {
		t.Errorf("in the snapshot (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"A link.log"}, patchPaths(t, empty, snapshot(dir, "sub",
		nil))); diff != "" {
		t.Errorf("in the snapshot of a directory (-want +got):\n%s", diff)
	}

	// Files of the first snapshot belong to the second, though git ignores them now.
	treefake.Write(t, dir, map[string]treefake.File{
		".gitignore": {Content: "*\n"}, "seen": {Content: "changed\n"},
		"build/kept": {Content: "changed\n"}, "build/out": {Content: "x\n"},
		"newly": {Content: "n\n"},
	})
	if err := os.RemoveAll(filepath.Join(dir, "src")); err != nil {
		t.Fatal(err)
	}
	want = []string{"M .gitignore", "M build/kept", "M seen", "D src/main.go"}
	if diff := cmp.Diff(want, patchPaths(t, first, snapshot(dir, "", first))); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestSnapshotInLinkedWorktree(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	repo, linked := filepath.Join(dir, "repo"), filepath.Join(dir, "linked")
	treefake.Write(t, repo, map[string]treefake.File{
		".gitignore": {Content: "*.log\n"},
		"kept.log":   {Content: "k\n"},
	})
	git(t, repo, nil, "init", "-q")
	git(t, repo, nil, "add", "-Af")
	git(t, repo, nil, "commit", "-q", "-m", "m")
	git(t, repo, nil, "worktree", "add", "-q", linked)
	got := patchPaths(t, takeSnapshot(t, t.TempDir(), nil), takeSnapshot(t, linked, nil))
	if diff := cmp.Diff([]string{"A .gitignore", "A kept.log"}, got); diff != "" {
		t.Errorf("in the snapshot (-want +got):\n%s", diff)
	}
}

// A snapshot has the contents that it shares with the base of its base.
func TestSnapshotChain(t *testing.T) {
	dir := t.TempDir()
	step := func(base *snapshot.Snapshot, tree map[string]treefake.File) *snapshot.Snapshot {
		treefake.Write(t, dir, tree)
		return takeSnapshot(t, dir, base)
	}
	big := strings.Repeat("big\n", 1<<18)
	first := step(nil, map[string]treefake.File{
		"a": {Content: "a1\n"}, "b": {Content: "b1\n"},
		"c": {Content: "c1\n"}, "big": {Content: big},
	})
	second := step(first, map[string]treefake.File{"b": {Content: "b2\n"}})
	third := step(second, map[string]treefake.File{
		"a": {Content: "a3\n"}, "b": {Content: "b3\n"},
		"big": {Content: big + "more\n"},
	})
	patch, _ := writePatch(t, second, third)
	for _, want := range []string{"-a1\n+a3\n", "-b2\n+b3\n", " big\n+more\n"} {
		if !bytes.Contains(patch, []byte(want)) {
			t.Errorf("the patch lacks %q:\n%s", want, patch)
		}
	}
}

// A file below a directory that became a symlink is missing, though its name leads to a file.
func TestSnapshotDoesNotFollowLinks(t *testing.T) {
	needGit(t)
	before := map[string]treefake.File{
		"d/f": {Content: "f\n"}, "e/f": {Content: "e\n"},
		".gitignore": {Content: "ignored/\n"},
	}
	after := map[string]treefake.File{
		"d": {Target: "e"}, "e/f": {Content: "e\n"},
		".gitignore": {Content: "ignored/\n"},
	}
	_, stats := checkPatch(t, before, after)
	if len(stats.Files) != 2 {
		t.Errorf("got %+v, want a new link and a deleted file", stats.Files)
	}
}

func TestSnapshotCost(t *testing.T) {
	dir := t.TempDir()
	tree := map[string]treefake.File{}
	for i := range 500 {
		tree[fmt.Sprintf("d%d/f%d", i%7, i)] = treefake.File{Content: fmt.Sprint(i)}
	}
	treefake.Write(t, dir, tree)
	fake := treefake.New(t, dir)
	spool := t.TempDir()
	s, err := snapshot.Take(t.Context(), fake, ".", snapshot.Options{SpoolDir: spool})
	if err != nil {
		t.Fatal(err)
	}
	if n := fake.CopyOuts.Load(); n != 1 {
		t.Errorf("%d streams for 500 files, want 1", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if left, err := os.ReadDir(spool); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, err := snapshot.WritePatch(t.Context(), io.Discard, takeSnapshot(t, t.TempDir(), nil),
		s); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("patch from a closed snapshot: got %v, want fs.ErrClosed", err)
	}
}

// Neither unreadable files nor those that vanish between the walk and the copy fail a snapshot.
func TestSnapshotOfWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	tree := map[string]treefake.File{}
	for i := range 100 {
		tree[fmt.Sprintf("f%02d", i)] = treefake.File{Content: fmt.Sprint("before ", i, "\n")}
	}
	treefake.Write(t, dir, tree)
	before := takeSnapshot(t, dir, nil)

	for name := range tree {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("after "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	closed := []string{"f00", "f41", "f42", "f99"}
	gone := []string{"f01", "f50"}
	fake := treefake.New(t, dir)
	fake.BeforeCopy = func(names []string) error {
		for _, name := range gone {
			_ = os.Remove(filepath.Join(dir, name))
		}
		for _, name := range closed {
			if slices.Contains(names, name) {
				return &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
			}
		}
		return nil
	}
	after, err := snapshot.Take(t.Context(), fake, "", snapshot.Options{Base: before})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = after.Close() }()
	_, stats := writePatch(t, before, after)
	if diff := cmp.Diff(closed, stats.Unreadable); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	count := map[snapshot.ChangeStatus]int{}
	for _, f := range stats.Files {
		count[f.Status]++
		if slices.Contains(closed, f.Path) || (f.Status == snapshot.Deleted) != slices.Contains(gone,
			f.Path) {
			t.Errorf("unexpected %+v", f)
		}
	}
	if want := map[snapshot.ChangeStatus]int{
		snapshot.Modified: 94,
		snapshot.Deleted:  2,
	}; !cmp.Equal(want, count) {
		t.Errorf("got %v, want %v", count, want)
	}
}

// It needs an ordinary user, whom permissions bind.
func TestSnapshotOfClosedFiles(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("root and windows read everything")
	}
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{
		"open":   {Content: "o\n"},
		"closed": {Content: "c\n"}, "dir/in": {Content: "i\n"},
	})
	before := takeSnapshot(t, dir, nil)
	for _, name := range []string{"closed", "dir"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "dir"), 0o700) })
	after := takeSnapshot(t, dir, before)
	patch, stats := writePatch(t, before, after)
	if len(patch) > 0 || !cmp.Equal(stats.Unreadable, []string{"closed", "dir"}) {
		t.Errorf("got %q and %v, want no patch and two unreadable names", patch, stats.Unreadable)
	}
}

func TestSnapshotLimits(t *testing.T) {
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{"a": {Content: "aaaa"}, "b": {Content: "bbbb"}})
	tests := []struct {
		name string
		opts snapshot.Options
		err  error
	}{
		{"enough", snapshot.Options{MaxBytes: 8, MaxEntries: 2}, nil},
		{"none", snapshot.Options{MaxBytes: -1, MaxEntries: -1}, nil},
		{"bytes", snapshot.Options{MaxBytes: 7}, env.ErrTreeTooLarge},
		{"entries", snapshot.Options{MaxEntries: 1}, env.ErrTreeTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.SpoolDir = t.TempDir()
			s, err := snapshot.Take(t.Context(), treefake.New(t, dir), "", tt.opts)
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			if err == nil {
				err = s.Close()
				if err != nil {
					t.Error(err)
				}
			}
			if left, err := os.ReadDir(tt.opts.SpoolDir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func TestSnapshotErrors(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{"a": {Content: "aaaa"}})
	if _, err := snapshot.Take(t.Context(), treefake.New(t, dir), "missing",
		snapshot.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: got %v, want fs.ErrNotExist", err)
	}
	if _, err := snapshot.Take(t.Context(), treefake.New(t, dir), "",
		snapshot.Options{SpoolDir: "/does/not/exist"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing spool directory: got %v, want fs.ErrNotExist", err)
	}
	fake := treefake.New(t, dir)
	fake.BeforeCopy = func([]string) error { return env.ErrGone }
	if _, err := snapshot.Take(t.Context(), fake, "", snapshot.Options{}); !errors.Is(err,
		env.ErrGone) {
		t.Errorf("environment gone: got %v, want ErrGone", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := snapshot.Take(ctx, treefake.New(t, dir), "", snapshot.Options{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("canceled: got %v, want context.Canceled", err)
	}
	s := takeSnapshot(t, dir, nil)
	if _, err := snapshot.WritePatch(ctx, io.Discard, takeSnapshot(t, t.TempDir(), nil),
		s); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled patch: got %v, want context.Canceled", err)
	}
	if _, err := snapshot.WritePatch(t.Context(), fullDisk{}, takeSnapshot(t, t.TempDir(), nil),
		s); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full disk: got %v, want ENOSPC", err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A hostile environment cannot put invalid names into a patch.
func TestSnapshotOfLies(t *testing.T) {
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{"a": {Content: "a\n"}})
	liar := &lyingTree{treefake.New(t, dir)}
	s, err := snapshot.Take(t.Context(), liar, "", snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	got := patchPaths(t, takeSnapshot(t, t.TempDir(), nil), s)
	if diff := cmp.Diff([]string{"A a"}, got); diff != "" {
		t.Errorf("in the patch (-want +got):\n%s", diff)
	}
}

// lyingTree reports and sends files with invalid names.
type lyingTree struct{ *treefake.Tree }

var lies = []string{
	"../up", "/abs", ".git/hooks/pre-commit", "sub/.GIT/config", "a/../b", "", ".",
	"x//y", "nul\x00",
}

func (l *lyingTree) Walk(
	_ context.Context, _ string, _ search.WalkOptions, fn func(search.Entry) error,
) error {
	for _, name := range append([]string{"a"}, lies...) {
		if err := fn(search.Entry{Name: name}); err != nil {
			return err
		}
	}
	return nil
}

func (l *lyingTree) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, l.Tree, opts)
}

func (l *lyingTree) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, l.Tree, opts, fn)
}

func (l *lyingTree) CopyOut(context.Context, string, ...string) (io.ReadCloser, error) {
	entries := map[string]string{"a": "a\n"}
	for _, name := range lies {
		if !strings.Contains(name, "\x00") {
			entries[name] = "evil\n"
		}
	}
	return io.NopCloser(bytes.NewReader(treefake.Tar(entries))), nil
}

func TestSnapshotMemory(t *testing.T) {
	dir := t.TempDir()
	chunk := make([]byte, 1<<20)
	_, _ = rand.Read(chunk)
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	empty := takeSnapshot(t, t.TempDir(), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := takeSnapshot(t, dir, nil)
	stats, err := snapshot.WritePatch(t.Context(), io.Discard, empty, s)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if len(stats.Files) != 1 || !stats.Files[0].Binary {
		t.Errorf("got %+v, want one binary file", stats.Files)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 6<<20 {
		t.Errorf("allocated %d bytes for a file of 12 MiB", grown)
	}
}
