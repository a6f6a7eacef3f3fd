package workspace_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// makeSubmodules makes a repository with a populated submodule, which has a submodule too, and an
// unpopulated one.
func makeSubmodules(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range []string{"inner", "outer", "absent"} {
		makeRepository(t, filepath.Join(dir, name))
	}
	git(t, filepath.Join(dir, "outer"), "submodule", "--quiet", "add", filepath.Join(dir, "inner"),
		"in")
	commit(t, filepath.Join(dir, "outer"), "with a submodule")
	host := filepath.Join(dir, "host")
	makeRepository(t, host)
	for _, name := range []string{"outer", "absent"} {
		git(t, host, "submodule", "--quiet", "add", filepath.Join(dir, name), "lib/"+name)
	}
	git(t, host, "submodule", "--quiet", "update", "--init", "--recursive")
	commit(t, host, "with submodules")
	git(t, host, "submodule", "--quiet", "deinit", "-f", "lib/absent")
	put(t, filepath.Join(host, "lib/outer"), tree{
		"x.log":     text("ignored"),
		"untracked": text("u\n"),
	})
	return host
}

func TestUploadOfSubmodules(t *testing.T) {
	t.Parallel()
	needGit(t)
	host := makeSubmodules(t, t.TempDir())
	w := open(t, host, workspace.Options{})
	if len(w.Warnings()) > 0 {
		t.Errorf("notes %q", w.Warnings())
	}
	e, envDir := upload(t, w)
	same(t, "submodules", git(t, host, "submodule", "status", "--recursive"), git(t, envDir,
		"submodule", "status", "--recursive"))
	for _, name := range []string{"lib/outer/in", "lib/outer"} {
		if _, err := os.Lstat(filepath.Join(envDir, name, "kept.log")); err != nil {
			t.Errorf("in %s a tracked, ignored file is missing: %v", name, err)
		}
	}
	put(t, envDir, tree{
		"lib/outer/a.txt": text("changed\n"), "lib/outer/in/new": text("n\n"),
		"lib/absent/new": text("n\n"),
	})
	c := changes(t, w, e)
	if err := os.Remove(filepath.Join(envDir, "lib/outer/in/new")); err != nil {
		t.Fatal(err)
	}
	put(t, envDir, tree{"lib/outer/a.txt": text("two\n")})
	remove(t, envDir, "lib/absent/new")
	for _, name := range []string{"lib/outer/in", "lib/outer", "."} {
		sameGit(t, filepath.Join(host, name), filepath.Join(envDir, name))
		git(t, filepath.Join(envDir, name), "reset", "-q", "--hard", "HEAD~1")
		put(t, filepath.Join(envDir, "lib/outer"), tree{"untracked": text("u\n")})
	}
	checkWays(t, host, "", c)
	same(t, "in the submodule", "?? untracked", strings.TrimSpace(git(t, filepath.Join(host,
		"lib/outer"), "status", "--porcelain", "untracked")))
	if content, err := os.ReadFile(filepath.Join(host, "lib/outer/a.txt")); err != nil ||
		string(content) != "changed\n" {
		t.Errorf("%q %v", content, err)
	}
}

// A directory inside a repository is uploaded with its submodules, and so is a submodule as the
// workspace, in a linked working tree too.
func TestUploadOfPartsWithSubmodules(t *testing.T) {
	t.Parallel()
	needGit(t)
	host := makeSubmodules(t, t.TempDir())
	_, envDir := upload(t, open(t, filepath.Join(host, "lib"), workspace.Options{}))
	sameGit(t, filepath.Join(host, "lib/outer/in"), filepath.Join(envDir, "outer/in"))
	_, envDir = upload(t, open(t, filepath.Join(host, "lib/outer"), workspace.Options{}))
	sameGit(t, filepath.Join(host, "lib/outer/in"), filepath.Join(envDir, "in"))

	linked := filepath.Join(filepath.Dir(host), "linked")
	git(t, host, "worktree", "add", "-q", linked)
	git(t, linked, "submodule", "--quiet", "update", "--init", "--recursive", "lib/outer")
	w := open(t, linked, workspace.Options{})
	if len(w.Warnings()) > 0 {
		t.Errorf("notes %q", w.Warnings())
	}
	_, envDir = upload(t, w)
	for _, name := range []string{"lib/outer/in", "lib/outer", "."} {
		sameGit(t, filepath.Join(linked, name), filepath.Join(envDir, name))
		git(t, filepath.Join(envDir, name), "reset", "-q", "--hard", "HEAD~1")
	}
}

// A submodule in an ignored directory is uploaded empty, so that git does not report it as deleted.
func TestUploadOfIgnoredSubmodule(t *testing.T) {
	t.Parallel()
	needGit(t)
	dir := t.TempDir()
	makeRepository(t, filepath.Join(dir, "inner"))
	host := filepath.Join(dir, "host")
	makeRepository(t, host)
	git(t, host, "submodule", "--quiet", "add", "-f", filepath.Join(dir, "inner"), "out/inner")
	commit(t, host, "with a submodule")
	w := open(t, host, workspace.Options{})
	if !slices.ContainsFunc(w.Warnings(), func(n string) bool {
		return strings.Contains(n,
			"is uploaded empty")
	}) {
		t.Errorf("notes %q", w.Warnings())
	}
	_, envDir := upload(t, w)
	same(t, "status", status(t, host), status(t, envDir))
}

