package snapshot_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// Pack writes the recorded tree, not its later state.
func TestSnapshotPack(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	before := map[string]treefake.File{
		"a": {Content: "a\n"}, "run": {Content: "#!\n", Executable: true}, "link": {Target: "nowhere"},
		"d/big":  {Content: strings.Repeat("big\n", 1<<18)},
		"empty/": {}, "inv\xffalid": {Content: "x"},
	}
	treefake.Write(t, dir, before)
	stamp := time.Unix(1_600_000_000, 123_456_000)
	if err := os.Chtimes(filepath.Join(dir, "a"), stamp, stamp); err != nil {
		t.Fatal(err)
	}
	want := treefake.Read(t, dir)
	first := takeSnapshot(t, dir, nil)
	second := takeSnapshot(t, dir, first) // Its contents are in the first.
	treefake.Write(t, dir, map[string]treefake.File{
		"a":   {Content: "changed\n"},
		"new": {Content: "n"},
	})

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := second.Pack(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	if err := treefake.New(t, there).CopyIn(t.Context(), ".", &archive); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, treefake.Read(t, there)); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
	if fi, err := os.Stat(filepath.Join(there, "empty")); err != nil || !fi.IsDir() {
		t.Errorf("the empty directory is missing: %v", err)
	}
	if fi, err := os.Stat(filepath.Join(there, "a")); err != nil || !fi.ModTime().Equal(stamp) {
		t.Errorf("modified at %v (%v), want %v", fi.ModTime(), err, stamp)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Pack(ctx, tar.NewWriter(io.Discard)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	broken := errors.New("broken")
	if err := second.Pack(t.Context(), tar.NewWriter(brokenWriter{broken})); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestSnapshotFiles(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{
		"a": {Content: "a"}, "b": {Content: "b", Executable: true}, "l": {Target: "a"},
		"same": {Content: "s"}, "gone": {Content: "g"},
	})
	before := takeSnapshot(t, dir, nil)
	if diff := cmp.Diff([]string{"a", "b", "gone", "l", "same"}, before.Files()); diff != "" ||
		before.Len() != 5 {
		t.Errorf("%d files (-want +got):\n%s", before.Len(), diff)
	}
	for name, want := range map[string]snapshot.File{
		"a": {Mode: 0o644, Size: 1, SHA256: sha256.Sum256([]byte("a"))},
		"b": {Mode: 0o755, Size: 1, SHA256: sha256.Sum256([]byte("b"))},
		"l": {Mode: fs.ModeSymlink | 0o777, Size: 1, SHA256: sha256.Sum256([]byte("a"))},
	} {
		if got, ok := before.Lookup(name); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, want)
		}
	}
	if _, ok := before.Lookup("missing"); ok {
		t.Error("a missing file was found")
	}
	if _, err := before.Content("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want fs.ErrNotExist", err)
	}
	for _, name := range []string{"a", "b", "l", "gone"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	treefake.Write(t, dir, map[string]treefake.File{
		"a": {Content: "A"}, "b": {Content: "b"},
		"l": {Content: "a"}, "new/x": {Content: "x"},
	})
	now := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "same"), now, now); err != nil {
		t.Fatal(err)
	}
	after := takeSnapshot(t, dir, before)
	if diff := cmp.Diff([]string{"a", "b", "gone", "l", "new/x"}, snapshot.Differences(before,
		after)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	content, err := after.Content("a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(content); err != nil || string(got) != "A" {
		t.Errorf("%q %v", got, err)
	}
}

func TestSnapshotExclude(t *testing.T) {
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{
		"a": {Content: "a"}, "x": {Content: "x"},
		"d/x": {Content: "x"}, "d/kept": {Content: "k"}, "e/y": {Content: "y"},
	})
	take := func(opts snapshot.Options) (*snapshot.Snapshot, error) {
		opts.SpoolDir = t.TempDir()
		opts.Exclude = func(name string, isDir bool) bool {
			return strings.HasSuffix(name, "x") ||
				name == "d" && isDir
		}
		s, err := snapshot.Take(t.Context(), treefake.New(t, dir), "", opts)
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
		}
		return s, err
	}
	s, err := take(snapshot.Options{Include: []string{"d/kept"}, MaxEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "d/kept", "e/y"}, s.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, err := take(snapshot.Options{MaxEntries: 2}); !errors.Is(err, env.ErrTreeTooLarge) {
		t.Errorf("two files and a directory: %v, want ErrTreeTooLarge", err)
	}
}
