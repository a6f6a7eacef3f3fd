package workspace_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// model is the repository that makeRepository copies: git commands are most of the time of the
// tests.
var model struct {
	once sync.Once
	dir  string
}

// makeRepository makes a repository with some history in dir.
func makeRepository(t testing.TB, dir string) {
	t.Helper()
	model.once.Do(func() {
		var err error
		if model.dir, err = os.MkdirTemp("", "model-"); err != nil { //nolint:usetesting // for all tests
			t.Fatal(err)
		}
		makeModel(t, model.dir)
	})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copyTree(t, model.dir, dir)
}

func makeModel(t testing.TB, dir string) {
	t.Helper()
	git(t, dir, "init", "-q", "-b", "main")
	put(t, dir, tree{
		"a.txt": text("one\n"), "dir/b.txt": text("b\n"),
		".gitignore": text("*.log\n/out/\n"),
	})
	commit(t, dir, "first")
	put(t, dir, tree{
		"a.txt": text("two\n"), "run": {Content: "#!/bin/sh\n", Executable: true},
		"link":     {Target: "dir/b.txt"},
		"kept.log": text("tracked though ignored\n"),
	})
	git(t, dir, "add", "-f", "kept.log")
	commit(t, dir, "second")
	git(t, dir, "tag", "v1", "HEAD~1")
}

// sameGit checks that git prints the same in both directories, and that the repository in the
// second is complete and works.
func sameGit(t *testing.T, host, envDir string) {
	t.Helper()
	if fi, err := os.Lstat(filepath.Join(envDir, ".git")); err != nil || !fi.IsDir() {
		t.Fatalf(".git is not a directory: %v", err)
	}
	for _, args := range [][]string{
		{"status", "--porcelain=v2", "--branch"},
		{"log", "--all", "--format=%H %D %s"},
		{"for-each-ref"},
		{"diff"},
		{"diff", "--cached"},
		{"ls-files", "--stage"},
	} {
		want, err := tryGit(host, nil, args...)
		got, gerr := tryGit(envDir, nil, args...)
		if (err == nil) != (gerr == nil) {
			t.Errorf("git %v: %v on the host, %v in the environment\n%s", args, err, gerr, got)
		} else if err == nil {
			same(t, "git "+strings.Join(args, " "), want, got)
		}
	}
	if out, err := tryGit(envDir, nil, "fsck", "--no-dangling"); err != nil {
		t.Errorf("git fsck: %v\n%s", err, out)
	}
	put(t, envDir, tree{"made in the environment": text("x\n")})
	git(t, envDir, "add", "-A")
	git(t, envDir, "commit", "-q", "-m", "made in the environment")
	git(t, envDir, "log", "-1")
}

func TestUploadOfRepositories(t *testing.T) {
	needGit(t)
	tests := []struct {
		name string
		// make makes a repository in the directory and returns the one to upload.
		make func(t *testing.T, dir string) string
	}{
		{"plain", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			return dir
		}},
		{"modified, staged, untracked and ignored files", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			put(t, dir, tree{
				"a.txt": text("changed\n"), "staged": text("s\n"), "untracked/x": text("u\n"),
				"other.log": text("l\n"),
				"out/x":     text("o\n"), "kept.log": text("changed\n"),
			})
			git(t, dir, "add", "staged")
			if err := os.Remove(filepath.Join(dir, "run")); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{"packed", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "gc", "-q")
			put(t, dir, tree{"a.txt": text("three\n")})
			commit(t, dir, "loose")
			return dir
		}},
		{"detached HEAD", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "checkout", "-q", "v1")
			return dir
		}},
		{"no commits yet", func(t *testing.T, dir string) string {
			git(t, dir, "init", "-q", "-b", "main")
			put(t, dir, tree{"new": text("n\n")})
			return dir
		}},
		{"linked working tree", func(t *testing.T, dir string) string {
			makeRepository(t, filepath.Join(dir, "main"))
			git(t, filepath.Join(dir, "main"), "worktree", "add", "-q", "-b", "other", "../linked")
			put(t, filepath.Join(dir, "linked"), tree{"a.txt": text("linked\n")})
			commit(t, filepath.Join(dir, "linked"), "in the linked tree")
			return filepath.Join(dir, "linked")
		}},
		{"shallow", func(t *testing.T, dir string) string {
			makeRepository(t, filepath.Join(dir, "origin"))
			git(t, dir, "clone", "-q", "--depth", "1", "file://"+filepath.Join(dir, "origin"), "clone")
			return filepath.Join(dir, "clone")
		}},
		{"partial clone", func(t *testing.T, dir string) string {
			makeRepository(t, filepath.Join(dir, "origin"))
			git(t, filepath.Join(dir, "origin"), "config", "uploadpack.allowFilter", "true")
			git(t, dir, "clone", "-q", "--filter=blob:none", "file://"+filepath.Join(dir, "origin"), "clone")
			return filepath.Join(dir, "clone")
		}},
		{"sparse", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "sparse-checkout", "init", "--cone", "--sparse-index")
			return dir
		}},
		{"split index", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "update-index", "--split-index")
			put(t, dir, tree{"staged": text("s\n")})
			git(t, dir, "add", "staged")
			return dir
		}},
		{"untracked cache", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "update-index", "--force-untracked-cache")
			git(t, dir, "status")
			return dir
		}},
		{"index version 4", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "update-index", "--index-version=4")
			return dir
		}},
		{"sha256", func(t *testing.T, dir string) string {
			git(t, dir, "init", "-q", "-b", "main", "--object-format=sha256")
			put(t, dir, tree{"a": text("a\n")})
			commit(t, dir, "first")
			return dir
		}},
		{"merge in progress", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "checkout", "-q", "-b", "side", "v1")
			put(t, dir, tree{"side": text("s\n")})
			commit(t, dir, "side")
			git(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "merge", "-q", "--no-commit",
				"--no-ff", "main")
			return dir
		}},
		{"line ends", func(t *testing.T, dir string) string {
			git(t, dir, "init", "-q", "-b", "main")
			git(t, dir, "config", "core.autocrlf", "true")
			put(t, dir, tree{"crlf": text("a\r\nb\r\n")})
			commit(t, dir, "first")
			return dir
		}},
		{"excluded by info/exclude", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			put(t, dir, tree{".git/info/exclude": text("private\n"), "private": text("p\n")})
			return dir
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host := tt.make(t, t.TempDir())
			w := open(t, host, workspace.Options{})
			e, envDir := upload(t, w)
			if c := changes(t, w, e); !c.Empty() {
				t.Error("unexpected changes right after the upload")
			}
			for _, name := range []string{
				"objects/info/alternates", "logs", "hooks", "FETCH_HEAD",
				"description",
			} {
				if _, err := os.Lstat(filepath.Join(envDir, ".git", filepath.FromSlash(name))); err == nil {
					t.Errorf(".git/%s was uploaded", name)
				}
			}
			sameGit(t, host, envDir)
		})
	}
}

