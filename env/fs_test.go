package env_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
)

func TestFSConforms(t *testing.T) {
	t.Parallel()
	e := treefake.New(t, t.TempDir())
	e.OS = runtime.GOOS
	files := []string{"a.txt", "empty", "dir/b.txt", "dir/deep/er/c.txt", "-dash", "white space/ü.txt"}
	for _, name := range files {
		treefake.Write(t, e.Dir, map[string]treefake.File{name: {Content: "content of " + name}})
	}
	treefake.Write(t, e.Dir, map[string]treefake.File{"empty": {Content: ""}})
	if runtime.GOOS != "windows" {
		for link, target := range map[string]string{"link-to-file": "a.txt", "link-to-dir": "dir"} {
			if err := os.Symlink(target, filepath.Join(e.Dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		files = append(files, "link-to-file", "link-to-dir")
	}
	if err := os.Mkdir(filepath.Join(e.Dir, "empty-dir"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(env.FS(t.Context(), e), files...); err != nil {
		t.Error(err)
	}
}

// unreached is an environment that fails the test when a name reaches it.
type unreached struct {
	t  *testing.T
	os string
}

func (u unreached) Info() env.Info { return env.Info{OS: u.os} }

func (u unreached) Open(_ context.Context, name string) (fs.File, error) {
	return nil,
		u.fail(name)
}

func (u unreached) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	return nil, u.fail(name)
}

func (u unreached) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	return nil, u.fail(name)
}

func (u unreached) ReadLink(_ context.Context, name string) (string, error) {
	return "", u.fail(name)
}

func (u unreached) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	return nil, u.fail(name)
}

func (u unreached) fail(name string) error {
	u.t.Errorf("the invalid name %q reaches the environment", name)
	return fs.ErrNotExist
}

func TestFSInvalidNames(t *testing.T) {
	t.Parallel()
	unix, windows := unreached{t, "linux"}, unreached{t, "windows"}
	tests := []struct {
		name string
		e    unreached
	}{
		{"", unix},
		{"/", unix},
		{"/etc/passwd", unix},
		{"..", unix},
		{"../x", unix},
		{"a/../b", unix},
		{"./a", unix},
		{"a//b", unix},
		{"a/", unix},
		{"\xff", unix},
		{`a\b`, windows},
		{`..\x`, windows},
		{"c:x", windows},
		{"a/b:stream", windows},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fsys := env.FS(t.Context(), tt.e)
			_, openErr := fsys.Open(tt.name)
			_, statErr := fs.Stat(fsys, tt.name)
			_, dirErr := fs.ReadDir(fsys, tt.name)
			_, readErr := fs.ReadFile(fsys, tt.name)
			for call, err := range map[string]error{
				"Open": openErr, "Stat": statErr, "ReadDir": dirErr,
				"ReadFile": readErr,
			} {
				var pe *fs.PathError
				if !errors.Is(err, fs.ErrInvalid) || !errors.As(err, &pe) || pe.Path != tt.name {
					t.Errorf("%s(%q) error is %v, want a *fs.PathError that wraps %v", call, tt.name, err,
						fs.ErrInvalid)
				}
			}
		})
	}
	t.Cleanup(func() {
	})
}

func TestFSErrors(t *testing.T) {
	t.Parallel()
	e := treefake.New(t, t.TempDir())
	treefake.Write(t, e.Dir, map[string]treefake.File{"file": {Content: "x"}})
	fsys := env.FS(t.Context(), e)
	if _, err := fsys.Open("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a missing file gives %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := fs.ReadFile(fsys, "."); !errors.Is(err, env.ErrIsDir) {
		t.Errorf("ReadFile of a folder gives %v, want %v", err, env.ErrIsDir)
	}
	d, err := fsys.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, env.ErrIsDir) {
		t.Errorf("Read of a folder gives %v, want %v", err, env.ErrIsDir)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, statErr := d.Stat()
	_, readErr := d.Read(nil)
	_, dirErr := d.(fs.ReadDirFile).ReadDir(-1)
	for call, err := range map[string]error{
		"Stat": statErr, "Read": readErr, "ReadDir": dirErr,
		"Close": d.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a closed folder gives %v, want %v", call, err, fs.ErrClosed)
		}
	}
}

func TestFSPages(t *testing.T) {
	t.Parallel()
	e := treefake.New(t, t.TempDir())
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		treefake.Write(t, e.Dir, map[string]treefake.File{name: {Content: ""}})
	}
	f, err := env.FS(t.Context(), e).Open(".")
	if err != nil {
		t.Fatal(err)
	}
	d := f.(fs.ReadDirFile)
	var got [][]string
	for _, n := range []int{2, 1, 10} {
		page, err := d.ReadDir(n)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range page {
			names = append(names, entry.Name())
		}
		got = append(got, names)
		_ = append(page, nil) // A caller's append may not reach the next page.
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {"c"}, {"d", "e"}}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if page, err := d.ReadDir(1); len(page) != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadDir(1) at the end gives %v, %v, want none, %v", page, err, io.EOF)
	}
	if page, err := d.ReadDir(0); len(page) != 0 || err != nil {
		t.Errorf("ReadDir(0) at the end gives %v, %v, want none, nil", page, err)
	}
}

// ctxReader fails as an environment does whose context has ended.
type ctxReader struct{ env.FileReader }

func (ctxReader) Open(ctx context.Context, name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: context.Cause(ctx)}
}

func TestFSUsesContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := env.FS(ctx, ctxReader{}).Open("x"); !errors.Is(err, cause) {
		t.Errorf("Open gives %v, want %v", err, cause)
	}
}
