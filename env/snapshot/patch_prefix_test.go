package snapshot_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// The patch of a directory inside a repository applies at the top of the repository and in the
// directory alike.
func TestPatchOfSubdirectory(t *testing.T) {
	needGit(t)
	top := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		name = filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.txt", "outside\n")
	write("sub/deep/old.txt", "old content of some length\n")
	write("sub/deep/b.txt", "one\ntwo\n")
	git(t, top, nil, "init", "-q")
	git(t, top, nil, "add", ".")
	git(t, top, nil, "commit", "-qm", "x")
	subdir := filepath.Join(top, "sub", "deep")
	before := takeSnapshot(t, subdir, nil)
	write("sub/deep/b.txt", "one\n2\n")
	write("sub/deep/new/c.txt", "new\n")
	if err := os.Rename(filepath.Join(subdir, "old.txt"), filepath.Join(subdir,
		"moved.txt")); err != nil {
		t.Fatal(err)
	}
	after := takeSnapshot(t, subdir, before)
	var patch bytes.Buffer
	stats, err := snapshot.WritePatch(t.Context(), &patch, before, after)
	if err != nil {
		t.Fatal(err)
	}
	if len(stats.Files) != 3 || stats.Files[0].Path != "b.txt" {
		t.Errorf("%+v", stats.Files)
	}
	git(t, top, nil, "add", ".")
	want := git(t, top, nil, "write-tree")
	for _, where := range []string{top, subdir} {
		git(t, top, nil, "reset", "-q", "--hard")
		git(t, top, patch.Bytes(), "-C", where, "apply", "--index", "-")
		if got := git(t, top, nil, "write-tree"); got != want {
			t.Errorf("applied in %s, the patch gives another tree:\n%s", where, patch.String())
		}
	}
}
