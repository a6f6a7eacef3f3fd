package tartree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

var stamp = time.Unix(1_600_000_000, 123_456_789)

// node is the compared part of a file.
type node struct {
	Mode    fs.FileMode
	Content string // of a file, or the target of a link
	Time    time.Time
}

// tree returns all files below dir.
func tree(t *testing.T, dir string) map[string]node {
	t.Helper()
	got := map[string]node{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		n := node{Mode: fi.Mode(), Time: fi.ModTime().UTC()}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			n.Content, err = os.Readlink(p)
			n.Mode, n.Time = fs.ModeSymlink, time.Time{}
		case fi.Mode().IsRegular():
			var b []byte
			b, err = os.ReadFile(p)
			n.Content = string(b)
		}
		got[filepath.ToSlash(rel)] = n
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, stamp, stamp); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		if runtime.GOOS == "windows" {
			t.Skip("symbolic links need a privilege on windows")
		}
		t.Fatal(err)
	}
}

// writable lets t.TempDir remove read-only directories.
func writable(t *testing.T, dir string) {
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
	})
}

func TestRoundTrip(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	writable(t, src)
	writable(t, dst)
	long := strings.Repeat("long-name-", 20)
	write(t, filepath.Join(src, "a.txt"), "hello\r\n\x00\xff", 0o644)
	write(t, filepath.Join(src, "run.sh"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(src, "secret"), "s", 0o600)
	write(t, filepath.Join(src, "empty"), "", 0o640)
	write(t, filepath.Join(src, "big"), strings.Repeat("0123456789", 100_000), 0o644)
	write(t, filepath.Join(src, long, long, "deep é\n"), "deep", 0o644)
	write(t, filepath.Join(src, "sealed", "inner"), "i", 0o444)
	if err := os.MkdirAll(filepath.Join(src, "hollow", "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "a.txt", filepath.Join(src, "inside"))
	link(t, "/etc/passwd", filepath.Join(src, "outside"))
	link(t, "nowhere", filepath.Join(src, "dangling"))
	for _, dir := range []string{"sealed", "hollow/in", "hollow"} {
		if err := os.Chtimes(filepath.Join(src, dir), stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(src, "sealed"), 0o555); err != nil {
		t.Fatal(err)
	}

	var archive, again bytes.Buffer
	if err := Pack(t.Context(), &archive, openRoot(t, src), PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Pack(t.Context(), &again, openRoot(t, src), PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("the same tree was packed into different bytes")
	}
	// The second Unpack replaces files and symlinks, and fills read-only directories.
	for range 2 {
		if err := Unpack(t.Context(), openRoot(t, dst), bytes.NewReader(archive.Bytes()),
			UnpackOptions{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
			t.Errorf("tree (-packed +unpacked):\n%s", diff)
		}
	}
}

func TestPackNames(t *testing.T) {
	src := t.TempDir()
	for _, name := range []string{"a/x", "a/y/z", "a-b/q", "a.txt", "b"} {
		write(t, filepath.Join(src, filepath.FromSlash(name)), name, 0o644)
	}
	tests := []struct {
		name  string
		names []string
		want  []string
		err   error
	}{
		{"all", nil, []string{"a/", "a/x", "a/y/", "a/y/z", "a-b/", "a-b/q", "a.txt", "b"}, nil},
		{
			"dot",
			[]string{"b", "."},
			[]string{"a/", "a/x", "a/y/", "a/y/z", "a-b/", "a-b/q", "a.txt", "b"},
			nil,
		},
		{"overlapping", []string{"a/y/z", "b", "./a", "a/x", "b"}, []string{
			"a/", "a/x", "a/y/", "a/y/z",
			"b",
		}, nil},
		{"order", []string{"a.txt", "a-b/q", "a/x"}, []string{"a/x", "a-b/q", "a.txt"}, nil},
		{"missing", []string{"a", "nope"}, nil, fs.ErrNotExist},
		{"parent", []string{"../x"}, nil, env.ErrEscapes},
		{"inner parent", []string{"a/../b"}, nil, env.ErrEscapes},
		{"absolute", []string{"/etc"}, nil, env.ErrEscapes},
		{"empty", []string{""}, nil, ErrInvalidName},
		{"NUL", []string{"a\x00"}, nil, ErrInvalidName},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var buf bytes.Buffer
			err := Pack(t.Context(), &buf, openRoot(t, src), PackOptions{Names: tt.names})
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if tt.err != nil {
				return
			}
			if diff := cmp.Diff(tt.want, entries(t, &buf)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPackNameThroughLinkThatLeaves(t *testing.T) {
	src, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "s", 0o644)
	link(t, outside, filepath.Join(src, "out"))
	var buf bytes.Buffer
	err := Pack(t.Context(), &buf, openRoot(t, src), PackOptions{Names: []string{"out/secret"}})
	if !errors.Is(err, env.ErrEscapes) {
		t.Errorf("got %v, want env.ErrEscapes", err)
	}
}

func entries(t *testing.T, r io.Reader) []string {
	t.Helper()
	var names []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// changeWriter calls change once, when the first bytes arrive.
type changeWriter struct {
	io.Writer
	change func()
}

func (w *changeWriter) Write(p []byte) (int, error) {
	if w.change != nil {
		w.change()
		w.change = nil
	}
	return w.Writer.Write(p)
}

func TestPackFileThatChanges(t *testing.T) {
	const size = 1 << 20
	tests := []struct {
		name   string
		change func(name string) error
		err    error
	}{
		{"grows", func(name string) error { return os.Truncate(name, 2*size) }, nil},
		{"shrinks", func(name string) error { return os.Truncate(name, size/2) }, ErrShrunk},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := t.TempDir()
			name := filepath.Join(src, "log")
			write(t, name, strings.Repeat("x", size), 0o644)
			var buf bytes.Buffer
			w := &changeWriter{&buf, func() {
				if err := tt.change(name); err != nil {
					t.Error(err)
				}
			}}
			if err := Pack(t.Context(), w, openRoot(t, src), PackOptions{}); !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			dst := t.TempDir()
			err := Unpack(t.Context(), openRoot(t, dst), &buf, UnpackOptions{})
			if tt.err != nil {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the broken archive was unpacked with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := len(tree(t, dst)["log"].Content); got != size {
				t.Errorf("got %d bytes, want %d", got, size)
			}
		})
	}
}

// A symlink whose target may not be followed takes the place of a file between the two looks at it.
func TestPackFileThatIsReplaced(t *testing.T) {
	src := t.TempDir()
	name := filepath.Join(src, "file")
	write(t, name, "x", 0o644)
	root := openRoot(t, src)
	before, err := root.Lstat("file")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	link(t, "file", name)
	err = newPacker(t.Context(), io.Discard).entry(root, "file", before, "dir/file")
	var pe *fs.PathError
	if !errors.Is(err, ErrReplaced) || !errors.As(err, &pe) || pe.Path != "dir/file" {
		t.Errorf("got %v, want %v of dir/file", err, ErrReplaced)
	}
}

func TestCanceled(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "a"), "a", 0o644)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var buf bytes.Buffer
	if err := Pack(ctx, &buf, openRoot(t, src), PackOptions{}); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	for name, err := range map[string]error{
		"pack":   Pack(ctx, io.Discard, openRoot(t, src), PackOptions{}),
		"unpack": Unpack(ctx, openRoot(t, t.TempDir()), &buf, UnpackOptions{}),
	} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want context.Canceled and its cause", name, err)
		}
	}
}

func TestPackFile(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "real"), "content", 0o640)
	f, err := os.Open(filepath.Join(src, "real"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var buf bytes.Buffer
	if err := PackFile(t.Context(), &buf, f, "name"); err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	if err := Unpack(t.Context(), openRoot(t, dst), &buf, UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]node{"name": {
		Mode: tree(t, src)["real"].Mode, Content: "content",
		Time: stamp.UTC(),
	}}
	if diff := cmp.Diff(want, tree(t, dst)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}
