package workspace_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// makeMirror makes a bare repository with a secret in its configuration.
func makeMirror(t testing.TB, dir string) {
	t.Helper()
	put(t, dir, tree{"refs/heads/.keep": text(""), "objects/.keep": text("")})
	git(t, filepath.Dir(dir), "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.extraheader", "AUTHORIZATION: "+canary)
}

// noCanary checks that no file below a directory has the canary, even in a .git.
func noCanary(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(p)
		if bytes.Contains(content, []byte(canary)) {
			t.Errorf("%s has the canary", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// nothingComesBack changes files in a directory of a version control system, and another file, and
// checks that only the latter is among the changes.
func nothingComesBack(
	t *testing.T, w *workspace.Workspace, e env.Environment, host, envDir, dir string,
) {
	t.Helper()
	was := read(t, filepath.Join(host, dir))
	put(t, envDir, tree{
		dir + "/hooks/post-checkout": {Content: "evil", Executable: true}, dir +
			"/config": text("evil"),
		dir + "/hgrc": text("evil"), "edited": text("E"),
	})
	c := changes(t, w, e)
	var patch bytes.Buffer
	if _, err := c.WritePatch(t.Context(), &patch); err != nil || strings.Contains(patch.String(),
		"evil") {
		t.Errorf("%v\n%s", err, patch.Bytes())
	}
	applied, err := c.Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "written", workspace.Applied{Written: []string{"edited"}}, applied)
	same(t, "what is kept", was, read(t, filepath.Join(host, dir)))
}

// Directories of version control systems, whatever their names, are neither uploaded nor changed.
func TestControlDirsStay(t *testing.T) {
	t.Parallel()
	needGit(t)
	withTree := func(bare string) func(*testing.T, string) {
		return func(t *testing.T, host string) {
			makeRepository(t, filepath.Join(host, "seed"))
			git(t, host, "clone", "-q", "--bare", "seed", ".bare")
			remove(t, host, "seed")
			git(t, filepath.Join(host, ".bare"), "config", "core.bare", bare)
			git(t, filepath.Join(host, ".bare"), "config", "http.extraheader", "AUTHORIZATION: "+canary)
			put(t, host, tree{".git": text("gitdir: ./.bare\n")})
			if bare == "false" {
				git(t, host, "reset", "-q", "--hard")
			}
		}
	}
	for _, tt := range []struct {
		name   string
		make   func(t *testing.T, host string)
		ignore []string
		// dir is the one that stays; whole is true if git works in the environment.
		dir   string
		whole bool
	}{
		{name: "bare beside the working tree", make: withTree("false"), dir: ".bare", whole: true},
		{name: "bare with core.bare", make: withTree("true"), dir: ".bare"},
		{name: "separate directory", make: func(t *testing.T, host string) {
			put(t, host, tree{"deep/": {}})
			git(t, host, "init", "-q", "-b", "main", "--separate-git-dir="+filepath.Join(host, "deep/repo"))
			git(t, host, "config", "http.extraheader", "AUTHORIZATION: "+canary)
			git(t, host, "-c", "user.name=host", "-c", "user.email=host@example.com", "commit", "-q",
				"--allow-empty", "-m", "first")
		}, dir: "deep/repo", whole: true},
		{name: "mirror", make: func(t *testing.T, host string) {
			makeRepository(t, host)
			makeMirror(t, filepath.Join(host, "dir/mirror.git"))
		}, dir: "dir/mirror.git", whole: true},
		{name: "tracked mirror", make: func(t *testing.T, host string) {
			makeMirror(t, filepath.Join(host, "mirror.git"))
			git(t, host, "init", "-q", "-b", "main")
			git(t, host, "add", "-f", ".")
			commit(t, host, "first")
		}, dir: "mirror.git"},
		{name: "ignored mirror", make: func(t *testing.T, host string) {
			makeRepository(t, host)
			makeMirror(t, filepath.Join(host, "out/mirror.git"))
			put(t, host, tree{"out/x": text("x")})
		}, ignore: []string{"out"}, dir: "out/mirror.git"},
		{name: "mercurial", make: func(t *testing.T, host string) {
			put(t, host, tree{"a": text("a"), "sub/.hg/hgrc": text("[auth]\nx.password = " + canary)})
		}, dir: "sub/.hg"},
		{name: "subversion", make: func(t *testing.T, host string) {
			put(t, host, tree{"a": text("a"), ".SVN/auth/x": text(canary)})
		}, dir: ".SVN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := t.TempDir()
			tt.make(t, host)
			put(t, host, tree{"edited": text("e")})
			w := open(t, host, workspace.Options{UploadIgnored: tt.ignore})
			if !slices.ContainsFunc(w.Warnings(), func(n string) bool {
				return strings.HasPrefix(n,
					tt.dir+" ")
			}) {
				t.Errorf("notes %q", w.Warnings())
			}
			e, envDir := upload(t, w)
			noCanary(t, envDir)
			if _, err := os.Lstat(filepath.Join(envDir, tt.dir)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s was uploaded", tt.dir)
			}
			if _, err := os.Lstat(filepath.Join(envDir, ".git")); err == nil &&
				tt.name == "bare with core.bare" {
				t.Error("a bare repository was uploaded as that of a working tree")
			}
			if out, err := tryGit(envDir, nil, "status", "--porcelain"); tt.whole && (err != nil ||
				strings.Contains(out, " D ")) {
				t.Errorf("%v\n%s", err, out)
			}
			nothingComesBack(t, w, e, host, envDir, tt.dir)
		})
	}
}

func TestOpenRefusesGitDir(t *testing.T) {
	t.Parallel()
	needGit(t)
	dir := t.TempDir()
	makeMirror(t, filepath.Join(dir, "mirror.git"))
	makeRepository(t, filepath.Join(dir, "repo"))
	git(t, filepath.Join(dir, "repo"), "worktree", "add", "-q", filepath.Join(dir, "mirror.git/tree"))
	for name, want := range map[string]bool{
		"mirror.git": false, "mirror.git/refs": false,
		"repo/.git": false, "repo/.git/hooks": false, "repo": true, "mirror.git/tree": true,
	} {
		w, err := workspace.Open(t.Context(), filepath.Join(dir, name), workspace.Options{})
		if errors.Is(err, workspace.ErrGitDir) == want || want && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Apply never makes a directory of the host a git directory.
func TestNewGitDirs(t *testing.T) {
	t.Parallel()
	needGit(t)
	parts := func(dir string, names ...string) tree {
		files := tree{}
		for _, name := range names {
			files[dir+name] = text("evil")
		}
		return files
	}
	for _, tt := range []struct {
		name         string
		host, envDir tree
		want         []string
	}{
		{"new", nil, parts("x/y/", "HEAD", "objects/a", "refs/b", "config", "hooks/h"), nil},
		{"letter case", nil, parts("x/", "head", "OBJECTS/a", "Refs/b", "config"), nil},
		{"other file systems", nil, parts("x/", "HE\u200cAD", "objects. /a", "refs./b", "config"), nil},
		{"common directory elsewhere", nil, parts("x/", "HEAD", "commondir", "config"), nil},
		{
			"the workspace itself", nil, parts("", "HEAD", "objects/a", "refs/b", "config"),
			[]string{"config"},
		},
		{
			"directories of the host",
			tree{"d/objects/": {}, "d/refs/": {}},
			parts("d/", "HEAD", "config"),
			nil,
		},
		{"ignored directories of the host", tree{
			".gitignore": text("refs\n"), "d/refs/x": text(""),
			"d/objects/y": text(""),
		}, parts("d/", "HEAD", "objects/z"), nil},
		{"HEAD of the host", tree{"d/HEAD": text("h"), "d/kept": text("k")}, parts("d/", "objects/a",
			"refs/b", "kept"), []string{"d/kept"}},
		{"a part", nil, parts("x/", "HEAD", "objects/a", "config"), []string{
			"x/HEAD", "x/config",
			"x/objects/a",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := t.TempDir()
			put(t, host, tree{"a": text("a")})
			put(t, host, tt.host)
			w := open(t, host, workspace.Options{})
			e, envDir := upload(t, w)
			put(t, envDir, tree{"a": text("A")})
			put(t, envDir, tt.envDir)
			c := changes(t, w, e)
			if (len(c.Warnings()) > 0) != (tt.name != "a part") {
				t.Errorf("notes %q", c.Warnings())
			}
			want := append([]string{"a"}, tt.want...)
			slices.Sort(want)
			var patch bytes.Buffer
			stats, err := c.WritePatch(t.Context(), &patch)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range stats.Files {
				names = append(names, f.Path)
			}
			same(t, "in the patch", want, names)
			applied, err := c.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			same(t, "applied", workspace.Applied{Written: want}, applied)
		})
	}
}

// Apply considers files that appear on the host after the comparison.
func TestGitDirAcrossHost(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	put(t, host, tree{"a": text("a")})
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	put(t, envDir, tree{"d/HEAD": text("h")})
	c := changes(t, w, e)
	put(t, host, tree{"d/objects/": {}, "d/refs/": {}})
	if _, err := c.Apply(t.Context()); !errors.Is(err, workspace.ErrGit) {
		t.Errorf("%v, want ErrGit", err)
	}
}

// An unreadable file counts neither as unchanged nor as deleted.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	if os.Getuid() <= 0 {
		t.Skip("permissions do not bind root, and windows has others")
	}
	host := t.TempDir()
	put(t, host, tree{"a": text("a"), "d/b": text("b"), "secret": text("s")})
	if err := os.Chmod(filepath.Join(host, "secret"), 0); err != nil {
		t.Fatal(err)
	}
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	put(t, envDir, tree{"a": text("A"), "new": text("n")})
	for _, name := range []string{"a", "d"} {
		if err := os.Chmod(filepath.Join(envDir, name), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(envDir, name), 0o700) })
	}
	c := changes(t, w, e)
	same(t, "unreadable", []string{"a", "d"}, c.Unreadable())
	if _, err := c.Apply(t.Context()); !errors.Is(err, workspace.ErrUnreadable) {
		t.Errorf("%v, want ErrUnreadable", err)
	}
	if _, err := os.Lstat(filepath.Join(host, "new")); err == nil {
		t.Error("the host was touched")
	}
}

// Open resolves symlinks in the path.
func TestOpenThroughSymlink(t *testing.T) {
	t.Parallel()
	needGit(t)
	dir := t.TempDir()
	repo := filepath.Join(dir, "repo")
	makeRepository(t, repo)
	put(t, repo, tree{"dir/x.log": text("ignored")})
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(repo, "dir"), link); err != nil {
		t.Fatal(err)
	}
	w := open(t, link, workspace.Options{})
	e, envDir := upload(t, w)
	same(t, "in the environment", tree{"b.txt": text("b\n")}, read(t, envDir))
	put(t, envDir, tree{"b.txt": text("B\n"), "y.log": text("ignored")})
	checkWays(t, repo, "dir", changes(t, w, e))
}
