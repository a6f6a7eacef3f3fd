package search_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func TestWalk(t *testing.T) {
	for _, tt := range []struct{ name, files, root, want string }{
		{name: "an empty directory", files: "d/", root: "d"},
		{
			name:  "directories before their content, hidden files too",
			files: "b/x b.txt a .hidden/y empty/ b/c/z",
			want:  ".hidden/ .hidden/y a b/ b/c/ b/c/z b/x b.txt empty/",
		},
		{name: "a root below", files: "a/b/c x", root: "a/", want: "b/ b/c"},
		{
			name: "ignore files",
			files: ".gitignore=*.log,/out/,!keep.log out/x a.log keep.log d/b.log d/out " +
				"d/.gitignore=!b.log,keep.log d/keep.log",
			want: ".gitignore d/ d/.gitignore d/b.log d/out keep.log",
		},
		{
			name:  "the directory of git, and its file in a work tree",
			files: ".git/config a d/.git=gitdir:_x d/b .github/c",
			want:  ".github/ .github/c a d/ d/b",
		},
		{
			name:  "the exclude file is weaker than ignore files",
			files: ".git/HEAD .git/info/exclude=a,b,d/c .gitignore=!b a b d/a d/c",
			want:  ".gitignore b d/",
		},
		{
			name: "parents up to the repository",
			files: ".gitignore=top r/.git/HEAD r/.git/info/exclude=ex r/.gitignore=*.log,/s/one " +
				"r/s/.gitignore=!b.log,/t/two r/s/t/top r/s/t/ex r/s/t/a.log r/s/t/b.log r/s/t/one " +
				"r/s/t/two r/s/t/u/two",
			root: "r/s/t",
			want: "b.log one top u/ u/two",
		},
		{
			name:  "parents without a repository do not count",
			files: ".gitignore=a d/a d/.gitignore=b d/b", root: "d",
			want: ".gitignore a",
		},
		{
			name: "an ignored root",
			files: ".git/HEAD .gitignore=/vendor/,*.log vendor/m/a.log vendor/m/.gitignore=b " +
				"vendor/m/b",
			root: "vendor/m",
			want: ".gitignore a.log",
		},
		{
			name:  "a root ignored by a pattern for its content",
			files: ".git/HEAD venv/.gitignore=* venv/lib/a", root: "venv/lib",
			want: "a",
		},
		{
			name: "a nested repository has separate rules",
			files: ".git/HEAD .gitignore=a sub/.git/HEAD sub/.git/info/exclude=/b sub/a sub/b " +
				"sub/c/b tree/.git=gitdir:_../x tree/a x/a",
			want: ".gitignore sub/ sub/a sub/c/ sub/c/b tree/ tree/a x/",
		},
		{
			name:  "directories and symlinks with the name of an ignore file",
			files: ".gitignore/x a d/b d/.gitignore=>../rules rules=b",
			want:  ".gitignore/ .gitignore/x a d/ d/.gitignore d/b rules",
		},
		{
			name:  "symlinks are not followed",
			files: "a/up=>.. a/self=>self a/gone=>nowhere b=>a",
			want:  "a/ a/gone a/self a/up b",
		},
		{name: "but for the root", files: "a/x a/up=>../a b=>a", root: "b", want: "up x"},
		{
			name:  "a directory rule does not match a symlink",
			files: ".gitignore=t/ t=>d d/t/x",
			want:  ".gitignore d/ t",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFakeReader(t, tree(tt.files))
			want := strings.Fields(tt.want)
			none := search.WalkOptions{}
			if diff := cmp.Diff(want, walkNames(t, fakeEnvironment{d}, tt.root, none)); diff != "" {
				t.Error(diff)
			}
			// The same from an absolute name, which needs no working directory.
			if runtime.GOOS == "windows" {
				return // Drives depend on Info.
			}
			root := filepath.ToSlash(d.root) + "/" + tt.root
			if diff := cmp.Diff(want, walkNames(t, d, root, none)); diff != "" {
				t.Error("absolute: ", diff)
			}
		})
	}
}

