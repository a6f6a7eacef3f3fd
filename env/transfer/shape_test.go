package transfer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// entry is an entry of an archive: a directory, whose name ends in a slash, a symlink, a hard link
// or a file.
type entry struct{ name, symlink, hardLink, content string }

// archive returns a tar stream of entries in the given order.
func archive(t *testing.T, entries []entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o755, Size: int64(len(e.content))}
		switch {
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		case e.symlink != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.symlink
		case e.hardLink != "":
			h.Typeflag, h.Linkname = tar.TypeLink, e.hardLink
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// shaped returns the directories below dir that some git takes for a git directory.
func shaped(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		entries, err := os.ReadDir(name)
		has := map[string]bool{}
		for _, e := range entries {
			plain := strings.ToLower(strings.Trim(strings.ReplaceAll(e.Name(), "\u200c", ""), ". "))
			plain, _, _ = strings.Cut(plain, ":")
			has[plain] = has[plain] || plain != "head" || !e.IsDir()
		}
		if has["head"] && (has["commondir"] || has["objects"] && has["refs"]) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// watcher calls a function before each block of a stream.
type watcher struct {
	io.Reader
	check func()
}

func (w watcher) Read(p []byte) (int, error) {
	w.check()
	return w.Reader.Read(p[:min(len(p), 512)])
}

// permutations returns the entries in all orders, each directory before its files.
func permutations(entries []entry) (all [][]entry) {
	if len(entries) < 2 {
		return [][]entry{entries}
	}
	for i, first := range entries {
		rest := slices.Delete(slices.Clone(entries), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]entry{first}, p...))
		}
	}
	return all
}

// No archive makes a directory of the host a git directory, at no time and in no order of its
// entries.
func TestDownloadMakesNoGitDir(t *testing.T) {
	needSymlinks(t)
	const config = "[core]\n\tfsmonitor = evil\n"
	head := "ref: refs/heads/main\n"
	for _, tt := range []struct {
		name    string
		host    map[string]treefake.File
		entries []entry
		// refused are the reported names, in some order of entries.
		refused []string
		// kept are names on the host in the end.
		kept []string
	}{
		{"plain", nil, []entry{
			{name: "d/HEAD", content: head},
			{name: "d/objects/"},
			{name: "d/refs/"},
			{name: "d/config", content: config},
		}, []string{"d/HEAD"}, []string{"d/objects", "d/refs", "d/config"}},
		{"the destination", nil, []entry{
			{name: "HEAD", content: head}, {name: "objects/a", content: "x"}, {name: "refs/"},
		}, []string{"HEAD"}, []string{"objects/a"}},
		{"common directory elsewhere", nil, []entry{
			{name: "d/HEAD", content: head}, {name: "d/commondir", content: "../x"},
		}, []string{"d/HEAD"}, []string{"d/commondir"}},
		{"letter case", nil, []entry{
			{name: "d/head", content: head}, {name: "d/OBJECTS/"}, {name: "d/Refs/"},
		}, []string{"d/head"}, []string{"d/OBJECTS"}},
		{"other file systems", nil, []entry{
			{name: "d/HE\u200cAD", content: head},
			{name: "d/objects. /"},
			{name: "d/refs::$INDEX_ALLOCATION/"},
			{name: "d/HEAD.", content: head},
		}, []string{"d/HE\u200cAD", "d/HEAD."}, nil},
		{"symlinks", map[string]treefake.File{"x/": {}}, []entry{
			{name: "d/HEAD", symlink: "refs/heads/main"},
			{name: "d/objects", symlink: "../x"},
			{name: "d/refs", symlink: "../x"},
		}, []string{"d/HEAD"}, nil},
		{"two HEADs", nil, []entry{
			{name: "d/HEAD", content: "x"},
			{name: "d/HEAD", symlink: "refs/heads/main"},
			{name: "d/objects/"},
			{name: "d/refs/"},
		}, []string{"d/HEAD"}, nil},
		{"HEAD is a directory", nil, []entry{
			{name: "d/HEAD/x", content: "x"}, {name: "d/objects/"}, {name: "d/refs/"},
		}, nil, []string{"d/HEAD/x", "d/objects", "d/refs"}},
		{"HEAD alone", nil, []entry{
			{name: "d/HEAD", content: "x"},
			{name: "d/objects/"},
			{name: "d/refs.txt", content: "x"},
			{name: "e/head", symlink: "../d/HEAD"},
		}, nil, []string{"d/HEAD", "e/head", "d/refs.txt"}},
		{
			"parts of the host",
			map[string]treefake.File{"d/objects/": {}, "d/refs/": {}},
			[]entry{{name: "d/HEAD", content: head}, {name: "d/config", content: config}},
			[]string{"d/HEAD"},
			[]string{"d/config"},
		},
		{
			"HEAD of the host",
			map[string]treefake.File{"d/HEAD": {Content: "x"}},
			[]entry{
				{name: "d/refs/heads/", content: ""},
				{name: "d/objects/a", content: "x"},
				{name: "d/HEAD", content: head},
				{name: "d/commondir", content: "x"},
			},
			[]string{"d/commondir", "d/objects", "d/refs"},
			[]string{"d/HEAD"},
		},
		{
			"head of the host",
			map[string]treefake.File{"head": {Content: "x"}, "objects/": {}},
			[]entry{{name: "REFS", symlink: "objects"}, {name: "a", content: "x"}},
			[]string{"REFS"},
			[]string{"a", "head"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, order := range permutations(tt.entries) {
				dst := t.TempDir()
				treefake.Write(t, dst, tt.host)
				stream := watcher{bytes.NewReader(archive(t, order)), func() {
					if found := shaped(t, dst); len(found) > 0 {
						t.Fatalf("meanwhile %q are git directories after %q", found, order)
					}
				}}
				fake := copierFuncs{out: func(context.Context, string, ...string) (io.ReadCloser, error) {
					return io.NopCloser(stream), nil
				}}
				var reported []string
				err := transfer.Download(t.Context(), fake, "", nil, dst, transfer.DownloadOptions{
					SkipRepositories: func(name string) { reported = append(reported, name) },
				})
				if err != nil {
					t.Fatalf("%q: %v", order, err)
				}
				stream.check()
				for _, name := range reported {
					if !slices.Contains(tt.refused, name) {
						t.Errorf("%q was reported, want some of %q", name, tt.refused)
					}
				}
				if (len(reported) > 0) != (len(tt.refused) > 0) {
					t.Errorf("%q were reported after %q, want some of %q", reported, order, tt.refused)
				}
				for _, name := range tt.kept {
					if _, err := os.Lstat(filepath.Join(dst, name)); err != nil {
						t.Errorf("%v after %q", err, order)
					}
				}
				noHeld(t, dst)
			}
		})
	}
}

