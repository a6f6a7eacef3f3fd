package env_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

// treeDisk is a searchPlace that reads several folders and files at once, and notes how many.
type treeDisk struct {
	searchPlace
	mu       sync.Mutex
	requests []string
	fail     error // of every request
}

func (d *treeDisk) request(what string, n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, fmt.Sprint(what, " ", n))
	return d.fail
}

func (d *treeDisk) ReadDirs(ctx context.Context, names, with []string) ([]env.Folder, error) {
	if err := d.request("folders", len(names)); err != nil {
		return nil, err
	}
	folders := make([]env.Folder, len(names))
	for i, name := range names {
		folders[i].Entries, folders[i].Err = d.ReadDir(ctx, name)
		for _, w := range with {
			if name != "." {
				w = strings.TrimSuffix(name, "/") + "/" + w
			}
			c := env.FileContent{Name: w}
			if c.Data, c.Err = env.ReadFile(ctx, d.searchDisk, w, 100); errors.Is(c.Err, env.ErrTooLarge) {
				c.Err = nil
			}
			folders[i].Files = append(folders[i].Files, c)
		}
	}
	return folders, nil
}

func (d *treeDisk) AreFiles(ctx context.Context, names []string) ([]bool, error) {
	if err := d.request("links", len(names)); err != nil {
		return nil, err
	}
	regular := make([]bool, len(names))
	for i, name := range names {
		info, err := d.Stat(ctx, name)
		regular[i] = err == nil && info.Mode().IsRegular()
	}
	return regular, nil
}

func (d *treeDisk) ReadFiles(ctx context.Context, names []string, limit int64) ([]env.FileContent, error) {
	if err := d.request("files", len(names)); err != nil {
		return nil, err
	}
	return env.ReadFiles(ctx, d.searchDisk, names, limit)
}

// made returns the requests since the last time.
func (d *treeDisk) made() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	made := d.requests
	d.requests = nil
	return made
}

func newTreeDisk(t *testing.T, files map[string]string) *treeDisk {
	t.Helper()
	return &treeDisk{searchPlace: searchPlace{newSearchDisk(t, files)}}
}

// TestWalkAhead walks with folders listed together, skips some, and gets what a walk of one folder after the other gets.
func TestWalkAhead(t *testing.T) {
	d := newTreeDisk(t, map[string]string{
		".git/HEAD": "x", ".gitignore": "ign", "a/b/c/d": "", "a/b/ign/x": "", "a/closed/x": "", "a/e/f/g": "", "h/.gitignore": strings.Repeat("# large\n", 50) + "x/", "h/x/y": "",
		"h/z/x/w": "", "h/i": "", "j/.gitignore": "k", "j/k/l": "", "j/m/k/l": "", "n/.git": "gitdir: ../.git", "n/ign": "", "n/o/p": "", "q/r/s/t/u": "", "q/v/w/x": "",
	})
	d.deny["a/closed"], d.deny["j/.gitignore"] = errors.New("closed"), errors.New("closed, too")
	skips := []map[string]error{nil}
	for _, name := range []string{"a", "a/b", "a/b/c/d", "a/closed", "h", "h/i", "j/.gitignore", "q/r", "q/r/s", "q/r/s/t/u"} {
		skips = append(skips, map[string]error{name: fs.SkipDir}, map[string]error{name: fs.SkipAll}, map[string]error{name: fs.SkipDir, "q": fs.SkipDir})
	}
	for _, root := range []string{"", "a", "q/r", "h", d.root + "/j"} {
		for _, opts := range []env.WalkOptions{{}, {NoIgnore: true}, {MaxDepth: 1}, {MaxDepth: 2}, {MaxDepth: 3, Details: true}} {
			for _, skip := range skips {
				walk := func(e env.FileReader) (all []string) {
					err := env.Walk(t.Context(), e, root, opts, func(entry env.Entry) error {
						all = append(all, fmt.Sprintf("%s %v %v %d", entry.Name, entry.Mode, entry.Err, entry.Size))
						return skip[entry.Name]
					})
					return append(all, fmt.Sprint("error ", err))
				}
				if diff := cmp.Diff(walk(d.searchPlace), walk(d)); diff != "" {
					t.Errorf("%q %+v, skips %v: %s", root, opts, skip, diff)
				}
			}
		}
	}
}