// tree returns the files of a fakeReader from NAME, NAME=CONTENT and NAME=>TARGET of a symlink,
// separated by spaces. In CONTENT, a comma is a line feed and an underscore a space.
func tree(files string) map[string]string {
	all := map[string]string{}
	for _, file := range strings.Fields(files) {
		name, content, _ := strings.Cut(file, "=")
		if target, ok := strings.CutPrefix(content, ">"); ok {
			content = "-> " + target
		}
		all[name] = strings.NewReplacer(",", "\n", "_", " ").Replace(content)
	}
	return all
}

func TestWalkOptions(t *testing.T) {
	d := newFakeReader(t, tree(".gitignore=* a/b/c x .git/config d/.git"))
	for want, opts := range map[string]search.WalkOptions{
		".git/ .git/config .gitignore a/ a/b/ a/b/c d/ d/.git x": {NoIgnore: true},
		".git/ .git/config .gitignore a/ a/b/ d/ d/.git x":       {NoIgnore: true, MaxDepth: 2},
	} {
		if diff := cmp.Diff(strings.Fields(want), walkNames(t, d, "", opts)); diff != "" {
			t.Errorf("%+v: %s", opts, diff)
		}
	}
}

func TestWalkStrangeNames(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not allow these names")
	}
	files := map[string]string{
		".gitignore": "ign*", "-rf": "x", "a\nb": "x", " ": "x", "é/日本 語": "x",
		"*": "x", `back\slash`: "x", "\xff": "x", "ign\nored": "x", "a:/b": "x",
	}
	want := []string{
		" ", "*", "-rf", ".gitignore", "a\nb", "a:/", "a:/b", `back\slash`, "é/",
		"é/日本 語", "\xff",
	}
	if runtime.GOOS == "darwin" {
		delete(files, "\xff") // Names are UTF-8 there.
		want = want[:len(want)-1]
	}
	d := newFakeReader(t, files)
	if diff := cmp.Diff(want, walkNames(t, fakeEnvironment{d}, "", search.WalkOptions{})); diff != "" {
		t.Error(diff)
	}
	// A directory with the name of a Windows drive is not a drive.
	for _, root := range []string{"a:/", filepath.Join(d.root, "a:")} {
		names := walkNames(t, fakeEnvironment{d}, root, search.WalkOptions{})
		if diff := cmp.Diff([]string{"b"}, names); diff != "" {
			t.Error(diff)
		}
	}
	repository := fakeEnvironment{newFakeReader(t, tree(".git/HEAD .gitignore=c a:/b/c a:/b/d"))}
	got := walkNames(t, repository, "a:/b", search.WalkOptions{})
	if diff := cmp.Diff([]string{"d"}, got); diff != "" {
		t.Error(diff)
	}
	lines, _ := grepLines(t, d, search.GrepOptions{Pattern: "x"})
	if len(lines) != len(want)-3 {
		t.Errorf("grep finds %q", lines)
	}
	names := globNames(t, d, search.GlobOptions{Pattern: "**/?*"})
	if len(names) != len(want)-2 {
		t.Errorf("glob finds %q", names)
	}
}