// noHeld checks that no temporary file is left.
func noHeld(t *testing.T, dst string) {
	t.Helper()
	err := filepath.WalkDir(dst, func(name string, _ fs.DirEntry, err error) error {
		if strings.Contains(filepath.Base(name), ".sandboxagent-tmp-") {
			t.Errorf("%s is left", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDownloadOfHeld(t *testing.T) {
	download := func(t *testing.T, dst string, entries ...entry) error {
		t.Helper()
		fake := copierFuncs{out: func(context.Context, string, ...string) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(archive(t, entries))), nil
		}}
		defer noHeld(t, dst)
		return transfer.Download(t.Context(), fake, "", nil, dst,
			transfer.DownloadOptions{SkipRepositories: func(string) {}})
	}
	t.Run("content", func(t *testing.T) {
		dst := t.TempDir()
		treefake.Write(t, dst, map[string]treefake.File{"HEAD": {Content: "old"}})
		err := download(t, dst, entry{name: "HEAD", content: "first"},
			entry{name: "HEAD", content: "new"}, entry{name: "copy", hardLink: "HEAD"},
			entry{name: "d/head", hardLink: "HEAD"}, entry{name: "e/x", hardLink: "d/head"})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"HEAD": "new", "copy": "new", "d/head": "new", "e/x": "new"}
		if diff := cmp.Diff(want, hostFiles(t, dst)); diff != "" {
			t.Errorf("downloaded (-want +got):\n%s", diff)
		}
	})
	t.Run("hard link in a git directory", func(t *testing.T) {
		dst := t.TempDir()
		err := download(t, dst, entry{name: "x", content: "ref: refs/heads/main\n"},
			entry{name: "HEAD", hardLink: "x"}, entry{name: "objects/"}, entry{name: "refs/"})
		if err != nil || len(shaped(t, dst)) > 0 {
			t.Errorf("%v, a git directory was made: %v", err, shaped(t, dst))
		}
	})
	t.Run("through a symlink", func(t *testing.T) {
		needSymlinks(t)
		dst := t.TempDir()
		err := download(t, dst, entry{name: "d/objects/"}, entry{name: "d/refs/"},
			entry{name: "l", symlink: "d"}, entry{name: "l/HEAD", content: "x"})
		if !errors.Is(err, env.ErrEscapes) || len(shaped(t, dst)) > 0 {
			t.Errorf("%v, want ErrEscapes", err)
		}
	})
	t.Run("a directory in its place", func(t *testing.T) {
		dst := t.TempDir()
		err := download(t, dst, entry{name: "HEAD", content: "x"}, entry{name: "HEAD/x", content: "x"})
		if err == nil {
			t.Error("a file replaced a directory")
		}
	})
	t.Run("after an error", func(t *testing.T) {
		dst := t.TempDir()
		err := download(t, dst, entry{name: "HEAD", content: "x"}, entry{name: "../x", content: "x"})
		if !errors.Is(err, env.ErrEscapes) {
			t.Errorf("%v, want ErrEscapes", err)
		}
		if _, err := os.Lstat(filepath.Join(dst, "HEAD")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("HEAD was made after an error: %v", err)
		}
	})
}