func TestUploadOfPlainDir(t *testing.T) {
	dir := t.TempDir()
	want := tree{"a": text("a"), "empty/deep/": {}, "b/c": text("\x00\xff")}
	put(t, dir, want)
	e, envDir := upload(t, open(t, dir, workspace.Options{}))
	same(t, "in the environment", want, read(t, envDir))

	err := open(t, dir, workspace.Options{}).Upload(t.Context(), e)
	if !errors.Is(err, workspace.ErrNotEmpty) {
		t.Errorf("a second upload: %v, want ErrNotEmpty", err)
	}
}

func TestUploadOfSubdirectory(t *testing.T) {
	needGit(t)
	repo := t.TempDir()
	makeRepository(t, repo)
	put(t, repo, tree{"dir/sub/c": text("c\n")})
	commit(t, repo, "sub")
	w := open(t, filepath.Join(repo, "dir"), workspace.Options{})
	if !slices.ContainsFunc(w.Warnings(), func(n string) bool {
		return strings.Contains(n,
			"without its history")
	}) {
		t.Errorf("notes %q", w.Warnings())
	}
	e, envDir := upload(t, w)
	same(t, "in the environment", tree{"b.txt": text("b\n"), "sub/c": text("c\n")}, read(t, envDir))
	if _, err := os.Lstat(filepath.Join(envDir, ".git")); err == nil {
		t.Error("a .git was uploaded")
	}
	put(t, envDir, tree{"b.txt": text("B\n"), "new": text("n\n")})
	checkWays(t, repo, "dir", changes(t, w, e))
}

