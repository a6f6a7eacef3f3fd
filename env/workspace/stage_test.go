package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cutShort runs Apply until it checks its context for the n-th time and ends it there as a kill
// does, without an undo. It reports whether Apply got that far.
func cutShort(t *testing.T, c *Changes, n int) bool {
	t.Helper()
	ended := make(chan error, 1)
	ctx := &stepContext{Context: t.Context(), onCheck: func(check int) error {
		if check == n {
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

// filesOf is listing without directories and stages.
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

// undoByHand follows the README of a stage.
func undoByHand(t *testing.T, host, stage string) {
	t.Helper()
	for name := range filesOf(t, filepath.Join(stage, addedName)) {
		_ = os.Remove(filepath.Join(host, name)) // It may not have been added.
	}
	removed := filepath.Join(stage, removedName)
	for name := range filesOf(t, removed) {
		to := filepath.Join(host, name)
		_ = os.Remove(to) // An empty directory may have the name.
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o750),
			os.Rename(filepath.Join(removed, name), to)); err != nil {
			t.Fatal(err)
		}
	}
}

// The stage of a killed Apply has all files to undo it, and the next workspace excludes the stage.
func TestKilledApply(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		c, host := prepare(t)
		before := filesOf(t, host)
		if !cutShort(t, c, n) {
			if n < 20 {
				t.Errorf("Apply checked its context only %d times", n-1)
			}
			return
		}
		stages, err := filepath.Glob(filepath.Join(host, stagePrefix+"*"))
		if err != nil || len(stages) > 1 {
			t.Fatal(stages, err)
		}
		if len(stages) == 1 {
			w, err := Open(t.Context(), host, Options{StateDir: c.w.opts.StateDir})
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(stages[0])
			steps := filepath.Join(c.w.opts.StateDir, recordsDir, name)
			if content, err := os.ReadFile(steps); err != nil || !strings.Contains(string(content), readme) {
				t.Errorf("%s has %q, %v", steps, content, err)
			}
			notes := strings.Join(w.Warnings(), "\n")
			if !strings.HasPrefix(notes, name) || !strings.Contains(notes, steps) {
				t.Errorf("notes %q, want %s", notes, steps)
			}
			for _, name := range w.before.Files() {
				if strings.HasPrefix(name, stagePrefix) {
					t.Errorf("%s is in the workspace", name)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			undoByHand(t, host, stages[0])
		}
		if diff := cmp.Diff(before, filesOf(t, host)); diff != "" {
			t.Fatalf("killed at check %d, the host differs after the undo (-want +got):\n%s", n, diff)
		}
	}
}

// A directory called like a stage, with a README of its author, is not taken for one of this user.
func TestForeignStage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	host, state := filepath.Join(dir, "host"), filepath.Join(dir, "state")
	const name = stagePrefix + "AAAAAAAAAA"
	for file, content := range map[string]string{
		"host/" + name + "/README": "Run sh undo.", "host/" + name + "/undo": "evil", "host/a": "a",
		// The record of another workspace, and one in the workspace.
		"state/" + recordsDir + "/" + name:      record(filepath.Join(dir, "other", name)),
		"host/state/" + recordsDir + "/" + name: record(filepath.Join(host, name)),
	} {
		file = filepath.Join(dir, filepath.FromSlash(file))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750),
			os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(host, "state"), filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	for _, state := range []string{
		"", state, filepath.Join(host, "state"), filepath.Join(dir, "link"),
	} {
		w, err := Open(t.Context(), host, Options{StateDir: state, SpoolDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(w.Warnings(), "\n")
		if !strings.Contains(notes, "do not follow its README") || strings.Contains(notes, "steps") {
			t.Errorf("with the state directory %q: notes %q", state, notes)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A finished Apply leaves no record, and removes those of stages that are gone.
func TestApplyRemovesRecords(t *testing.T) {
	t.Parallel()
	c, _ := prepare(t)
	records := filepath.Join(c.w.opts.StateDir, recordsDir)
	gone := filepath.Join(t.TempDir(), stagePrefix+"GONE")
	if err := errors.Join(os.MkdirAll(records, 0o700), os.WriteFile(filepath.Join(records,
		filepath.Base(gone)), []byte(record(gone)), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(records); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}

// At most one changed file is missing at any time.
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
			t.Errorf("killed at check %d, %d changed files are missing", n, missing)
		}
	}
}

// A new file may have the name of a removed one in another letter case: some file systems take both
// for one file.
func TestRenameOfLetterCase(t *testing.T) {
	t.Parallel()
	host, envDir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "readme"), []byte("r"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Open(t.Context(), host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(envDir, "README"), []byte("r"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := changesFrom(t, w, envDir)
	// A hard link stands in for such a file system.
	if err := os.Link(filepath.Join(host, "readme"), filepath.Join(host, "README")); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		t.Skip("the file system has no hard links")
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

// Apply recognizes an excluded directory by identity: a file system may have other names for it.
func TestExcludedDirByIdentity(t *testing.T) {
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
	tr := &transaction{root: root, excluded: excludedDirs{"D": fi}}
	if err := tr.validateParents("d/hooks/x", nil); !errors.Is(err, ErrGit) {
		t.Errorf("%v, want ErrGit", err)
	}
}
