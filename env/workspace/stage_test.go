package workspace

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cutShort runs Apply until it looks at its context for the n-th time and then ends it as a kill
// does: nothing is taken back. It tells whether Apply got so far.
func cutShort(t *testing.T, c *Changes, n int) bool {
	t.Helper()
	ended := make(chan error, 1)
	ctx := &stepContext{Context: t.Context(), onLook: func(look int) error {
		if look == n {
			ended <- errors.New("killed")
			runtime.Goexit()
		}
		return nil
	}}
	go func() {
		_, err := c.Apply(ctx)
		ended <- err
	}()
	return <-ended != nil
}

// filesOf is listing without folders and what is staged.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := listing(t, dir)
	for name, what := range got {
		if strings.HasPrefix(what, "d") || strings.HasPrefix(name, "/"+stagePrefix) {
			delete(got, name)
		}
	}
	return got
}

// A killed Apply leaves all it needs to be taken back, and the next workspace leaves that out and
// tells of it.
func TestKilledApply(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	for n := 1; ; n++ {
		c, host := prepare(t)
		was := filesOf(t, host)
		if !cutShort(t, c, n) {
			if n < 20 {
				t.Errorf("Apply looked at its context only %d times", n-1)
			}
			return
		}
		stages, err := filepath.Glob(filepath.Join(host, stagePrefix+"*"))
		if err != nil || len(stages) > 1 {
			t.Fatal(stages, err)
		}
		if len(stages) == 0 {
			if diff := cmp.Diff(was, filesOf(t, host)); diff != "" {
				t.Fatalf("killed at look %d, nothing is staged and the host is not as before (-want +got):\n%s",
					n, diff)
			}
			continue
		}
		w, err := Open(t.Context(), host, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if notes := w.Notes(); len(notes) != 1 || !strings.Contains(notes[0], filepath.Base(stages[0])) ||
			!strings.Contains(notes[0], readmeName) {
			t.Errorf("notes %q", notes)
		}
		for _, name := range w.before.Files() {
			if strings.HasPrefix(name, stagePrefix) {
				t.Errorf("%s belongs to the workspace", name)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(sh, filepath.Join(stages[0],
			undoName)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(was, filesOf(t, host)); diff != "" {
			t.Fatalf("killed at look %d, the host is not as before after the undoing (-want +got):\n%s", n,
				diff)
		}
		if _, err := os.Lstat(stages[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the stage is there: %v", err)
		}
	}
}

// What somebody has edited after the kill is kept by the undoing.
func TestUndoKeepsEdits(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	n := 1
	for c, _ := prepare(t); cutShort(t, c, n); n++ {
		c, _ = prepare(t)
	}
	c, host := prepare(t)
	cutShort(t, c, n-1)
	for _, name := range []string{"edit", "new/deep/y"} {
		p := filepath.Join(host, name)
		if err := errors.Join(os.Remove(p), os.WriteFile(p, []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	stages, err := filepath.Glob(filepath.Join(host, stagePrefix+"*"))
	if err != nil || len(stages) != 1 {
		t.Fatal(stages, err)
	}
	out, err := exec.Command(sh, filepath.Join(stages[0], undoName)).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("edit was edited")) {
		t.Errorf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{
		"edit": "mine", "new/deep/y": "mine", "z": "z",
		filepath.Base(stages[0]) + "/old/edit": "edit",
	} {
		if got, err := os.ReadFile(filepath.Join(host, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
}

// Of files that only change, at most one is missing at any time.
func TestApplyLeavesNoGap(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		c, host := prepare(t)
		if !cutShort(t, c, n) {
			return
		}
		missing := 0
		for _, name := range []string{"edit", "link", "z"} {
			if _, err := os.Lstat(filepath.Join(host, name)); err != nil {
				missing++
			}
		}
		if missing > 1 {
			t.Errorf("killed at look %d, %d changed files are missing", n, missing)
		}
	}
}

// A name of a file that goes away in other letter case may be taken, since some file systems see
// one file.
func TestRenameOfLetterCase(t *testing.T) {
	t.Parallel()
	host, there := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "readme"), []byte("r"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Open(t.Context(), host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(there, "README"), []byte("r"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := changesFrom(t, w, there)
	// A second name stands in for a file system that does not tell them apart.
	if err := os.Link(filepath.Join(host, "readme"), filepath.Join(host, "README")); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		t.Skip("there are no second names")
	}
	root, err := os.OpenRoot(host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	tr := &transaction{root: root, before: w.before, after: c.after, buf: make([]byte, 1<<10)}
	if err := tr.check(t.Context(), c.names, nil); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(host, "README")), os.WriteFile(filepath.Join(host,
		"README"), []byte("r"), 0o600)); err != nil {
		t.Fatal(err)
	}
	tr.edits = nil
	if err := tr.check(t.Context(), c.names, nil); err == nil {
		t.Error("another file may be replaced")
	}
}

// A folder of git is found by what it is, since a file system may take other names for its own.
func TestFolderOfGitByIdentity(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	if err := os.Mkdir(filepath.Join(host, "d"), 0o750); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(filepath.Join(host, "d"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	tr := &transaction{root: root, hidden: hidden{"D": fi}}
	if err := tr.parents("d/hooks/x", nil); !errors.Is(err, ErrGit) {
		t.Errorf("%v, want ErrGit", err)
	}
}
