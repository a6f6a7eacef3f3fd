package workspace_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// save returns what Save writes.
func save(t *testing.T, c *workspace.Changes) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Save(t.Context(), &b, "note"); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// restore uploads the workspace dir to a new environment, restores changes there, and returns its
// directory.
func restore(t *testing.T, dir string, saved []byte) string {
	t.Helper()
	w := open(t, dir, workspace.Options{})
	e, envDir := upload(t, w)
	c, err := w.Restore(t.Context(), e, bytes.NewReader(saved))
	if err != nil || c.Note != "note" {
		t.Fatalf("%+v, %v", c, err)
	}
	if read, err := workspace.ReadCheckpoint(bytes.NewReader(saved)); err != nil ||
		read.Note != c.Note || len(read.Changes) != len(c.Changes) {
		t.Errorf("read %+v, %v, want %+v", read, err, c)
	}
	return envDir
}

func TestSaveNone(t *testing.T) {
	host := t.TempDir()
	put(t, host, tree{"a": text("a")})
	var b bytes.Buffer
	if err := workspace.SaveChanges(&b, "note", nil, nil); err != nil {
		t.Fatal(err)
	}
	same(t, "restored", read(t, host), read(t, restore(t, host, b.Bytes())))
	if c, err := workspace.ReadCheckpoint(&b); err != nil || len(c.Changes) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRestoreConflicts(t *testing.T) {
	needGit(t)
	before := tree{
		"edited": text("e\n"), "deleted": text("d\n"), "same": text("s\n"), "link": {Target: "same"},
		"dir/x": text("x\n"), "run": text("r\n"), "was": text("w\n"),
	}
	change := func(t *testing.T, dir string) {
		remove(t, dir, "deleted", "link", "dir", "was")
		put(t, dir, tree{
			"edited": text("E\n"), "new": text("n\n"), "link": {Target: "edited"},
			"dir": text("file\n"), "was/now": text("n\n"), "run": text("R\n"),
		})
	}
	tests := map[string]struct {
		host tree
		gone string
		want map[string]error
	}{
		"none":            {},
		"others":          {host: tree{"same": text("S\n"), "other/file": text("o\n")}},
		"the same":        {host: tree{"edited": text("E\n"), "new": text("n\n")}},
		"already removed": {gone: "deleted"},
		"edited": {
			host: tree{"edited": text("m\n")}, want: map[string]error{"edited": env.ErrChanged},
		},
		"removed": {gone: "edited", want: map[string]error{"edited": env.ErrChanged}},
		"appeared": {
			host: tree{"new": text("m\n")}, want: map[string]error{"new": workspace.ErrAppeared},
		},
		"file in a directory that became a file": {
			host: tree{"dir/y": text("y\n")}, want: map[string]error{"dir/y": workspace.ErrAppeared},
		},
		"changed file above a new one": {
			host: tree{"was": text("W\n")}, want: map[string]error{"was": env.ErrChanged},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := t.TempDir()
			put(t, host, before)
			git(t, host, "init", "-q")
			commit(t, host, "first")
			w := open(t, host, workspace.Options{})
			e, envDir := upload(t, w)
			change(t, envDir)
			saved := save(t, changes(t, w, e))
			put(t, host, tt.host)
			if tt.gone != "" {
				remove(t, host, tt.gone)
			}
			w = open(t, host, workspace.Options{})
			e, envDir = upload(t, w)
			_, err := w.Restore(t.Context(), e, bytes.NewReader(saved))
			var conflict *workspace.ConflictError
			if errors.As(err, &conflict) != (tt.want != nil) || tt.want == nil && err != nil {
				t.Fatalf("got %v", err)
			}
			if conflict == nil {
				return
			}
			for _, c := range conflict.Conflicts {
				if want, ok := tt.want[c.Name]; ok && !errors.Is(c.Err, want) {
					t.Errorf("%s: %v, want %v", c.Name, c.Err, want)
				}
			}
			for name := range tt.want {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the error lacks %s: %v", name, err)
				}
			}
			same(t, "after a conflict", read(t, host), read(t, envDir))
		})
	}
}

// TestRestoreDamaged cuts a checkpoint, and gives it names that lead out of the directory.
func TestRestoreDamaged(t *testing.T) {
	host := t.TempDir()
	put(t, host, tree{"a": text("a\n")})
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	put(t, envDir, tree{"a": text("A\n"), "b": text("b\n")})
	saved := save(t, changes(t, w, e))
	whole := bytes.TrimRight(saved, "\x00")
	for _, n := range []int{0, 1, 511, 512, 700, 1024, 1500, 2048, len(whole) - 1} {
		if n >= len(whole) {
			continue
		}
		fresh, _ := upload(t, w)
		if _, err := w.Restore(t.Context(), fresh, bytes.NewReader(saved[:n])); err == nil {
			t.Errorf("a checkpoint of %d of %d bytes was restored", n, len(saved))
		}
	}
	flipped := bytes.Replace(saved, []byte("b\n\x00"), []byte("c\n\x00"), 1)
	fresh, _ := upload(t, w)
	if _, err := w.Restore(t.Context(), fresh, bytes.NewReader(flipped)); err == nil ||
		!strings.Contains(err.Error(), `the content of "b"`) {
		t.Errorf("another content: %v", err)
	}
	for _, name := range []string{
		"/etc/x", "../x", ".", "", "a/../../x", "a//b", ".git/config", "a/.GIT/hooks/x",
	} {
		list := fmt.Sprintf(`{"changes":[{"name":%s,"after":{"mode":420,"sha256":"x"}}]}`,
			strconv.Quote(strconv.Quote(name)))
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		h := &tar.Header{Name: ".sandboxagent-checkpoint.json", Size: int64(len(list)), Mode: 0o600}
		if err := errors.Join(tw.WriteHeader(h), write(tw, list), tw.Close()); err != nil {
			t.Fatal(err)
		}
		fresh, _ := upload(t, w)
		_, err := w.Restore(t.Context(), fresh, bytes.NewReader(b.Bytes()))
		if err == nil || !strings.Contains(err.Error(), "it has the name") {
			t.Errorf("a checkpoint with the name %q: %v", name, err)
		}
	}
}

func write(w io.Writer, content string) error {
	_, err := io.WriteString(w, content)
	return err
}

// TestRestoreDamagedEdit restores the change of a file whose content has another hash.
func TestRestoreDamagedEdit(t *testing.T) {
	host := t.TempDir()
	put(t, host, tree{"a": text("old\n")})
	w := open(t, host, workspace.Options{})
	e, dir := upload(t, w)
	change := workspace.Change{Name: "a", Before: workspace.StateIn(w.Snapshot(), "a")}
	change.After = workspace.State{Mode: change.Before.Mode, SHA256: strings.Repeat("0", 64)}
	content := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(content, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err := workspace.SaveChanges(&b, "", []workspace.Change{change}, func(string) (*os.File, error) {
		return os.Open(content)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Restore(t.Context(), e, bytes.NewReader(b.Bytes()))
	if err == nil || !strings.Contains(err.Error(), "another hash") {
		t.Errorf("restored: %v", err)
	}
	same(t, "after it", tree{"a": text("old\n")}, read(t, dir))
}
