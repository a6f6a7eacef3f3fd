package env_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

// manyReader reads files at once, but not folders.
type manyReader struct {
	env.FileReader
	inner *treeDisk
}

func (m manyReader) Info() env.Info { return m.inner.Info() }

func (m manyReader) ReadFiles(ctx context.Context, names []string, limit int64) ([]env.FileContent, error) {
	return m.inner.ReadFiles(ctx, names, limit)
}

// TestGrepTogether searches files that are read together, which gives what it gives for one after the other.
func TestGrepTogether(t *testing.T) {
	files := map[string]string{
		"binary": "hit\x00", "large": strings.Repeat("0123456789abcde\n", 10_000) + "hit", "closed": "hit", "empty": "", "link": "-> empty",
		"shut/x": "hit", "src/.gitignore": "*.log", "src/a.log": "hit", "src/vendor/hit": "hit\nhit",
	}
	for i := range 600 {
		files[fmt.Sprintf("%d/%d.txt", i%7, i)] = "hit\nmiss\nhit"
	}
	d := newTreeDisk(t, files)
	d.deny["closed"], d.deny["shut"] = errors.New("closed"), errors.New("shut")
	d.deny["3/3.txt"] = fs.ErrNotExist // It vanishes after it is listed.
	for _, opts := range []env.GrepOptions{
		{Pattern: "hit", MaxMatches: -1},
		{Pattern: "hit"},
		{Pattern: "nothing"},
		{Pattern: "hit", MaxMatches: 300, Mode: env.GrepFiles},
		{Pattern: "hit", Glob: "src/**"},
		{Pattern: "hit", Path: "src", NoIgnore: true},
		{Pattern: "hit", Path: "large"},
		{Pattern: "miss", Before: 1, Exclude: "*5.txt", Path: "5", MaxMatches: -1},
		{Pattern: "hit", Path: "missing"},
	} {
		search := func(e env.FileReader) (lines []string) {
			stats, err := env.Grep(t.Context(), e, opts, func(m env.GrepMatch) error {
				lines = append(lines, fmt.Sprintf("%+v", m))
				return nil
			})
			if stats.Truncated {
				stats.Files, stats.SkippedBinary = 0, 0
			}
			return append(lines, fmt.Sprintf("%+v, error %v", stats, err))
		}
		want := search(d.searchPlace)
		for what, e := range map[string]env.FileReader{"folders and files": d, "files": manyReader{d.searchPlace, d}} {
			if diff := cmp.Diff(want, search(e)); diff != "" {
				t.Errorf("%s: %+v: %s", what, opts, diff)
			}
		}
	}
}

// TestGrepTogetherCost reads many small files in one request, no more than 4 MiB, and none that is not wanted.
func TestGrepTogetherCost(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("small/%d.go", i)] = "hit"
		files[fmt.Sprintf("small/%d.txt", i)] = "hit"
	}
	for i := range 100 {
		files[fmt.Sprintf("middle/%d.go", i)] = strings.Repeat("x", 100<<10)
	}
	files["large/1.go"] = strings.Repeat("x", 128<<10+1)
	d := newTreeDisk(t, files)
	for _, tt := range []struct {
		path, glob string
		want       []string
	}{
		{"small", "*.go", []string{"files 32", "files 128", "files 140"}},
		{"middle", "", []string{"files 32", "files 41", "files 27"}},
		{"large", "", nil},
		{"", "small/7.*", []string{"files 2"}},
	} {
		d.made()
		stats, err := env.Grep(t.Context(), d, env.GrepOptions{Pattern: "hit", Path: tt.path, Glob: tt.glob, NoIgnore: true, MaxMatches: -1}, func(env.GrepMatch) error { return nil })
		got := slices.DeleteFunc(d.made(), func(r string) bool { return !strings.HasPrefix(r, "files") })
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: %q, want %q, %+v, error %v", tt.path, tt.glob, got, tt.want, stats, err)
		}
	}
}

// TestGrepTogetherEnds ends a search in the middle.
func TestGrepTogetherEnds(t *testing.T) {
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprint(i)] = "hit"
	}
	d := newTreeDisk(t, files)
	for _, end := range []error{fs.SkipAll, errors.New("stop")} {
		calls := 0
		_, err := env.Grep(t.Context(), d, env.GrepOptions{Pattern: "hit"}, func(env.GrepMatch) error {
			calls++
			return end
		})
		if calls != 1 || !errors.Is(end, fs.SkipAll) && !errors.Is(err, end) || errors.Is(err, fs.SkipAll) {
			t.Errorf("%v: %d calls, error %v", end, calls, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	_, err := env.Grep(ctx, d, env.GrepOptions{Pattern: "hit", MaxMatches: -1}, func(env.GrepMatch) error {
		cancel(cause)
		return nil
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("canceled: error %v", err)
	}
	// A file that is there when the folder is listed, and larger when it is read.
	if err := os.WriteFile(filepath.Join(d.root, "499"), []byte(strings.Repeat("x\n", 100<<10)+"more"), 0o666); err != nil {
		t.Fatal(err)
	}
	if lines, _ := grepLines(t, manyReader{d.searchPlace, d}, env.GrepOptions{Pattern: "more"}); len(lines) != 1 {
		t.Errorf("found %q", lines)
	}
}
