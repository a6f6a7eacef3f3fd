package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// stepContext calls onCheck at each call of Err, with the number of the call.
type stepContext struct {
	context.Context
	checks  int
	onCheck func(n int) error
}

func (c *stepContext) Err() error {
	c.checks++
	return c.onCheck(c.checks)
}

// listing describes all files below a directory, with modes.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(b)
		case fi.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(p); err != nil {
				return err
			}
		}
		got[strings.TrimPrefix(p, dir)] = fmt.Sprint(fi.Mode(), content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// prepare makes a directory, and changes of all kinds in it.
func prepare(t *testing.T) (*Changes, string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a privilege on windows")
	}
	host, envDir := t.TempDir(), t.TempDir()
	write := func(dir, name, content string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"edit", "gone/deep/x", "becomes/file", "file", "z"} {
		write(host, name, name)
	}
	if err := os.Symlink("edit", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	w, err := Open(t.Context(), host, Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"edit": "EDIT", "becomes": "b", "file/x": "x",
		"new/deep/y": "y", "z": "Z",
	} {
		write(envDir, name, content)
	}
	if err := os.Symlink("z", filepath.Join(envDir, "link")); err != nil {
		t.Fatal(err)
	}
	return changesFrom(t, w, envDir), host
}

// changesFrom returns the changes between a workspace and the directory of an environment. The end
// of the test closes both.
func changesFrom(t *testing.T, w *Workspace, envDir string) *Changes {
	t.Helper()
	e, err := local.New(local.Config{Dir: envDir})
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Changes(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), w.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Wherever it is cancelled, Apply makes all changes or none.
func TestApplyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		c, host := prepare(t)
		was := listing(t, host)
		ctx := &stepContext{Context: t.Context(), onCheck: func(check int) error {
			if check >= n {
				return context.Canceled
			}
			return nil
		}}
		_, err := c.Apply(ctx)
		if err == nil {
			if n < 20 {
				t.Errorf("Apply checked its context only %d times", n-1)
			}
			return
		}
		if diff := cmp.Diff(was, listing(t, host)); diff != "" {
			t.Fatalf("ended at check %d, the host is not as before (-want +got):\n%s", n, diff)
		}
	}
}

// Apply never loses a change that another program makes meanwhile on the host.
func TestApplyWhileTheHostChanges(t *testing.T) {
	for _, name := range []string{
		"edit", "new/deep/y", "becomes/more", "file", "gone/deep/x",
		"gone/deep/more", "link",
	} {
		allowed := name == "gone/deep/more" // It only keeps a directory from being removed.
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := 1
			if testing.Short() {
				step = 3
			}
			failed := false
			for n := 1; ; n += step {
				c, host := prepare(t)
				reached, wrote := false, false
				ctx := &stepContext{Context: t.Context(), onCheck: func(check int) error {
					if check == n {
						reached = true
						p := filepath.Join(host, name)
						_ = os.MkdirAll(filepath.Dir(p), 0o750)
						// Rename as editors do, which does not replace a directory.
						temp := filepath.Join(t.TempDir(), "x")
						wrote = os.WriteFile(temp, []byte("of the host"), 0o600) == nil && os.Rename(temp, p) == nil
					}
					return nil
				}}
				_, err := c.Apply(ctx)
				if !reached {
					if !failed && !allowed {
						t.Error("Apply detected no change of the host")
					}
					return
				}
				failed = failed || err != nil
				content, rerr := os.ReadFile(filepath.Join(host, name))
				if wrote && string(content) != "of the host" {
					t.Fatalf("changed at check %d, the host has %q (%v); Apply: %v", n, content, rerr, err)
				}
			}
		})
	}
}

func TestSafeName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "a/b": true, ".gitignore": true, "x.git": true, ".github/x": true, "inv\xff": true,
		"git~2": true,
		"":      false, ".": false, "..": false, "a/../b": false, "/a": false, "a//b": false, "a/": false,
		".git": false, "a/.GIT/hooks": false, ".git./x": false, ".git /x": false, "git~1": false,
		".g\u200cit/x": false, ".git::$INDEX_ALLOCATION/x": false,
	} {
		if got := safeName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
