package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// makePrivate makes a repository with the canary in a file, and returns the ID of its object.
func makePrivate(t *testing.T, dir string) string {
	t.Helper()
	makeRepository(t, dir)
	put(t, dir, tree{"private.txt": text(canary + "\n")})
	commit(t, dir, "private")
	return strings.TrimSpace(git(t, dir, "rev-parse", "HEAD:private.txt"))
}

// lacksObject checks that no repository of an environment has an object.
func lacksObject(t *testing.T, envDir, id string) {
	t.Helper()
	for _, dir := range []string{".", "inner"} {
		dir = filepath.Join(envDir, dir)
		if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
			continue
		}
		if out, err := tryGit(dir, nil, "cat-file", "-p", id); err == nil {
			t.Errorf("the repository in %s has an object of another one: %s", dir, out)
		}
	}
}

// A repository in the workspace, or its own, that leads to another one, uploads nothing of that.
func TestUploadOfForeignRepositories(t *testing.T) {
	t.Parallel()
	needGit(t)
	alternates := func(content string) func(*testing.T, string, string) {
		return func(t *testing.T, host, private string) {
			makeRepository(t, host)
			put(t, host, tree{".git/objects/info/alternates": text(strings.ReplaceAll(content, "PRIVATE",
				private+"/.git/objects") + "\n")})
		}
	}
	for _, tt := range []struct {
		name string
		make func(t *testing.T, host, private string)
		note string
	}{
		{"file", func(t *testing.T, host, private string) {
			put(t, host, tree{".git": text("gitdir: " + private + "/.git\n")})
		}, "config core.worktree"},
		{"relative file", func(t *testing.T, host, _ string) {
			put(t, host, tree{".git": text("gitdir: ../private/.git\n")})
		}, "config core.worktree"},
		{"symlink", func(t *testing.T, host, private string) {
			put(t, host, tree{".git": {Target: private + "/.git"}})
		}, "config core.worktree"},
		{"symlink through the workspace", func(t *testing.T, host, private string) {
			put(t, host, tree{"d": {Target: private}, ".git": text("gitdir: d/.git\n")})
		}, "config core.worktree"},
		{"common directory", func(t *testing.T, host, private string) {
			makeRepository(t, host)
			put(t, host, tree{".git/commondir": text(private + "/.git\n")})
		}, "git worktree repair"},
		{"made-up linked tree", func(t *testing.T, host, private string) {
			put(t, host, tree{
				".git":                     text("gitdir: evil/worktrees/x\n"),
				"evil/worktrees/x/gitdir":  text(filepath.Join(host, ".git") + "\n"),
				"evil/worktrees/x/HEAD":    text("ref: refs/heads/main\n"),
				"evil/worktrees/commondir": text("..\n"),
			})
			put(t, host, tree{"evil/worktrees/x/commondir": text(private + "/.git\n")})
		}, "git worktree repair"},
		{"linked tree of another", func(t *testing.T, host, private string) {
			git(t, private, "worktree", "add", "-q", "../other")
			put(t, host, tree{".git": text("gitdir: " + private + "/.git/worktrees/other\n")})
		}, "git worktree repair"},
		{"alternates", alternates("PRIVATE"), "git repack -a -d"},
		{"relative alternates", alternates("# x\n../../../private/.git/objects"), "git repack -a -d"},
		{"quoted alternates", alternates(`"PRIVATE"`), "git repack -a -d"},
		{"alternates of alternates", func(t *testing.T, host, private string) {
			alternates("../../deep/objects")(t, host, private)
			put(t, host, tree{"deep/objects/info/alternates": text(private + "/.git/objects\n")})
		}, "git repack -a -d"},
		{"alternates through a symlink", func(t *testing.T, host, private string) {
			alternates("../../deep")(t, host, private)
			put(t, host, tree{"deep": {Target: private + "/.git/objects"}})
		}, "git repack -a -d"},
		{"module of another submodule", func(t *testing.T, host, private string) {
			makeRepository(t, host)
			git(t, host, "submodule", "--quiet", "add", private, "sub")
			commit(t, host, "sub")
			git(t, host, "submodule", "--quiet", "deinit", "-f", "sub")
			put(t, host, tree{"inner/.git": text("gitdir: ../.git/modules/sub\n"), "inner/x": text("x")})
		}, "config core.worktree"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			host, private := filepath.Join(dir, "host"), filepath.Join(dir, "private")
			id := makePrivate(t, private)
			tt.make(t, host, private)
			put(t, host, tree{"file": text("f\n")})
			w := open(t, host, workspace.Options{})
			if notes := strings.Join(w.Warnings(), "\n"); !strings.Contains(notes, tt.note) ||
				!strings.Contains(notes, "without its git repository") {
				t.Errorf("notes %q, want one with %q", notes, tt.note)
			}
			e, envDir := upload(t, w)
			lacksObject(t, envDir, id)
			put(t, envDir, tree{"file": text("F\n")})
			if applied, err := changes(t, w, e).Apply(t.Context()); err != nil {
				t.Error(err)
			} else {
				same(t, "applied", workspace.Applied{Written: []string{"file"}}, applied)
			}
		})
	}
}