// TestWalkAheadCost makes one request for each level, and one for the folders above.
func TestWalkAheadCost(t *testing.T) {
	d := newTreeDisk(t, map[string]string{
		"r/.git/HEAD": "x", "r/.gitignore": "ign", "r/a/b/c/d": "", "r/a/b/ign/x": "", "r/a/e/f/g": "", "r/h/.gitignore": "x/", "r/h/x/y": "",
		"r/h/z/x/w": "", "r/j/.git/HEAD": "", "r/j/ign/l": "", "r/j/.git/info/exclude": "m", "r/j/m/n": "", "r/q/.gitignore": "!ign", "r/q/ign/o": "",
	})
	for root, want := range map[string][]string{
		"r":   {"folders 1", "folders 4", "folders 5", "folders 2"},
		"r/a": {"folders 1", "files", "folders 1", "folders 2", "folders 2"},
	} {
		calls := len(d.calls)
		walkNames(t, d, root, env.WalkOptions{})
		got := d.made()
		for i, request := range got {
			if strings.HasPrefix(request, "files") {
				got[i] = "files" // as many as there are folders above
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: requests %q, want %q", root, got, want)
		}
		for _, call := range d.calls[calls:] {
			if strings.Contains(call, "b/ign/") || strings.Contains(call, "/x/") || strings.Contains(call, "j/m/") {
				t.Errorf("%s: an ignored folder is read: %s", root, call)
			}
		}
	}
}

// TestGlobAhead lists no folder in which nothing can match.
func TestGlobAhead(t *testing.T) {
	d := newTreeDisk(t, map[string]string{"a/b/c": "", "a/d/e": "", "f/g/h": "", "i": "-> a/b/c", "j": "-> a", "k": "-> k", "l": "-> i"})
	for _, tt := range []struct {
		pattern        string
		want, requests []string
	}{
		{"*", []string{"i", "l"}, []string{"folders 1", "links 4"}},
		{"a/b/*", []string{"a/b/c"}, []string{"folders 1", "folders 1", "folders 1"}},
		{"*/*/c", []string{"a/b/c"}, []string{"folders 1", "folders 2", "folders 3"}},
	} {
		got := globNames(t, d, env.GlobOptions{Pattern: tt.pattern, NoIgnore: true})
		slices.Sort(got)
		if requests := d.made(); !slices.Equal(got, tt.want) || !slices.Equal(requests, tt.requests) {
			t.Errorf("%s: got %q by %q, want %q by %q", tt.pattern, got, requests, tt.want, tt.requests)
		}
	}
}

// TestAheadFails: a request that fails leaves the work to ReadDir and Open, unless there is no point in it.
func TestAheadFails(t *testing.T) {
	files := map[string]string{"a/b": "hit", "a/c/d": "hit"}
	d := newTreeDisk(t, files)
	d.fail = errors.New("a failure")
	if diff := cmp.Diff([]string{"a/", "a/b", "a/c/", "a/c/d"}, walkNames(t, d, "", env.WalkOptions{})); diff != "" {
		t.Error(diff)
	}
	if lines, stats := grepLines(t, d, env.GrepOptions{Pattern: "hit"}); len(lines) != 2 || stats.Files != 2 {
		t.Errorf("%q, %+v", lines, stats)
	}
	for _, d.fail = range []error{fs.ErrClosed, env.ErrGone} {
		err := env.Walk(t.Context(), d, "", env.WalkOptions{}, func(env.Entry) error { return nil })
		if !errors.Is(err, d.fail) {
			t.Errorf("error %v, want %v", err, d.fail)
		}
		_, err = env.Grep(t.Context(), &lateFailure{treeDisk: d}, env.GrepOptions{Pattern: "hit"}, func(env.GrepMatch) error { return nil })
		var pe *fs.PathError
		if !errors.Is(err, d.fail) || !errors.As(err, &pe) {
			t.Errorf("grep: error %v, want %v", err, d.fail)
		}
	}
}

// lateFailure is a treeDisk of which only files fail.
type lateFailure struct{ *treeDisk }

func (l *lateFailure) ReadDirs(ctx context.Context, names, with []string) ([]env.Folder, error) {
	fail := l.fail
	defer func() { l.fail = fail }()
	l.fail = nil
	return l.treeDisk.ReadDirs(ctx, names, with)
}

// vast is a tree of folders in which there are nothing but folders.
type vast struct {
	*treeDisk
	wide, deep int
	listed     int
	most       int // how many entries had been listed and not walked
	walked     int
}

type vastEntry string

func (v vastEntry) Name() string               { return string(v) }
func (v vastEntry) IsDir() bool                { return true }
func (v vastEntry) Type() fs.FileMode          { return fs.ModeDir }
func (v vastEntry) Mode() fs.FileMode          { return fs.ModeDir }
func (v vastEntry) Size() int64                { return 0 }
func (v vastEntry) ModTime() time.Time         { return time.Time{} }
func (v vastEntry) Sys() any                   { return nil }
func (v vastEntry) Info() (fs.FileInfo, error) { return v, nil }

func (v *vast) ReadDirs(_ context.Context, names, _ []string) ([]env.Folder, error) {
	_ = v.request("folders", len(names))
	folders := make([]env.Folder, len(names))
	for i, name := range names {
		if name == "." || strings.Count(name, "/")+1 < v.deep {
			for j := range v.wide {
				folders[i].Entries = append(folders[i].Entries, vastEntry(fmt.Sprintf("%04d", j)))
			}
			v.listed += v.wide
		}
	}
	v.most = max(v.most, v.listed-v.walked)
	return folders, nil
}

// TestAheadBounded walks trees that are larger than what may be listed ahead.
func TestAheadBounded(t *testing.T) {
	for _, tt := range []struct{ wide, deep, requests, most int }{
		{60, 3, 300, 120_000},   // 216,000 folders
		{700, 2, 2500, 500_000}, // 490,000, of which one request gives all
		{2, 12, 40, 20_000},
	} {
		v := &vast{treeDisk: newTreeDisk(t, nil), wide: tt.wide, deep: tt.deep}
		last := ""
		err := env.Walk(t.Context(), v, "", env.WalkOptions{NoIgnore: true}, func(entry env.Entry) error {
			v.walked++
			if entry.Name <= last {
				return fmt.Errorf("%s after %s", entry.Name, last)
			}
			last = entry.Name
			return nil
		})
		want, level := 0, 1
		for range tt.deep {
			level *= tt.wide
			want += level
		}
		requests := len(v.made())
		t.Logf("%d folders in %d requests, %d held", v.walked, requests, v.most)
		if err != nil || v.walked != want || requests > tt.requests || v.most > tt.most {
			t.Errorf("%+v: %d folders, want %d, in %d requests, %d held, error %v", tt, v.walked, want, requests, v.most, err)
		}
	}
}
