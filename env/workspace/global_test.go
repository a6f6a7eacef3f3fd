package workspace_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// Files that the user's own rules ignore are neither uploaded nor brought back.
func TestGlobalRules(t *testing.T) {
	needGit(t)
	for _, tt := range []struct {
		name string
		home tree
		// sub is the directory to open, config a setting of the repository.
		sub, config string
		want        tree
	}{
		{"default file", tree{".config/git/ignore": text(".env\n")}, "", "", tree{"keep.log": text("k")}},
		{"named in the home directory", tree{
			".gitconfig": text("[core]\nexcludesFile = ~/mine\n"),
			"mine":       text(".env\n"),
		}, "", "", tree{"keep.log": text("k")}},
		{
			"directory in a repository",
			tree{".config/git/ignore": text(".env\n")},
			"sub", "",
			tree{"keep.log": text("k")},
		},
		{"the repository names another", tree{
			".config/git/ignore": text(".env\n"),
			"other":              text("*.log\n"),
		}, "", "~/other", tree{".env": text("secret"), "keep.log": text("k")}},
		{"none", nil, "", "", tree{".env": text("secret"), "keep.log": text("k")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			put(t, home, tt.home)
			t.Setenv("HOME", home)
			t.Setenv("XDG_CONFIG_HOME", "")
			t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, ".gitconfig"))
			repo := t.TempDir()
			git(t, repo, "init", "-q")
			if tt.config != "" {
				git(t, repo, "config", "core.excludesFile", tt.config)
			}
			dir := filepath.Join(repo, tt.sub)
			put(t, dir, tree{
				".env": text("secret"), "keep.log": text("k"),
				".gitignore": text("!keep.log\n"),
			})
			w := open(t, dir, workspace.Options{})
			for _, note := range w.Warnings() {
				if strings.Contains(note, "rules") {
					t.Errorf("note %q", note)
				}
			}
			e, envDir := upload(t, w)
			tt.want[".gitignore"] = text("!keep.log\n")
			same(t, "in the environment", tt.want, read(t, envDir))
			put(t, envDir, tree{"sub/.env": text("new")})
			if _, secret := tt.want[".env"]; changes(t, w, e).Empty() == secret {
				t.Errorf("a new file is a change: %v", !secret)
			}
		})
	}
}

func TestHostRules(t *testing.T) {
	needGit(t)
	home := t.TempDir()
	put(t, home, tree{".config/git/ignore": text("*.tmp\n")})
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	dir := t.TempDir()
	makeRepository(t, filepath.Join(dir, "main"))
	linked := filepath.Join(dir, "linked")
	git(t, filepath.Join(dir, "main"), "worktree", "add", "-q", linked)
	put(t, dir, tree{"main/.git/info/exclude": text("private\n")})
	excluded, err := workspace.HostRules(t.Context(), linked)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"private": true, "dir/private": true, "x.tmp": true,
		"a.txt": false,
	} {
		if got := excluded(name, false); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	remove(t, home, ".config")
	if excluded, err := workspace.HostRules(t.Context(), t.TempDir()); err != nil || excluded != nil {
		t.Errorf("without rules: %v", err)
	}
}