func TestUploadIgnored(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	makeRepository(t, dir)
	put(t, dir, tree{
		"x.log": text("x"), "dir/y.log": text("y"), "out/deep/z": text("z"), "out/w.log": text("w"),
		".git/info/exclude": text(".env\n"),
		".env":              text("E=1\n"), "out/.git/config": text("nested"),
	})
	for _, tt := range []struct {
		patterns []string
		want     []string
	}{
		{nil, nil},
		{[]string{"out"}, []string{"out/deep/z", "out/w.log"}},
		{[]string{"out/"}, []string{"out/deep/z", "out/w.log"}},
		{[]string{"out/**"}, []string{"out/deep/z", "out/w.log"}},
		{[]string{"*.log"}, []string{"x.log"}},
		{[]string{"**/*.log", ".env"}, []string{".env", "dir/y.log", "out/w.log", "x.log"}},
	} {
		t.Run(strings.Join(tt.patterns, " "), func(t *testing.T) {
			w := open(t, dir, workspace.Options{UploadIgnored: tt.patterns})
			e, envDir := upload(t, w)
			var got []string
			for name := range read(t, envDir) {
				if !slices.Contains([]string{"a.txt", "dir/b.txt", ".gitignore", "run", "link", "kept.log"},
					name) {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			same(t, "ignored files in the environment", tt.want, got)
			same(t, "status", status(t, dir), status(t, envDir))
			if !changes(t, w, e).Empty() {
				t.Error("unexpected changes")
			}
		})
	}
	for _, bad := range []string{"", "[", "/out"} {
		if _, err := workspace.Open(t.Context(), dir,
			workspace.Options{UploadIgnored: []string{bad}}); err == nil {
			t.Errorf("the pattern %q is accepted", bad)
		}
	}
}

// Rules outside the workspace are in force in the environment too.
func TestRulesOutside(t *testing.T) {
	t.Parallel()
	needGit(t)
	t.Run("subdirectory", func(t *testing.T) {
		repo := t.TempDir()
		makeRepository(t, repo)
		put(t, repo, tree{
			".git/info/exclude": text("*.tmp\n/-dash/made\n"),
			".gitignore":        text("*.log\n/dir/out/\n!not.log\n/dir/-dash/too\n"),
			"dir/.gitignore":    text("!special.log\n"), "dir/-dash/.gitignore": text("!x.log\n"),
			"dir/x.log": text("x"),
		})
		w := open(t, filepath.Join(repo, "dir"), workspace.Options{UploadIgnored: []string{"x.log"}})
		e, envDir := upload(t, w)
		put(t, envDir, tree{
			"a.log": text("l"), "a.tmp": text("t"), "out/x": text("o"), "out/y/z": text("o"),
			"special.log": text("s"), "not.log": text("n"),
			"sub/out/x": text("x"), "sub/b.log": text("l"), "-dash/x.log": text("x"),
			"-dash/special.log": text("s"), "-dash/y.log": text("y"),
			"-dash/too": text("t"), "x.log": text("X"),
		})
		applied, err := changes(t, w, e).Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"-dash/special.log", "-dash/x.log", "not.log", "special.log", "sub/out/x",
			"x.log",
		}
		same(t, "written", want, applied.Written)
	})
	t.Run("linked working tree", func(t *testing.T) {
		dir := t.TempDir()
		makeRepository(t, filepath.Join(dir, "main"))
		linked := filepath.Join(dir, "linked")
		git(t, filepath.Join(dir, "main"), "worktree", "add", "-q", linked)
		put(t, dir, tree{
			"main/.git/info/exclude": text("private\n"), "linked/private": text("p"),
			"linked/dir/private": text("p"),
		})
		w := open(t, linked, workspace.Options{})
		e, envDir := upload(t, w)
		if _, err := os.Lstat(filepath.Join(envDir, "private")); err == nil {
			t.Error("an ignored file was uploaded")
		}
		same(t, "status", status(t, linked), status(t, envDir))
		put(t, envDir, tree{"dir/private": text("n"), "new": text("n")})
		remove(t, envDir, ".git")
		applied, err := changes(t, w, e).Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, "written", []string{"new"}, applied.Written)
	})
	t.Run("submodule", func(t *testing.T) {
		host := makeSubmodules(t, t.TempDir())
		put(t, host, tree{
			".git/modules/lib/outer/info/exclude": text("private\n"), "lib/outer/private": text("p"),
			"lib/outer/dir/x.log": text("x"), "private": text("p"),
			".gitignore": text("above\n"), "lib/outer/above": text("a"), "above": text("a"),
		})
		_, envDir := upload(t, open(t, host, workspace.Options{}))
		for name, want := range map[string]bool{
			"private": true, "lib/outer/private": false,
			"lib/outer/dir/x.log": false, "above": false, "lib/outer/above": true,
		} {
			if _, err := os.Lstat(filepath.Join(envDir, name)); (err == nil) != want {
				t.Errorf("%s was uploaded: %v, want %v", name, err == nil, want)
			}
		}
	})
}

// failing ends an upload with an error, or waits for its end.
type failing struct {
	env.Environment
	err error
}

func (f failing) CopyIn(ctx context.Context, _ string, r io.Reader) error {
	if _, err := io.CopyN(io.Discard, r, 10); err != nil {
		return err
	}
	if f.err != nil {
		return f.err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestUploadEnds(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, tree{"big": text(strings.Repeat("x", 1<<20))})
	w := open(t, dir, workspace.Options{})
	e, _ := newEnvironment(t)
	want := errors.New("the environment is on fire")
	if err := w.Upload(t.Context(), failing{e, want}); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(want) })
	if err := w.Upload(ctx, failing{e, nil}); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
	if _, err := workspace.Open(t.Context(), filepath.Join(dir, "missing"),
		workspace.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	if _, err := workspace.Open(t.Context(), filepath.Join(dir, "big"),
		workspace.Options{}); !errors.Is(err, env.ErrNotDir) {
		t.Errorf("a file: %v", err)
	}
}

func TestNoteOfFilters(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	put(t, dir, tree{".gitattributes": text("*.bin filter=lfs -text\n")})
	if notes := open(t, dir, workspace.Options{}).Warnings(); len(notes) != 1 ||
		!strings.Contains(notes[0], "filters") {
		t.Errorf("notes %q", notes)
	}
}
