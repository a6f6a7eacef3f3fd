//go:build unix

package search_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// TestRipgrepThatIsNotInstalled has one in what is searched, which is not run, whatever names lead
// there.
func TestRipgrepThatIsNotInstalled(t *testing.T) {
	base := t.TempDir()
	dir, other, ran := wordlessTree(t), filepath.Join(base, "other"), filepath.Join(base, "ran")
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "rg"), []byte("#!/bin/sh\necho x >"+ran), 0o755),
		os.Symlink(dir, filepath.Join(base, "link")),
		os.Mkdir(other, 0o777),
		os.Symlink(filepath.Join(dir, "rg"), filepath.Join(other, "rg")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, tt := range []struct{ path, workDir, searched string }{
		{dir, dir, ""},
		{".", dir, ""},
		{"", dir, ""},
		{dir + "/!sub0/..", dir, ""},
		{dir, base + "/link", ""},
		{base + "/link", dir, ""},
		{other, dir, ""},
		{dir, base, dir},
		{dir, base, "link"},
		{base + "/link", base, dir},
	} {
		e, err := local.New(local.Config{Dir: tt.workDir})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", tt.path)
		grepAll(t, e, search.GrepOptions{Pattern: `^[a-z]{2}\d`, Path: tt.searched, MaxMatches: -1})
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Fatalf("%+v: a program of what is searched was run", tt)
		}
	}
}

// TestRipgrepUse looks for what many lines match, and for what none does within a limit, with
// ripgrep and without.
func TestRipgrepUse(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("there is no ripgrep: ", err)
	}
	dir := t.TempDir()
	for i := range 300 {
		content := strings.Repeat("A1,B2,C3\n", 300) + strings.Repeat("-", i) + "Q7\n"
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for _, tt := range []struct {
		name string
		opts search.GrepOptions
		used bool
	}{
		{"enough in the first files", search.GrepOptions{Pattern: `[A-H][1-8]`}, false},
		{"all lines", search.GrepOptions{Pattern: `[A-H][1-8][^a-z][A-H]`, MaxMatches: -1}, true},
		{"all files", search.GrepOptions{
			Pattern: `[A-H][1-8][^a-z][A-H]`, MaxMatches: -1,
			Mode: search.GrepFiles,
		}, true},
		{"counts", search.GrepOptions{
			Pattern: `[A-H][1-8][^a-z][A-H]`, MaxMatches: -1,
			Mode: search.GrepCounts,
		}, true},
		{"one line of each", search.GrepOptions{Pattern: `[P-W][4-9]$`, MaxMatches: -1, Before: 3}, true},
		{"nothing", search.GrepOptions{Pattern: `[x-z]{3}[0-9]`, MaxMatches: -1}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			want, wantStats := grepAll(t, e, tt.opts)
			used := filepath.Join(t.TempDir(), "used")
			fakeRipgrep(t, fmt.Sprintf("echo x >>%s\nexec %s \"$@\"", used, rg))
			got, stats := grepAll(t, e, tt.opts)
			if !slices.Equal(want, got) || stats != wantStats {
				t.Errorf("%d matches, %+v, without ripgrep %d, %+v", len(got), stats, len(want), wantStats)
			}
			if _, err := os.Stat(used); (err == nil) != tt.used {
				t.Errorf("ripgrep was asked: %v, want %v", err == nil, tt.used)
			}
		})
	}
	for _, path := range []string{filepath.Dir(rg), t.TempDir()} {
		t.Setenv("PATH", path)
		_, stats := grepAll(t, e, search.GrepOptions{Pattern: `[x-z]{3}[0-9]`, MaxBytes: 400_000})
		if stats.Stopped != search.GrepOverBytes || stats.Files > 200 {
			t.Errorf("PATH=%s: a search that may read 150 files or so: %+v", path, stats)
		}
	}
}
