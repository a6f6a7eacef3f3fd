package portable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// asOrdinary returns an environment in a new folder whose shells are those of an ordinary user, and that folder.
func (k kind) asOrdinary(t *testing.T) (*portable.Environment, string) {
	t.Helper()
	base, err := os.MkdirTemp("", "ordinary") //nolint:usetesting // Another user cannot get into that of a test.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	temp, dir := filepath.Join(base, "temp"), filepath.Join(base, "dir")
	for _, name := range []string{base, temp, dir} {
		if err := errors.Join(os.MkdirAll(name, 0o755), os.Chmod(name, 0o777)); err != nil { //nolint:gosec // for another user
			t.Fatal(err)
		}
	}
	return k.open(t, func(cfg *portable.Config) {
		cfg.Dir, cfg.Start = dir, k.ordinaryStart(t, base, temp)
	}), dir
}

// TestTreeClosed looks at folders and files that may not be read, among others that may.
func TestTreeClosed(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e, dir := k.asOrdinary(t)
		names := []string{"a", "closed", "listed", "entered", "file", "below/in", "z"}
		for _, name := range names {
			file := filepath.Join(dir, name, "f")
			err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("text"), 0o644))
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, mode := range map[string]fs.FileMode{"closed": 0, "listed": 0o444, "entered": 0o111, "file/f": 0, "below": 0} {
			name = filepath.Join(dir, name)
			if os.Getuid() == 0 {
				if err := os.Chown(name, ordinary, ordinary); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(name, 0o755) }) //nolint:gosec // so that it can be removed
		}
		folders, err := e.ReadDirs(t.Context(), names, []string{"f"})
		if err != nil || len(folders) != len(names) {
			t.Fatalf("%d folders, error %v", len(folders), err)
		}
		for i, f := range folders {
			name, open := names[i], slices.Contains([]string{"a", "file", "z"}, names[i])
			var path *fs.PathError
			switch {
			case !open && (!errors.Is(f.Err, fs.ErrPermission) || !errors.As(f.Err, &path) || path.Path != name || f.Entries != nil || f.Files != nil):
				t.Errorf("%s, which may not be read: %+v", name, f)
			case open && (f.Err != nil || len(f.Entries) != 1 || f.Entries[0].Name() != "f" || len(f.Files) != 1):
				t.Errorf("%s: %+v", name, f)
			case open && name == "file" && (!errors.Is(f.Files[0].Err, fs.ErrPermission) || f.Files[0].Data != nil):
				t.Errorf("a file that may not be read: %+v", f.Files[0])
			case open && name != "file" && (string(f.Files[0].Data) != "text" || f.Files[0].Err != nil):
				t.Errorf("the file of %s: %+v", name, f.Files[0])
			}
			if _, alone := e.ReadDir(t.Context(), name); fmt.Sprint(alone) != fmt.Sprint(f.Err) {
				t.Errorf("%s: error %v, alone %v", name, f.Err, alone)
			}
		}
		files := []string{"a/f", "closed/f", "listed/f", "entered/f", "file/f", "below/in/f", "z/f"}
		got, err := e.AreFiles(t.Context(), files)
		if want := []bool{true, false, false, true, true, false, true}; err != nil || !slices.Equal(got, want) {
			t.Errorf("files %v, want %v, error %v", got, want, err)
		}
	})
}