// Repositories inside the workspace are not trusted: they refer to no other repository.
func TestInnerRepositoriesLeadNowhere(t *testing.T) {
	t.Parallel()
	needGit(t)
	for _, tt := range []struct {
		name string
		make func(t *testing.T, inner, private string)
		note string
	}{
		{"file", func(t *testing.T, inner, private string) {
			put(t, inner, tree{".git": text("gitdir: " + private + "/.git\n")})
			git(t, private, "config", "core.worktree", inner)
		}, "not the directory for submodules"},
		{"link", func(t *testing.T, inner, private string) {
			put(t, inner, tree{".git": {Target: private + "/.git"}})
		}, "is a symlink"},
		{"common directory", func(t *testing.T, inner, private string) {
			git(t, inner, "init", "-q")
			put(t, inner, tree{".git/commondir": text(private + "/.git\n")})
		}, "git worktree repair"},
		{"linked working tree", func(t *testing.T, inner, private string) {
			remove(t, inner, "file")
			git(t, private, "worktree", "add", "-q", inner)
			remove(t, inner, "kept.log")
		}, "it is a linked working tree"},
		{"alternates", func(t *testing.T, inner, private string) {
			git(t, inner, "init", "-q")
			put(t, inner, tree{".git/objects/info/alternates": text(private + "/.git/objects\n")})
		}, "borrows"},
		{"link to objects", func(t *testing.T, inner, private string) {
			git(t, inner, "init", "-q")
			remove(t, inner, ".git/objects")
			put(t, inner, tree{".git/objects": {Target: private + "/.git/objects"}})
		}, "escapes"},
		{"link to references", func(t *testing.T, inner, private string) {
			git(t, inner, "init", "-q")
			put(t, inner, tree{".git/packed-refs": {Target: private + "/.git/config"}})
		}, "escapes"},
		{"nowhere", func(t *testing.T, inner, _ string) {
			put(t, inner, tree{".git": text("gitdir: ../missing\n")})
		}, "not a git repository"},
		{"nonsense", func(t *testing.T, inner, _ string) {
			put(t, inner, tree{".git": text("nonsense")})
		}, "neither a directory nor"},
		{"pipe", func(t *testing.T, inner, _ string) {
			git(t, inner, "init", "-q")
			remove(t, inner, ".git/config")
			makePipe(t, filepath.Join(inner, ".git/config"))
		}, "not a regular file"},
		{"unknown extension", func(t *testing.T, inner, _ string) {
			git(t, inner, "init", "-q")
			git(t, inner, "config", "extensions.refstorage", "reftable")
		}, "git refs migrate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			private := filepath.Join(dir, "private")
			makeRepository(t, private)
			host := filepath.Join(dir, "host")
			makeRepository(t, host)
			inner := filepath.Join(host, "inner")
			put(t, inner, tree{"file": text("f\n")})
			tt.make(t, inner, private)
			w := open(t, host, workspace.Options{})
			if notes := w.Warnings(); len(notes) != 1 || !strings.Contains(notes[0], "inner") ||
				!strings.Contains(notes[0], tt.note) {
				t.Errorf("notes %q, want one with %q", notes, tt.note)
			}
			_, envDir := upload(t, w)
			if _, err := os.Lstat(filepath.Join(envDir, "inner/.git")); err == nil {
				t.Error("the repository was uploaded")
			}
			same(t, "in the environment", read(t, host), read(t, envDir))
		})
	}
}

func TestBrokenRepositories(t *testing.T) {
	needGit(t)
	for _, tt := range []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"missing directory", func(t *testing.T, dir string) {
			put(t, dir, tree{".git": text("gitdir: /missing/dir\n")})
		}, "git worktree repair"},
		{"reftable", func(t *testing.T, dir string) {
			makeRepository(t, dir)
			git(t, dir, "config", "extensions.refStorage", "reftable")
		}, "git refs migrate"},
		{"unknown extension", func(t *testing.T, dir string) {
			makeRepository(t, dir)
			git(t, dir, "config", "extensions.future", "x")
		}, `extension "future"`},
		{"malformed configuration", func(t *testing.T, dir string) {
			makeRepository(t, dir)
			put(t, dir, tree{".git/config": text("[core\n")})
		}, "malformed"},
		{"malformed index", func(t *testing.T, dir string) {
			makeRepository(t, dir)
			put(t, dir, tree{".git/index": text("DIRCxx")})
		}, "git read-tree"},
		{"malformed HEAD", func(t *testing.T, dir string) {
			makeRepository(t, dir)
			put(t, dir, tree{".git/HEAD": text("ref: ../../etc/passwd\n")})
		}, "HEAD"},
		{"objects borrowed from nowhere", func(t *testing.T, dir string) {
			makeRepository(t, dir)
			put(t, dir, tree{".git/objects/info/alternates": text("../../../missing\n")})
		}, "borrows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(t, dir)
			w, err := workspace.Open(t.Context(), dir, workspace.Options{SpoolDir: t.TempDir()})
			if err == nil {
				e, _ := newEnvironment(t)
				err = w.Upload(t.Context(), e)
				if cerr := w.Close(); cerr != nil {
					t.Error(cerr)
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want the directory and %q", err, tt.want)
			}
		})
	}
}