func TestWalkSkip(t *testing.T) {
	d := newFakeReader(t, tree("a/b/x a/c d/1 d/2 e"))
	stop := errors.New("stop")
	for _, tt := range []struct {
		name, at string
		err      error
		want     string
		end      error
	}{
		{"a directory", "a/b", fs.SkipDir, "a a/b a/c d d/1 d/2 e", nil},
		{"the rest of a directory", "d/1", fs.SkipDir, "a a/b a/b/x a/c d d/1 e", nil},
		{"the rest of the root", "e", fs.SkipDir, "a a/b a/b/x a/c d d/1 d/2 e", nil},
		{"everything", "a/b/x", fs.SkipAll, "a a/b a/b/x", nil},
		{"an error", "a/c", stop, "a a/b a/b/x a/c", stop},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			err := search.Walk(t.Context(), d, "", search.WalkOptions{}, func(entry search.Entry) error {
				got = append(got, entry.Name)
				if entry.Name == tt.at {
					return tt.err
				}
				return nil
			})
			if !errors.Is(err, tt.end) || (err == nil) != (tt.end == nil) {
				t.Errorf("error is %v", err)
			}
			if diff := cmp.Diff(strings.Fields(tt.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWalkErrors(t *testing.T) {
	d := newFakeReader(t, map[string]string{"file": "", "link": "-> nowhere"})
	for root, want := range map[string]error{
		"missing": fs.ErrNotExist, "file": env.ErrNotDir, "link": fs.ErrNotExist, "a\x00": fs.ErrInvalid,
	} {
		err := search.Walk(t.Context(), d, root, search.WalkOptions{},
			func(search.Entry) error { return nil })
		var pathErr *fs.PathError
		if !errors.Is(err, want) || !errors.As(err, &pathErr) {
			t.Errorf("%q: error is %v", root, err)
		}
	}
}

func TestWalkUnreadable(t *testing.T) {
	files := tree(".git/HEAD .git/info/exclude=x .gitignore=x a/b c/.gitignore=d c/d e gone/x")
	same := func(t *testing.T, want, got []string) {
		t.Helper()
		for i := range got { // the text of fs.ErrPermission depends on the system
			got[i] = strings.Replace(got[i], fs.ErrPermission.Error(), "permission denied", 1)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	t.Run("below the root", func(t *testing.T) {
		d := newFakeReader(t, files)
		d.deny["a"], d.deny["c/.gitignore"] = fs.ErrPermission, fs.ErrPermission
		d.deny["gone"] = fs.ErrNotExist
		same(t, []string{
			".gitignore", "a/", "a/: permission denied", "c/",
			"c/.gitignore: permission denied", "c/.gitignore", "c/d", "e", "gone/",
		}, walkNames(t, d, "", search.WalkOptions{}))
	})
	t.Run("above the root", func(t *testing.T) {
		d := newFakeReader(t, files)
		root := filepath.ToSlash(d.root)
		d.deny[root+"/.gitignore"] = fs.ErrPermission
		d.deny[root+"/.git/info/exclude"] = errors.New("broken")
		d.deny[root] = fs.ErrPermission // a parent that cannot be listed needs no listing
		same(t, []string{
			"../.git/info/exclude: broken", "../.gitignore: permission denied", ".gitignore",
		}, walkNames(t, fakeEnvironment{d}, "c", search.WalkOptions{}))
	})
	t.Run("a huge ignore file", func(t *testing.T) {
		d := newFakeReader(t, map[string]string{".gitignore": strings.Repeat("a\n", 1<<20), "a": ""})
		var errs []error
		err := search.Walk(t.Context(), d, "", search.WalkOptions{}, func(entry search.Entry) error {
			errs = append(errs, entry.Err)
			return nil
		})
		if err != nil || len(errs) != 3 || errs[0] == nil || errs[1] != nil || errs[2] != nil {
			t.Errorf("error %v, entries with errors %v", err, errs)
		}
	})
	for _, end := range []error{fs.ErrClosed, env.ErrGone, env.ErrUnknownOutcome} {
		for _, at := range []string{"a", "c/.gitignore"} {
			t.Run(fmt.Sprint(end, " at ", at), func(t *testing.T) {
				d := newFakeReader(t, files)
				d.deny[at] = fmt.Errorf("link: %w", end)
				err := search.Walk(t.Context(), d, "", search.WalkOptions{},
					func(search.Entry) error { return nil })
				if !errors.Is(err, end) {
					t.Errorf("error is %v", err)
				}
			})
		}
	}
}

func TestWalkCanceled(t *testing.T) {
	d := newFakeReader(t, map[string]string{"a": "", "b": "", "c/d": ""})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var got []string
	err := search.Walk(ctx, d, "", search.WalkOptions{}, func(entry search.Entry) error {
		got = append(got, entry.Name)
		cancel(cause)
		return nil
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff([]string{"a"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWalkDetails(t *testing.T) {
	d := newFakeReader(t, map[string]string{"a/b": "12345", "l": "-> a/b"})
	d.touch("a/b", 7)
	var got []search.Entry
	err := search.Walk(t.Context(), d, "", search.WalkOptions{Details: true},
		func(entry search.Entry) error {
			got = append(got, entry)
			return nil
		})
	if err != nil || len(got) != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
	b, l := got[1], got[2]
	if b.Size != 5 || b.ModTime.Second() != 7 || !b.Mode.IsRegular() || b.Mode.Perm()&0o600 != 0o600 {
		t.Errorf("b: %+v", b)
	}
	if l.Mode.Type() != fs.ModeSymlink || l.ModTime.IsZero() {
		t.Errorf("l: %+v", l)
	}
}

// TestWalkCost: a walk lists each directory once and reads only ignore files.
func TestWalkCost(t *testing.T) {
	d := newFakeReader(t, tree(".git/HEAD .git/info/exclude .gitignore a/b/c d x/.gitignore"))
	walkNames(t, fakeEnvironment{d}, "", search.WalkOptions{})
	want := []string{
		"readdir .", "stat .git/HEAD", "open .git/info/exclude", "open .gitignore",
		"readdir a", "readdir a/b", "readdir x", "open x/.gitignore",
	}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Error(diff)
	}
}

// searchDelegate implements the optional interfaces and counts calls.
type searchDelegate struct {
	env.FileReader
	walks, greps, globs int
}

func (s *searchDelegate) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	s.walks++
	return search.Walk(ctx, s.FileReader, root, opts, fn)
}

func (s *searchDelegate) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	s.greps++
	return search.Grep(ctx, s.FileReader, opts, fn)
}

func (s *searchDelegate) Glob(
	ctx context.Context, opts search.GlobOptions,
) ([]search.Entry, error) {
	s.globs++
	return search.Glob(ctx, s.FileReader, opts)
}

// TestOptionalSearch: the functions use the optional interfaces, through two decorators, with the
// same results.
func TestOptionalSearch(t *testing.T) {
	d := newFakeReader(t, tree("a/b.go=func_x c.go=func_y .gitignore=c.go l.go=>a/b.go"))
	d.touch("a/b.go", 1)
	inner := &searchDelegate{FileReader: d}
	outer := &searchDelegate{FileReader: inner}
	for name, e := range map[string]env.FileReader{"one decorator": inner, "two decorators": outer} {
		t.Run(name, func(t *testing.T) {
			names := walkNames(t, d, "", search.WalkOptions{})
			if diff := cmp.Diff(names, walkNames(t, e, "", search.WalkOptions{})); diff != "" {
				t.Error(diff)
			}
			want, err := search.Glob(t.Context(), d, search.GlobOptions{Pattern: "**/*.go"})
			got, gotErr := search.Glob(t.Context(), e, search.GlobOptions{Pattern: "**/*.go"})
			if err != nil || gotErr != nil || len(got) != 2 {
				t.Error(err, gotErr, got)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			wantLines, wantStats := grepLines(t, d, search.GrepOptions{Pattern: "func"})
			gotLines, gotStats := grepLines(t, e, search.GrepOptions{Pattern: "func"})
			if diff := cmp.Diff(wantLines, gotLines); diff != "" || len(gotLines) != 1 {
				t.Error(diff)
			}
			if diff := cmp.Diff(wantStats, gotStats); diff != "" {
				t.Error(diff)
			}
		})
	}
	if outer.walks != 1 || outer.greps != 1 || outer.globs != 1 || inner.walks != 2 ||
		inner.greps != 2 || inner.globs != 2 {
		t.Errorf("outer %+v, inner %+v", outer, inner)
	}
}
