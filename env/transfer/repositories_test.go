package transfer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"maps"
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

// hostFiles returns all files below dir, those in directories named .git too.
func hostFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[filepath.ToSlash(rel)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Download writes no file that could make a version control system run commands.
func TestDownloadSkipsRepositories(t *testing.T) {
	dst := t.TempDir()
	before := map[string]treefake.File{
		".git/config": {Content: "host"}, "bare/HEAD": {Content: "h"}, "bare/objects/": {},
		"bare/refs/": {}, "bare/config": {Content: "host"}, "d/a": {Content: "host"},
	}
	treefake.Write(t, dst, before)
	sent := map[string]string{
		".git/config": "evil", ".GIT/hooks/pre-commit": "evil", "d/.git": "gitdir: ../x",
		"GIT~1/config": "evil", ".git. /config": "evil",
		".g\u200cit/config": "evil", ".git::$INDEX_ALLOCATION/config": "evil", "sub/.hg/hgrc": "evil",
		".svn/x": "evil", ".jj/x": "evil", ".bzr/x": "evil",
		"bare/config": "evil", "bare/hooks/update": "evil", "d/a": "new", "d/.gitignore": "new",
		"x.git/new": "new", "git": "new",
	}
	fake := copierFuncs{out: func(context.Context, string, ...string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(treefake.Tar(sent))), nil
	}}
	reported := map[string]int{}
	opts := transfer.DownloadOptions{SkipRepositories: func(name string) { reported[name]++ }}
	if err := transfer.Download(t.Context(), fake, "", nil, dst, opts); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		".git/config": "host", "bare/HEAD": "h", "bare/config": "host", "d/a": "new",
		"d/.gitignore": "new", "x.git/new": "new", "git": "new",
	}
	if diff := cmp.Diff(want, hostFiles(t, dst)); diff != "" {
		t.Errorf("on the host (-want +got):\n%s", diff)
	}
	wantReported := []string{
		".GIT", ".bzr", ".git", ".git. ", ".git::$INDEX_ALLOCATION", ".g\u200cit",
		".jj", ".svn", "GIT~1", "bare", "d/.git", "sub/.hg",
	}
	slices.Sort(wantReported)
	if diff := cmp.Diff(wantReported, slices.Sorted(maps.Keys(reported))); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	for name, n := range reported {
		if n != 1 {
			t.Errorf("%s was reported of %d times", name, n)
		}
	}
	// Into a git directory Download writes nothing.
	if err := transfer.Download(t.Context(), fake, "", nil, filepath.Join(dst, "bare"),
		opts); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, hostFiles(t, dst)); diff != "" {
		t.Errorf("on the host (-want +got):\n%s", diff)
	}
}

// Skipped entries count for the limits, so that a download ends.
func TestDownloadCountsWhatItSkips(t *testing.T) {
	var stream bytes.Buffer
	tw := tar.NewWriter(&stream)
	if err := tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: ".git/config", Size: 1 << 40,
		Mode: 0o644,
	}); err != nil {
		t.Fatal(err)
	}
	fake := copierFuncs{out: func(context.Context, string, ...string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(&stream, strings.NewReader(strings.Repeat("x", 1<<20)))), nil
	}}
	err := transfer.Download(t.Context(), fake, "", nil, t.TempDir(),
		transfer.DownloadOptions{MaxBytes: 1 << 30, SkipRepositories: func(string) {}})
	if err == nil || !strings.Contains(err.Error(), env.ErrTreeTooLarge.Error()) {
		t.Errorf("%v, want ErrTreeTooLarge", err)
	}
}

func TestUploadSkipsRepositories(t *testing.T) {
	src := t.TempDir()
	treefake.Write(t, src, map[string]treefake.File{
		".git/config": {Content: "token"}, "a": {Content: "a"}, "d/.hg/hgrc": {Content: "token"},
		"d/b":         {Content: "b"},
		"mirror/HEAD": {Content: "h"}, "mirror/config": {Content: "token"}, "mirror/objects/": {},
		"mirror/refs/": {},
	})
	tests := []struct {
		name     string
		src      string
		names    []string
		want     map[string]string
		reported []string
	}{
		{"directory", ".", nil, map[string]string{"a": "a", "d/b": "b"}, []string{
			".git", "d/.hg",
			"mirror",
		}},
		{"by name", ".", []string{"mirror", "d"}, map[string]string{
			"d/b": "b",
		}, []string{"d/.hg", "mirror"}},
		{"itself", "mirror", nil, map[string]string{"HEAD": "h", "config": "token"}, nil},
		{".git itself", ".git", nil, map[string]string{"config": "token"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			there := t.TempDir()
			var reported []string
			opts := transfer.UploadOptions{
				Names:            tt.names,
				SkipRepositories: func(name string) { reported = append(reported, name) },
			}
			if err := transfer.Upload(t.Context(), treefake.New(t, there), filepath.Join(src, tt.src), "",
				opts); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, hostFiles(t, there)); diff != "" {
				t.Errorf("uploaded (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.reported, reported); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
		})
	}
}
