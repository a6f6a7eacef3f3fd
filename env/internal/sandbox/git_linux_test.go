package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// TestWorktree works in a linked working tree of git, whose repository is elsewhere.
func TestWorktree(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		tree := w.root + "/tree"
		script := `set -e; cd "$0"; rm -rf .git; git init -q; ` +
			`git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one; git worktree add -q "$1"`
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script, w.work, tree)
		cmd.Env = append(os.Environ(), "HOME="+w.home, "GIT_CONFIG_NOSYSTEM=1")
		cmd.SysProcAttr = w.credential()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		w.policy.Dir = tree
		script = `set -e; cd "$ROOT/tree"; echo x >new; git add new; ` +
			`git -c user.name=a -c user.email=a@b commit -q -m two; git log --oneline | grep -q two`
		if out, code := w.run(t, by, script); code != 0 {
			t.Errorf("exit code %d, %s", code, out)
		}
		if out, code := w.run(t, by, `echo x `+
			`>"$WORK/.git/hooks/post-commit"`); (code == 0) != (by == Landlock) {
			t.Errorf("a hook of the repository: exit code %d, %s", code, out)
		}
		if out, code := w.run(t, by, `echo x >"$WORK/other"`); code == 0 {
			t.Errorf("the other working tree: exit code %d, %s", code, out)
		}
	})
}