// Alternates that change after Open upload nothing either.
func TestUploadOfLateAlternates(t *testing.T) {
	t.Parallel()
	needGit(t)
	dir := t.TempDir()
	host, private := filepath.Join(dir, "host"), filepath.Join(dir, "private")
	id := makePrivate(t, private)
	makeRepository(t, host)
	w := open(t, host, workspace.Options{})
	put(t, host, tree{".git/objects/info/alternates": text(private + "/.git/objects\n")})
	e, envDir := newEnvironment(t)
	if err := w.Upload(t.Context(), e); err == nil || !strings.Contains(err.Error(),
		"private/.git/objects") {
		t.Errorf("%v, want an error that names the other store", err)
	}
	lacksObject(t, envDir, id)
}

// Repositories outside of the workspace are uploaded if they name it as their working tree.
func TestUploadOfOwnRepositories(t *testing.T) {
	t.Parallel()
	needGit(t)
	separate := func(t *testing.T, dir string) (host, repo string) {
		host, repo = filepath.Join(dir, "host"), filepath.Join(dir, "repo")
		makeRepository(t, host)
		git(t, dir, "init", "-q", "--separate-git-dir="+repo, host)
		return host, repo
	}
	linked := func(t *testing.T, dir string) string {
		makeRepository(t, filepath.Join(dir, "main"))
		git(t, filepath.Join(dir, "main"), "worktree", "add", "-q", "../linked")
		return filepath.Join(dir, "linked")
	}
	for _, tt := range []struct {
		name string
		// make makes a repository and returns its working tree.
		make func(t *testing.T, dir string) string
		// mend makes a refused one a good one; nil if it is good as made.
		mend func(t *testing.T, dir, host string)
	}{
		{"separate directory", func(t *testing.T, dir string) string {
			host, _ := separate(t, dir)
			return host
		}, func(t *testing.T, dir, host string) {
			git(t, dir, "--git-dir="+filepath.Join(dir, "repo"), "config", "core.worktree", host)
		}},
		{"separate directory by symlink", func(t *testing.T, dir string) string {
			host, repo := separate(t, dir)
			put(t, host, tree{".git": {Target: repo}})
			git(t, host, "config", "core.worktree", "../host")
			return host
		}, nil},
		{"symlink to a directory in the workspace", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			git(t, dir, "init", "-q", "--separate-git-dir="+filepath.Join(dir, "deep"))
			put(t, dir, tree{".git": {Target: "deep"}, "deep/info/exclude": text("/deep/\n")})
			return dir
		}, nil},
		{"core.worktree of one working tree", func(t *testing.T, dir string) string {
			host, repo := separate(t, dir)
			git(t, host, "config", "extensions.worktreeConfig", "true")
			put(t, repo, tree{"config.worktree": text("[core]\n\tworktree = ../host\n")})
			return host
		}, nil},
		{"moved linked tree", func(t *testing.T, dir string) string {
			moved := filepath.Join(dir, "moved")
			if err := os.Rename(linked(t, dir), moved); err != nil {
				t.Fatal(err)
			}
			return moved
		}, func(t *testing.T, dir, host string) {
			git(t, filepath.Join(dir, "main"), "worktree", "repair", host)
		}},
		{"relative linked tree", func(t *testing.T, dir string) string {
			host := linked(t, dir)
			put(t, host, tree{".git": text("gitdir: ../main/.git/worktrees/linked\n")})
			put(t, dir, tree{"main/.git/worktrees/linked/gitdir": text("../../../../linked/.git\n")})
			return host
		}, nil},
		{"linked tree of a bare repository", func(t *testing.T, dir string) string {
			makeRepository(t, filepath.Join(dir, "origin"))
			git(t, dir, "clone", "-q", "--bare", "origin", "bare.git")
			git(t, filepath.Join(dir, "bare.git"), "worktree", "add", "-q", "../host")
			return filepath.Join(dir, "host")
		}, nil},
		{"borrowed objects", func(t *testing.T, dir string) string {
			makeRepository(t, filepath.Join(dir, "origin"))
			git(t, dir, "clone", "-q", "--reference", "origin", "--shared", "origin", "host")
			return filepath.Join(dir, "host")
		}, func(t *testing.T, _, host string) {
			git(t, host, "repack", "-q", "-a", "-d")
			remove(t, host, ".git/objects/info/alternates")
		}},
		{"objects borrowed within the workspace", func(t *testing.T, dir string) string {
			makeRepository(t, dir)
			put(t, dir, tree{"store/": {}})
			copyTree(t, filepath.Join(dir, ".git/objects"), filepath.Join(dir, "store"))
			remove(t, dir, ".git/objects")
			put(t, dir, tree{".git/objects/info/alternates": text("../../store\n")})
			return dir
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			host := tt.make(t, dir)
			if tt.mend != nil {
				w := open(t, host, workspace.Options{})
				if notes := strings.Join(w.Warnings(), "\n"); !strings.Contains(notes,
					"without its git repository") {
					t.Errorf("notes %q", notes)
				}
				_, envDir := upload(t, w)
				same(t, "in the environment", read(t, host), read(t, envDir))
				tt.mend(t, dir, host)
			}
			_, envDir := upload(t, open(t, host, workspace.Options{}))
			sameGit(t, host, envDir)
		})
	}
}

