package search_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// fakeReader is an env.FileReader of a temporary directory, which records calls and injects errors.
// It has no Info; fakeEnvironment has.
type fakeReader struct {
	t    *testing.T
	root string

	mu    sync.Mutex
	deny  map[string]error // the errors of Open and ReadDir by name
	calls []string         // "open a", "stat a", "readdir a"
	// after, if set, is called with each entry of calls.
	after func(call string)
}

// fakeEnvironment is a fakeReader with Info.
type fakeEnvironment struct{ *fakeReader }

func (p fakeEnvironment) Info() env.Info {
	return env.Info{OS: runtime.GOOS, WorkDir: filepath.ToSlash(p.root)}
}

// newFakeReader makes files: a name with a trailing slash is an empty directory, content that
// starts with "-> " a symlink. All get the same modification time.
func newFakeReader(t *testing.T, files map[string]string) *fakeReader {
	t.Helper()
	d := &fakeReader{t: t, root: t.TempDir(), deny: map[string]error{}}
	for name, content := range files {
		full := filepath.Join(d.root, filepath.FromSlash(name))
		dir := filepath.Dir(full)
		if strings.HasSuffix(name, "/") {
			dir = full
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if dir == full {
			continue
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(filepath.FromSlash(target), full); err != nil {
				t.Skip("this system has no symlinks: ", err)
			}
			continue
		}
		if err := os.WriteFile(full, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		d.touch(name, 0)
	}
	return d
}

// touch sets the modification time of a file, in seconds after a fixed time.
func (d *fakeReader) touch(name string, seconds int) {
	d.t.Helper()
	at := time.Date(2020, 1, 1, 0, 0, seconds, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(d.root, filepath.FromSlash(name)), at, at); err != nil {
		d.t.Fatal(err)
	}
}

func (d *fakeReader) record(ctx context.Context, op, name string) (string, error) {
	call := op + " " + name
	d.mu.Lock()
	d.calls = append(d.calls, call)
	err := d.deny[name]
	d.mu.Unlock()
	if d.after != nil {
		d.after(call)
	}
	if op == "stat" {
		err = nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if name == "" || strings.Contains(name, "\x00") {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	if path.IsAbs(name) || filepath.IsAbs(name) {
		return filepath.FromSlash(name), nil
	}
	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

func (d *fakeReader) Open(ctx context.Context, name string) (fs.File, error) {
	full, err := d.record(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(full)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: name, Err: env.ErrIsDir}
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: name, Err: env.ErrNotRegular}
	}
	return os.Open(full)
}

func (d *fakeReader) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	full, err := d.record(ctx, "stat", name)
	if err != nil {
		return nil, err
	}
	return os.Stat(full)
}

func (d *fakeReader) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	full, err := d.record(ctx, "lstat", name)
	if err != nil {
		return nil, err
	}
	return os.Lstat(full)
}

func (d *fakeReader) ReadLink(ctx context.Context, name string) (string, error) {
	full, err := d.record(ctx, "readlink", name)
	if err != nil {
		return "", err
	}
	return os.Readlink(full)
}

func (d *fakeReader) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	full, err := d.record(ctx, "readdir", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(full)
	if err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: env.ErrNotDir}
	}
	return os.ReadDir(full)
}

// walkNames collects the names that Walk reports, with a slash after those of directories, and
// errors.
func walkNames(t *testing.T, e env.FileReader, root string, opts search.WalkOptions) []string {
	t.Helper()
	names := []string{}
	err := search.Walk(t.Context(), e, root, opts, func(entry search.Entry) error {
		name := entry.Name
		if entry.Mode.IsDir() {
			name += "/"
		}
		if entry.Err != nil {
			name += ": " + errors.Unwrap(entry.Err).Error()
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// globNames collects the names that Glob returns.
func globNames(t *testing.T, e env.FileReader, opts search.GlobOptions) []string {
	t.Helper()
	entries, err := search.Glob(t.Context(), e, opts)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name)
	}
	return names
}

// grepLines collects the matches of Grep as name:line:text, with … after a cut text.
func grepLines(
	t *testing.T, e env.FileReader, opts search.GrepOptions,
) ([]string, search.GrepStats) {
	t.Helper()
	lines := []string{}
	stats, err := search.Grep(t.Context(), e, opts, func(m search.GrepMatch) error {
		line := fmt.Sprintf("%s:%d:%s", m.Name, m.Line, m.Text)
		if m.LineCut {
			line += "…"
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, stats
}
