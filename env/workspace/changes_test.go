package workspace_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// checkWays applies changes to the workspace, the directory sub of top, with git apply in a copy of
// top and with Apply, and compares the results.
func checkWays(t *testing.T, top, sub string, c *workspace.Changes) {
	t.Helper()
	var patch bytes.Buffer
	if _, err := c.WritePatch(t.Context(), &patch); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "copy")
	copyTree(t, top, other)
	if patch.Len() > 0 {
		if out, err := tryGit(other, patch.Bytes(), "-C", filepath.Join(other, sub), "apply",
			"--whitespace=nowarn", "-"); err != nil {
			t.Fatalf("git apply: %v\n%s\n%.2000s", err, out, patch.Bytes())
		}
	}
	if _, err := c.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "git apply and Apply differ", read(t, other), read(t, top))
}

func remove(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRoundTrips(t *testing.T) {
	needGit(t)
	nasty := []string{
		"with space", " leading", "new\nline", "tab\t", "ünïcödé", "inv\xffalid",
		"quo\"te", "back\\slash", "-dash", "a/b c/d", "*", "#",
	}
	many := func(content string) tree {
		files := tree{}
		for _, name := range nasty {
			files[name] = text(content + strings.Repeat("line\n", 10) + name)
		}
		return files
	}
	tests := []struct {
		name   string
		before tree
		change func(t *testing.T, dir string)
	}{
		{"nothing", tree{"a": text("a")}, func(*testing.T, string) {}},
		{"edit", tree{"a": text("a\n"), "b": text("b\n")}, func(t *testing.T, dir string) {
			put(t, dir,
				tree{"a": text("A\n")})
		}},
		{"untracked", tree{"a": text("a")}, func(t *testing.T, dir string) {
			put(t, dir,
				tree{"x/y/z": text("z")})
		}},
		{"binary", tree{"a": text("\x00\x01")}, func(t *testing.T, dir string) {
			put(t, dir,
				tree{"a": text("\x00\x02"), "b": text("\xff\x00")})
		}},
		{"mode", tree{"a": text("a"), "b": {Content: "b", Executable: true}}, func(t *testing.T,
			dir string,
		) {
			put(t, dir, tree{"a": {Content: "a", Executable: true}, "b": text("b")})
		}},
		{"rename", tree{"old": text("content\n")}, func(t *testing.T, dir string) {
			remove(t, dir, "old")
			put(t, dir, tree{"in/new": text("content\n")})
		}},
		{"delete", tree{"a": text("a"), "d/e/f": text("f"), "d/g": text("g")}, func(t *testing.T,
			dir string,
		) {
			remove(t, dir, "d/e")
		}},
		{"delete everything", tree{"a": text("a"), "d/e/f": text("f")}, func(t *testing.T,
			dir string,
		) {
			remove(t, dir, "a", "d")
		}},
		{"link", tree{"a": text("a"), "l": {Target: "a"}, "m": {Target: "a"}}, func(t *testing.T,
			dir string,
		) {
			remove(t, dir, "m")
			put(t, dir, tree{"l": {Target: "b"}, "d/n": {Target: "../a"}})
		}},
		{"file becomes link and back", tree{"a": text("a\n"), "l": {Target: "a"}}, func(t *testing.T,
			dir string,
		) {
			put(t, dir, tree{"a": {Target: "x"}, "l": {Content: "l\n", Executable: true}})
		}},
		{"file becomes directory", tree{"d": text("d\n"), "e": {Target: "d"}}, func(t *testing.T,
			dir string,
		) {
			remove(t, dir, "d", "e")
			put(t, dir, tree{"d/x/y": text("y\n"), "e/z": text("z\n")})
		}},
		{
			"directory becomes file",
			tree{"d/x/y": text("y\n"), "d/z": text("z\n"), "e/f": text("f")},
			func(t *testing.T, dir string) {
				remove(t, dir, "d", "e")
				put(t, dir, tree{"d": text("d\n"), "e": {Target: "d"}})
			},
		},
		{"empty directory becomes file", tree{"d/": {}, "f/": {}, "kept": text("k")}, func(t *testing.T,
			dir string,
		) {
			remove(t, dir, "d", "f")
			put(t, dir, tree{"d": text("d\n"), "f": {Target: "d"}})
		}},
		{"line ends", tree{"a": text("a\r\nb\r\n"), "b": text("a\nb\n")}, func(t *testing.T, dir string) {
			put(t, dir, tree{"a": text("a\r\nB\r\n"), "b": text("a\r\nb\r\n")})
		}},
		{"emptied", tree{"a": text("a\n"), "b": text("")}, func(t *testing.T, dir string) {
			put(t, dir,
				tree{"a": text(""), "b": text("b")})
		}},
		{"nasty names", many("old\n"), func(t *testing.T, dir string) { put(t, dir, many("new\n")) }},
		{"nasty new names", tree{"kept": text("a")}, func(t *testing.T, dir string) {
			put(t, dir,
				many("new\n"))
		}},
		{"git in the environment", tree{"a": text("a\n"), "b": text("b\n")}, func(t *testing.T,
			dir string,
		) {
			put(t, dir, tree{"a": text("A\n"), "c": text("c\n")})
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-q", "-m", "work")
			git(t, dir, "checkout", "-q", "-b", "branch")
			git(t, dir, "mv", "b", "d")
			git(t, dir, "commit", "-q", "-m", "more")
			git(t, dir, "gc", "-q", "--prune=now")
		}},
		{"no git left in the environment", tree{"a": text("a\n")}, func(t *testing.T, dir string) {
			remove(t, dir, ".git")
			put(t, dir, tree{"a": text("A\n")})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host := t.TempDir()
			put(t, host, tt.before)
			git(t, host, "init", "-q")
			commit(t, host, "first")
			w := open(t, host, workspace.Options{})
			e, envDir := upload(t, w)
			same(t, "in the environment", read(t, host), read(t, envDir))
			tt.change(t, envDir)
			c := changes(t, w, e)
			saved := save(t, c)
			same(t, "restored in another environment", read(t, envDir), read(t, restore(t, host, saved)))
			checkWays(t, host, "", c)
			same(t, "on the host and in the environment", read(t, envDir), read(t, host))
			same(t, "restored once more", read(t, envDir), read(t, restore(t, host, saved)))
		})
	}
}

func TestApplyKeepsPermissions(t *testing.T) {
	needGit(t)
	host := t.TempDir()
	put(t, host, tree{"private": text("p\n"), "shared": text("s\n")})
	for name, mode := range map[string]fs.FileMode{"private": 0o600, "shared": 0o664} {
		if err := os.Chmod(filepath.Join(host, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	put(t, envDir, tree{"private": text("P\n"), "shared": text("S\n")})
	if err := os.Chmod(filepath.Join(envDir, "shared"), 0o755); err != nil {
		t.Fatal(err)
	}
	applied, err := changes(t, w, e).Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "applied", workspace.Applied{Written: []string{"private", "shared"}}, applied)
	for name, want := range map[string]fs.FileMode{"private": 0o600, "shared": 0o775} {
		if fi, err := os.Stat(filepath.Join(host, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s has %v (%v), want %v", name, fi.Mode(), err, want)
		}
	}
}

func TestConflicts(t *testing.T) {
	needGit(t)
	before := tree{
		"edited": text("e\n"), "deleted": text("d\n"), "same": text("s\n"), "link": {Target: "same"},
		"dir/x": text("x\n"), "run": text("r\n"),
	}
	change := func(t *testing.T, dir string) {
		remove(t, dir, "deleted", "link", "dir")
		put(t, dir, tree{
			"edited": text("E\n"), "new": text("n\n"), "link": {Target: "edited"},
			"dir": text("file\n"), "in/new": text("n\n"), "run": text("R\n"),
		})
	}
	tests := []struct {
		name string
		host func(t *testing.T, dir string)
		want map[string]error
	}{
		{"none", func(*testing.T, string) {}, nil},
		{"other files", func(t *testing.T, dir string) {
			put(t, dir, tree{
				"same":     text("changed"),
				"in/other": text("o"),
			})
		}, nil},
		{
			"edited", func(t *testing.T, dir string) { put(t, dir, tree{"edited": text("m\n")}) },
			map[string]error{"edited": env.ErrChanged},
		},
		{
			"deleted", func(t *testing.T, dir string) { remove(t, dir, "edited") },
			map[string]error{"edited": env.ErrChanged},
		},
		{"to be deleted edited", func(t *testing.T, dir string) {
			put(t, dir,
				tree{"deleted": text("m\n")})
		}, map[string]error{"deleted": env.ErrChanged}},
		{
			"to be deleted deleted", func(t *testing.T, dir string) { remove(t, dir, "deleted") },
			map[string]error{"deleted": env.ErrChanged},
		},
		{"executable", func(t *testing.T, dir string) {
			put(t, dir, tree{"run": {
				Content:    "r\n",
				Executable: true,
			}})
		}, map[string]error{"run": env.ErrChanged}},
		{
			"symlink changed", func(t *testing.T, dir string) { put(t, dir, tree{"link": {Target: "x"}}) },
			map[string]error{"link": env.ErrChanged},
		},
		{
			"symlink became file",
			func(t *testing.T, dir string) { put(t, dir, tree{"link": text("same")}) },
			map[string]error{"link": env.ErrChanged},
		},
		{
			"new appeared", func(t *testing.T, dir string) { put(t, dir, tree{"new": text("n\n")}) },
			map[string]error{"new": workspace.ErrAppeared},
		},
		{"directory appeared", func(t *testing.T, dir string) {
			put(t, dir, tree{
				"new/":  {},
				"new/x": text("x"),
			})
		}, map[string]error{"new": workspace.ErrAppeared}},
		{
			"more in the directory",
			func(t *testing.T, dir string) { put(t, dir, tree{"dir/y": text("y\n")}) },
			map[string]error{"dir": workspace.ErrAppeared},
		},
		{"symlink instead of directory", func(t *testing.T, dir string) {
			put(t, dir,
				tree{"in": {Target: "/tmp"}})
		}, map[string]error{"in/new": workspace.ErrThroughSymlink}},
		{
			"file instead of directory",
			func(t *testing.T, dir string) { put(t, dir, tree{"in": text("x")}) },
			map[string]error{"in/new": env.ErrNotDir},
		},
		{"several", func(t *testing.T, dir string) {
			put(t, dir, tree{"new": text("n\n"), "edited": text("x"), "deleted": text("x")})
		}, map[string]error{
			"new": workspace.ErrAppeared, "edited": env.ErrChanged,
			"deleted": env.ErrChanged,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host := t.TempDir()
			put(t, host, before)
			w := open(t, host, workspace.Options{})
			e, envDir := upload(t, w)
			change(t, envDir)
			tt.host(t, host)
			was := read(t, host)
			c := changes(t, w, e)
			_, err := c.Apply(t.Context())
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var conflict *workspace.ConflictError
			if !errors.As(err, &conflict) {
				t.Fatalf("%v, want a *ConflictError", err)
			}
			got := map[string]error{}
			for _, c := range conflict.Conflicts {
				got[c.Name] = c.Err
			}
			for name, want := range tt.want {
				if !errors.Is(got[name], want) {
					t.Errorf("%s: %v, want %v", name, got[name], want)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("conflicts %v, want %v", got, tt.want)
			}
			same(t, "the host was touched", was, read(t, host))
		})
	}
}

func TestApplyRefusesEscapingSymlinks(t *testing.T) {
	needGit(t)
	for name, target := range map[string]string{
		"absolute": "/etc/passwd", "up": "..", "d/up": "../../x", "mixed": "d/../../x", "hidden": "d/..",
		"d/hidden": "e/..", "git": ".git/config", "d/git": "../.GIT",
	} {
		t.Run(name, func(t *testing.T) {
			host := t.TempDir()
			put(t, host, tree{"d/x": text("x")})
			w := open(t, host, workspace.Options{})
			e, envDir := upload(t, w)
			put(t, envDir, tree{name: {Target: target}, "good": text("g")})
			was := read(t, host)
			if _, err := changes(t, w, e).Apply(t.Context()); !errors.Is(err, env.ErrEscapes) {
				t.Errorf("%v, want ErrEscapes", err)
			}
			same(t, "the host was touched", was, read(t, host))
		})
	}
}

// Apply refuses names that some file system takes for .git.
func TestApplyRefusesNames(t *testing.T) {
	needGit(t)
	for _, name := range []string{
		".git /hooks/x", "d/GIT~1/config", ".g\u200cit/x", ".git.",
		"d/.git:x",
	} {
		host := t.TempDir()
		put(t, host, tree{"d/x": text("x")})
		w := open(t, host, workspace.Options{})
		e, envDir := upload(t, w)
		put(t, envDir, tree{name: text("x"), "good": text("g")})
		was := read(t, host)
		if _, err := changes(t, w, e).Apply(t.Context()); !errors.Is(err, workspace.ErrName) {
			t.Errorf("%q: %v, want ErrName", name, err)
		}
		same(t, "the host was touched", was, read(t, host))
	}
}

// Apply follows no symlink of the environment and brings no .git back.
func TestHostileEnvironment(t *testing.T) {
	needGit(t)
	host := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, outside, tree{"d/x": text("outside")})
	put(t, host, tree{"d/x": text("x"), "a": text("a")})
	git(t, host, "init", "-q")
	hook := filepath.Join(host, ".git/hooks/pre-commit")
	was := read(t, outside)
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	put(t, envDir, tree{
		".git/hooks/pre-commit": text("evil"), "sub/.git/hooks/x": text("evil"),
		"a": text("A"),
	})
	remove(t, host, "d")
	put(t, host, tree{"d": {Target: filepath.Join(outside, "d")}})
	put(t, envDir, tree{"d/x": text("evil"), "d/new": text("evil")})
	c := changes(t, w, e)
	if _, err := c.Apply(t.Context()); !errors.Is(err, workspace.ErrThroughSymlink) {
		t.Errorf("%v, want ErrThroughSymlink", err)
	}
	same(t, "outside", was, read(t, outside))
	remove(t, host, "d")
	put(t, host, tree{"d/x": text("x")})
	if _, err := c.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hook, filepath.Join(host, "sub")} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s exists", name)
		}
	}
}

// A new file replaces a directory without files.
func TestFileReplacesEmptyDirs(t *testing.T) {
	host := t.TempDir()
	put(t, host, tree{"d/e/f/": {}, "d/g/": {}, "kept": text("k")})
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	remove(t, envDir, "d")
	put(t, envDir, tree{"d": text("d")})
	if _, err := changes(t, w, e).Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "on the host", tree{"d": text("d"), "kept": text("k")}, read(t, host))
}
