package search_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func TestWalk(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		root  string
		opts  search.WalkOptions
		want  []string
	}{
		{
			name: "an empty directory", files: map[string]string{"d/": ""}, root: "d",
			want: []string{},
		},
		{
			name: "directories before their content, hidden files too",
			files: map[string]string{
				"b/x": "", "b.txt": "", "a": "", ".hidden/y": "", "empty/": "",
				"b/c/z": "",
			},
			want: []string{".hidden/", ".hidden/y", "a", "b/", "b/c/", "b/c/z", "b/x", "b.txt", "empty/"},
		},
		{
			name: "a root below", files: map[string]string{"a/b/c": "", "x": ""}, root: "a/",
			want: []string{"b/", "b/c"},
		},
		{
			name: "a depth", files: map[string]string{
				"a/b/c": "",
				"x":     "",
			}, opts: search.WalkOptions{MaxDepth: 2},
			want: []string{"a/", "a/b/", "x"},
		},
		{
			name: "ignore files",
			files: map[string]string{
				".gitignore": "*.log\n/out/\n!keep.log", "out/x": "", "a.log": "",
				"keep.log": "", "d/b.log": "", "d/out": "", "d/.gitignore": "!b.log\nkeep.log",
				"d/keep.log": "",
			},
			want: []string{".gitignore", "d/", "d/.gitignore", "d/b.log", "d/out", "keep.log"},
		},
		{
			name: "no ignore",
			files: map[string]string{
				".gitignore": "*", "a": "", ".git/config": "",
				"d/.git": "",
			}, opts: search.WalkOptions{NoIgnore: true},
			want: []string{".git/", ".git/config", ".gitignore", "a", "d/", "d/.git"},
		},
		{
			name: "git's own directory, and the file it is in a work tree",
			files: map[string]string{
				".git/config": "", "a": "", "d/.git": "gitdir: x", "d/b": "",
				".github/c": "",
			},
			want: []string{".github/", ".github/c", "a", "d/", "d/b"},
		},
		{
			name: "the exclude file is weaker than ignore files",
			files: map[string]string{
				".git/HEAD": "", ".git/info/exclude": "a\nb\nd/c", ".gitignore": "!b",
				"a": "", "b": "", "d/a": "", "d/c": "",
			},
			want: []string{".gitignore", "b", "d/"},
		},
		{
			name: "parents up to the repository",
			files: map[string]string{
				".gitignore": "top", "r/.git/HEAD": "", "r/.git/info/exclude": "ex",
				"r/.gitignore": "*.log\n/s/one", "r/s/.gitignore": "!b.log\n/t/two", "r/s/t/top": "",
				"r/s/t/ex": "", "r/s/t/a.log": "", "r/s/t/b.log": "", "r/s/t/one": "", "r/s/t/two": "",
				"r/s/t/u/two": "",
			},
			root: "r/s/t",
			want: []string{"b.log", "one", "top", "u/", "u/two"},
		},
		{
			name: "parents without a repository do not count",
			files: map[string]string{
				".gitignore": "a", "d/a": "", "d/.gitignore": "b",
				"d/b": "",
			}, root: "d",
			want: []string{".gitignore", "a"},
		},
		{
			name: "an ignored root",
			files: map[string]string{
				".git/HEAD": "", ".gitignore": "/vendor/\n*.log", "vendor/m/a.log": "",
				"vendor/m/.gitignore": "b", "vendor/m/b": "",
			}, root: "vendor/m",
			want: []string{".gitignore", "a.log"},
		},
		{
			name: "a root ignored by a pattern for its content",
			files: map[string]string{
				".git/HEAD": "", "venv/.gitignore": "*",
				"venv/lib/a": "",
			}, root: "venv/lib",
			want: []string{"a"},
		},
		{
			name: "a repository inside starts afresh",
			files: map[string]string{
				".git/HEAD": "", ".gitignore": "a", "sub/.git/HEAD": "",
				"sub/.git/info/exclude": "/b", "sub/a": "", "sub/b": "", "sub/c/b": "",
				"tree/.git": "gitdir: ../x", "tree/a": "", "x/a": "",
			},
			want: []string{".gitignore", "sub/", "sub/a", "sub/c/", "sub/c/b", "tree/", "tree/a", "x/"},
		},
		{
			name: "ignore files that are none",
			files: map[string]string{
				".gitignore/x": "", "a": "", "d/b": "", "d/.gitignore": "-> ../rules",
				"rules": "b",
			},
			want: []string{".gitignore/", ".gitignore/x", "a", "d/", "d/.gitignore", "d/b", "rules"},
		},
		{
			name: "links are not followed",
			files: map[string]string{
				"a/up": "-> ..", "a/self": "-> self", "a/gone": "-> nowhere",
				"b": "-> a",
			},
			want: []string{"a/", "a/gone", "a/self", "a/up", "b"},
		},
		{
			name: "but for the root", files: map[string]string{
				"a/x": "", "a/up": "-> ../a",
				"b": "-> a",
			}, root: "b",
			want: []string{"up", "x"},
		},
		{
			name:  "a directory rule does not hit a link",
			files: map[string]string{".gitignore": "t/", "t": "-> d", "d/t/x": ""},
			want:  []string{".gitignore", "d/", "t"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newFakeReader(t, tt.files)
			if diff := cmp.Diff(tt.want, walkNames(t, fakeEnvironment{d}, tt.root, tt.opts)); diff != "" {
				t.Error(diff)
			}
			// The same from an absolute name, which needs no working directory.
			root := filepath.ToSlash(d.root) + "/" + tt.root
			if runtime.GOOS == "windows" {
				return // Drives depend on Info.
			}
			if diff := cmp.Diff(tt.want, walkNames(t, d, root, tt.opts)); diff != "" {
				t.Error("absolute: ", diff)
			}
		})
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
		if diff := cmp.Diff([]string{"b"}, walkNames(t, fakeEnvironment{d}, root,
			search.WalkOptions{})); diff != "" {
			t.Error(diff)
		}
	}
	repository := newFakeReader(t, map[string]string{
		".git/HEAD": "", ".gitignore": "c", "a:/b/c": "",
		"a:/b/d": "",
	})
	if diff := cmp.Diff([]string{"d"}, walkNames(t, fakeEnvironment{repository}, "a:/b",
		search.WalkOptions{})); diff != "" {
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
	d := newFakeReader(t, map[string]string{"a/b/x": "", "a/c": "", "d/1": "", "d/2": "", "e": ""})
	stop := errors.New("stop")
	tests := []struct {
		name string
		at   string
		err  error
		want []string
		end  error
	}{
		{"a directory", "a/b", fs.SkipDir, []string{"a", "a/b", "a/c", "d", "d/1", "d/2", "e"}, nil},
		{
			"the rest of a directory", "d/1", fs.SkipDir,
			[]string{"a", "a/b", "a/b/x", "a/c", "d", "d/1", "e"},
			nil,
		},
		{"the rest of the root", "e", fs.SkipDir, []string{
			"a", "a/b", "a/b/x", "a/c", "d", "d/1", "d/2",
			"e",
		}, nil},
		{"everything", "a/b/x", fs.SkipAll, []string{"a", "a/b", "a/b/x"}, nil},
		{"an error", "a/c", stop, []string{"a", "a/b", "a/b/x", "a/c"}, stop},
	}
	for _, tt := range tests {
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
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWalkErrors(t *testing.T) {
	d := newFakeReader(t, map[string]string{"file": "", "link": "-> nowhere"})
	for root, want := range map[string]error{
		"missing": fs.ErrNotExist, "file": env.ErrNotDir,
		"link": fs.ErrNotExist, "a\x00": fs.ErrInvalid,
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
	files := map[string]string{
		".git/HEAD": "", ".git/info/exclude": "x", ".gitignore": "x", "a/b": "",
		"c/.gitignore": "d", "c/d": "", "e": "", "gone/x": "",
	}
	t.Run("by the environment", func(t *testing.T) {
		d := newFakeReader(t, files)
		d.deny["a"], d.deny["c/.gitignore"], d.deny["gone"] = fs.ErrPermission, fs.ErrPermission,
			fs.ErrNotExist
		want := []string{
			".gitignore", "a/", "a/: permission denied", "c/",
			"c/.gitignore: permission denied", "c/.gitignore", "c/d", "e", "gone/",
		}
		if runtime.GOOS == "windows" {
			want = nil
		}
		got := walkNames(t, d, "", search.WalkOptions{})
		for i := range got {
			got[i] = strings.Replace(got[i], fs.ErrPermission.Error(), "permission denied", 1)
		}
		if diff := cmp.Diff(want, got); diff != "" && want != nil {
			t.Error(diff)
		}
	})
	t.Run("above the root", func(t *testing.T) {
		d := newFakeReader(t, files)
		root := filepath.ToSlash(d.root)
		d.deny[root+"/.gitignore"], d.deny[root+"/.git/info/exclude"] = fs.ErrPermission,
			errors.New("broken")
		want := []string{"../.git/info/exclude: broken", "../.gitignore: permission denied", ".gitignore"}
		got := walkNames(t, fakeEnvironment{d}, "c", search.WalkOptions{})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a parent that cannot be listed", func(t *testing.T) {
		d := newFakeReader(t, map[string]string{".git/HEAD": "", ".gitignore": "x", "c/x": "", "c/y": ""})
		d.deny[filepath.ToSlash(d.root)] = fs.ErrPermission
		if diff := cmp.Diff([]string{"y"}, walkNames(t, fakeEnvironment{d}, "c",
			search.WalkOptions{})); diff != "" {
			t.Error(diff)
		}
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
	t.Run("by the system", func(t *testing.T) {
		if os.Getuid() <= 0 {
			t.Skip("root may read everything, and Windows has no such modes")
		}
		d := newFakeReader(t, files)
		closed := filepath.Join(d.root, "a")
		if err := os.Chmod(closed, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(closed, 0o777) })
		_, err := search.Grep(t.Context(), d, search.GrepOptions{Pattern: "x"},
			func(search.GrepMatch) error { return nil })
		var unreadable *search.UnreadableError
		if !errors.As(err, &unreadable) || unreadable.Count != 1 || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("error is %v", err)
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
	d := newFakeReader(t, map[string]string{
		".git/HEAD": "", ".git/info/exclude": "", ".gitignore": "",
		"a/b/c": "", "d": "", "x/.gitignore": "",
	})
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
	d := newFakeReader(t, map[string]string{
		"a/b.go": "func x", "c.go": "func y", ".gitignore": "c.go",
		"l.go": "-> a/b.go",
	})
	d.touch("a/b.go", 1)
	inner := &searchDelegate{FileReader: d}
	outer := &searchDelegate{FileReader: inner}
	for name, e := range map[string]env.FileReader{"one decorator": inner, "two decorators": outer} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(walkNames(t, d, "", search.WalkOptions{}), walkNames(t, e, "",
				search.WalkOptions{})); diff != "" {
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

// TestWalkAgainstGit compares with the files that git would add, in random trees and from random
// roots in them.
func TestWalkAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed: ", err)
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			files := map[string]string{}
			pieces := []string{"a", "b", "c", "*", "/", "**/", "?", "a", "b", "[ab]", "/", "!"}
			for range 60 {
				name := ""
				for depth := r.IntN(4); depth >= 0; depth-- {
					name += string(rune('a'+r.IntN(3))) + "d/"
				}
				files[name+string(rune('a'+r.IntN(3)))] = ""
				if r.IntN(4) == 0 {
					var rules strings.Builder
					for range 1 + r.IntN(4) {
						if r.IntN(3) == 0 {
							rules.WriteString("!")
						}
						for range 1 + r.IntN(3) {
							rules.WriteString(pieces[r.IntN(len(pieces))])
						}
						rules.WriteString(pieces[r.IntN(3)] + "\n")
					}
					files[name+".gitignore"] = rules.String()
				}
			}
			d := newFakeReader(t, files)
			run := func(args ...string) string {
				cmd := exec.CommandContext(t.Context(), git, args...)
				cmd.Dir = d.root
				cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("git %v: %v", args, err)
				}
				return string(out)
			}
			run("init", "-q")
			listed := strings.Split(run("ls-files", "-z", "--others", "--exclude-standard"), "\x00")
			slices.Sort(listed)
			walked := []string{""}
			for _, name := range walkNames(t, fakeEnvironment{d}, "", search.WalkOptions{}) {
				if !strings.HasSuffix(name, "/") {
					walked = append(walked, name)
				}
			}
			slices.Sort(walked)
			if diff := cmp.Diff(listed, walked); diff != "" {
				t.Error(diff)
			}
			// From a directory that is not ignored, a walk finds the same files as a walk from the top.
			for _, root := range walkNames(t, fakeEnvironment{d}, "", search.WalkOptions{}) {
				if !strings.HasSuffix(root, "/") {
					continue
				}
				var want []string
				for _, name := range listed {
					if below, ok := strings.CutPrefix(name, root); ok {
						want = append(want, below)
					}
				}
				var got []string
				for _, name := range walkNames(t, fakeEnvironment{d}, root, search.WalkOptions{}) {
					if !strings.HasSuffix(name, "/") {
						got = append(got, name)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("from %s: %s", root, diff)
				}
			}
		})
	}
}