// TestPointerElsewhere has a file .git that names a directory which does not refer back to it.
func TestPointerElsewhere(t *testing.T) {
	w := newWorld(t)
	if err := os.RemoveAll(w.work + "/.git"); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"work/.git": "gitdir: " + w.out + "/worktrees/x\n", "out/HEAD": "ref: x\n",
		"out/worktrees/x/commondir": "../..\n",
		"out/worktrees/x/gitdir":    w.root + "/another/.git\n",
	} {
		file := filepath.Join(w.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := resolvePolicy(w.policy, []string{w.home}, os.Getenv)
	if err != nil || len(p.Write) != 1 || p.Write[0] != w.work {
		t.Errorf("%v may be changed, error %v", p.Write, err)
	}
}

// TestLinksToKeep has symlinks at protected paths, which would lead mounts elsewhere: the
// guarantees name them, and the rest is protected as without them.
func TestLinksToKeep(t *testing.T) {
	for name, script := range map[string]string{
		"our settings": `ln -sf ../../../run sandboxagent.yaml`,
		"a directory":  `ln -s ../../../proc .sandboxagent`,
		"nothing":      `ln -sf /nonexistent sandboxagent.yaml`,
		"hooks":        `rmdir .git/hooks; ln -s ../hooks .git/hooks`,
		"settings":     `mv .git/config x; ln -s ../x .git/config`,
		"all":          `mv .git real; ln -s real .git`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
			cmd.Dir = w.work
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			p, err := resolvePolicy(w.policy, []string{w.home}, os.Getenv)
			if err != nil || len(p.Unprotected) == 0 ||
				!strings.HasPrefix(p.Unprotected[0], w.work) {
				t.Errorf("what is not kept is %v, error %v", p.Unprotected, err)
			}
			for _, kept := range slices.Concat(p.ReadOnly, p.Placeholders, p.MustStayAbsent) {
				if real, err := filepath.EvalSymlinks(kept); err == nil && real != kept {
					t.Errorf("a mount over %s would be one over %s", kept, real)
				}
			}
			p.unlock()
			if Available(Bubblewrap) != nil {
				return
			}
			p = w.plan(t, Bubblewrap)
			if out, code := w.start(t, p, `echo x >"$WORK/new"`); code != 0 {
				t.Errorf("exit code %d, %s", code, out)
			}
			for _, g := range p.Guarantees() {
				if g.Name == env.KeptHooks &&
					(g.Strength != env.Absent || !strings.Contains(g.By, p.Unprotected[0])) {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

// TestAbsent protects paths that do not exist, and leaves nothing at them.
func TestAbsent(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	if err := errors.Join(os.Remove(w.work+"/.git/hooks"), os.WriteFile(w.work+"/.git/config",
		[]byte("[extensions]\nworktreeConfig=true\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p := w.plan(t, Bubblewrap)
	out, code := w.start(
		t,
		p,
		`cd "$WORK/.git"; mkdir hooks; echo x >hooks/post-commit && exit 1; `+
			`echo x >config.worktree && exit 2; rm -rf hooks config.worktree; [ -d hooks ]`,
	)
	if code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	p.Placeholders = []string{
		w.work + "/.git/hooks",
		w.work + "/.git/config.worktree",
		w.work + "/file",
		w.work + "/missing",
	}
	if err := p.Tidy(); err != nil {
		t.Error(err)
	}
	if exists(w.work+"/.git/hooks") || exists(w.work+"/.git/config.worktree") ||
		!exists(w.work+"/file") {
		t.Error("something has stayed, or has gone")
	}
}

// TestSubdirectory works in a directory of a working tree, and in a submodule, whose repositories
// are elsewhere.
func TestSubdirectory(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		roots := []string{w.root}
		if w.uid < 0 {
			roots = append(roots, t.TempDir()) // of which nothing else is seen
		}
		for _, root := range roots {
			other := t.TempDir() + "/other"
			if err := os.WriteFile(other, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			script := `set -e; commit() { git -c user.name=a -c user.email=a@b commit -q -m one "$@"; }
				cd "$0"; git init -q module; cd module; commit --allow-empty
				git init -q ../tree; cd ../tree
				git -c protocol.file.allow=always submodule --quiet add ../module sub
				mkdir dir; echo x >dir/file; echo x >file; git add .; commit
				git worktree add -q ../linked; cd ../linked/dir; echo x >../file`
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script, root)
			cmd.Env = append(os.Environ(), "HOME="+w.home, "GIT_CONFIG_NOSYSTEM=1")
			cmd.SysProcAttr = w.credential()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, dir := range []string{"/tree/dir", "/tree/sub", "/linked/dir"} {
				w.policy.Dir = root + dir
				script := `set -e; cd "` + w.policy.Dir +
					`"; echo y >new; git add new; git -c user.name=a -c user.email=a@b commit -q -m two; ` +
					`git log --oneline | grep -q two`
				if out, code := w.run(t, by, script); code != 0 {
					t.Errorf("%s: exit code %d, %s", dir, code, out)
				}
				if out, code := w.run(t, by, `cd "`+w.policy.Dir+`"; `+
					`echo x >"$(git rev-parse `+
					`--git-common-dir)/hooks/post-commit"`); (code == 0) != (by == Landlock) ||
					code == 125 {
					t.Errorf("%s: a hook of the repository: exit code %d, %s", dir, code, out)
				}
				out, code := w.run(t, by, `cd "`+w.policy.Dir+`"; cat ../file; echo y >../file`)
				if data, err := os.ReadFile(root + "/tree/file"); err != nil ||
					string(data) != "x\n" ||
					code == 125 {
					t.Errorf("%s: the rest of the tree holds %q, %v: exit code %d, %s", dir, data, err, code, out)
				}
				if by == Bubblewrap {
					out, code := w.run(t, by, `chmod 711 "`+root+`"; cat "`+other+`"`)
					if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o755 ||
						!strings.Contains(out, "No such file") ||
						code == 125 {
						t.Errorf("%s: outside: %v, %v: exit code %d, %s", dir, info.Mode(), err, code, out)
					}
				}
				if dir != "/tree/sub" && !strings.Contains(out, "x\n") {
					t.Errorf("%s: the rest of the tree is not seen: %s", dir, out)
				}
			}
		}
	})
}

// TestAnotherRepository has a command make git take another repository for that of the working
// directory.
func TestAnotherRepository(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		p := w.plan(t, by)
		if out, code := w.start(t, p, `echo ../evil >"$WORK/.git/commondir"`); code != 0 {
			t.Errorf("exit code %d, %s", code, out)
		}
		if err := p.Tidy(); err == nil ||
			!strings.Contains(err.Error(), w.work+"/.git/commondir") ||
			exists(w.work+"/.git/commondir") {
			t.Errorf("%v; it is still there: %t", err, exists(w.work+"/.git/commondir"))
		}
		if err := p.Tidy(); err != nil {
			t.Error(err)
		}
	})
	need(t, Bubblewrap)
	w := newWorld(t)
	for _, name := range []string{"commondir", "gitdir"} {
		if err := os.MkdirAll(w.work+"/.git/worktrees/[x]", 0o755); err != nil {
			t.Fatal(err)
		}
		w.write(t, "work/.git/worktrees/[x]/"+name)
	}
	if out, code := w.run(t, Bubblewrap, `cd "$WORK/.git/worktrees/[x]"; echo x >commondir || `+
		`echo x >gitdir || mv "$PWD" "$WORK/y"`); code == 0 {
		t.Errorf("it changes another working tree: %s", out)
	}
}

// TestTwoSessions ends one of two sessions in a repository without hooks.
func TestTwoSessions(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	hooks := w.work + "/.git/hooks"
	if err := os.Remove(hooks); err != nil {
		t.Fatal(err)
	}
	one, two := w.plan(t, Bubblewrap), w.plan(t, Bubblewrap)
	for _, p := range []Plan{one, two} {
		if out, code := w.start(t, p, "true"); code != 0 {
			t.Fatalf("exit code %d, %s", code, out)
		}
	}
	if err := one.Tidy(); err != nil || !exists(hooks) {
		t.Errorf("after the first: %v; the hooks are there: %t", err, exists(hooks))
	}
	if err := two.Tidy(); err != nil || exists(hooks) {
		t.Errorf("after the second: %v; the hooks are there: %t", err, exists(hooks))
	}
}