// The ignore rules of a repository apply that is not uploaded.
func TestRulesOfRefusedRepositories(t *testing.T) {
	t.Parallel()
	needGit(t)
	for name, make := range map[string]func(t *testing.T, dir, host string){
		"separate": func(t *testing.T, dir, host string) {
			git(t, dir, "init", "-q", "--separate-git-dir=repo", host)
		},
		"borrowed": func(t *testing.T, dir, host string) {
			makeRepository(t, filepath.Join(dir, "other"))
			put(t, host, tree{".git/objects/info/alternates": text(dir + "/other/.git/objects\n")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			host := filepath.Join(dir, "host")
			makeRepository(t, host)
			put(t, host, tree{
				".git/info/exclude": text("/hidden\n/dir/hidden\n"), "hidden": text(canary),
				"dir/hidden": text(canary),
			})
			make(t, dir, host)
			for _, part := range []string{".", "dir"} {
				w := open(t, filepath.Join(host, part), workspace.Options{})
				e, envDir := upload(t, w)
				put(t, envDir, tree{"hidden": text("x"), "new": text("x")})
				if _, err := os.Stat(filepath.Join(envDir, ".git")); err == nil {
					t.Error("the repository was uploaded")
				}
				noCanary(t, envDir)
				var patch strings.Builder
				if _, err := changes(t, w, e).WritePatch(t.Context(), &patch); err != nil ||
					strings.Contains(patch.String(), "/hidden") || !strings.Contains(patch.String(), "/new") {
					t.Errorf("%s: %v\n%s", part, err, patch.String())
				}
			}
		})
	}
}
