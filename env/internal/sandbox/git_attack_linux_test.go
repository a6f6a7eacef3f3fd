package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// repository replaces the repository of a world by one that a script makes, in the working
// directory, as the confined user.
func (w *world) repository(t *testing.T, script string) {
	t.Helper()
	out, err := w.outside(t, "sh", "-ec", `cd "$WORK"; rm -rf .git .gitmodules sub "$ROOT/out/tree"
		git init -q; git add .
		commit() { git -c user.name=a -c user.email=a@b commit -q "$@"; }; commit -m one; `+script)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// outside runs a command outside of the sandbox, as the confined user.
func (w *world) outside(t *testing.T, argv ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(
		os.Environ(), "HOME="+w.home, "WORK="+w.work, "ROOT="+w.root, "GIT_CONFIG_NOSYSTEM=1",
	)
	cmd.Dir, cmd.SysProcAttr = w.work, w.credential()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// evil is a shell function that writes settings with which git runs the canary program.
const evil = `canary() { printf '#!/bin/sh\ntouch "%s/canary"\n' "$ROOT" >"$WORK/run.sh"
	chmod +x "$WORK/run.sh"; printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n` +
	`\tfsmonitor = "%s/run.sh"\n' "$WORK"; }
	`

// looks has git look at directories, and reports whether it ran the canary program.
func (w *world) looks(t *testing.T, dirs ...string) bool {
	t.Helper()
	for _, dir := range dirs {
		_, _ = w.outside(t, "git", "-C", dir, "status")
	}
	defer func() { _ = os.Remove(w.root + "/canary") }()
	return exists(w.root + "/canary")
}

// gitAttacks make git outside run a program, in a repository that before makes.
var gitAttacks = map[string]struct {
	before, attack, dir string
	// rw marks those that are prevented in a writable repository too.
	rw bool
	// end marks one that is undone at the end only.
	end bool
}{
	"the working directory as a git directory": {
		attack: `cd "$WORK"; rm -f .git/HEAD; mkdir objects refs; echo "ref: refs/heads/main" >HEAD
			{ canary; echo "	worktree = $WORK"; } >config`,
	},
	"without objects": {
		rw: true,
		attack: `cd "$WORK"; mv .git/objects .git/o || rm -rf .git/objects; mkdir objects refs
			echo "ref: refs/heads/main" >HEAD; { canary; echo "	worktree = $WORK"; } >config`,
	},
	"settings of a linked tree": {
		before: `git worktree add -q "$ROOT/out/tree"; git config extensions.worktreeConfig true`,
		attack: `canary >"$WORK/.git/worktrees/tree/config.worktree"`, dir: "out/tree", rw: true,
	},
	"settings of the first tree": {
		before: `git config extensions.worktreeConfig true`,
		attack: `canary >"$WORK/.git/config.worktree"`, rw: true,
	},
	"the common directory of a submodule": {
		before: submodule1,
		attack: `cd "$WORK/.git"; cp -r modules/sub evil; canary >evil/config
			echo ../../evil >modules/sub/commondir`, dir: "work/sub", rw: true, end: true,
	},
	"the repository of a submodule": {
		before: submodule1,
		attack: `cd "$WORK/sub"; rm -f .git; git init -q; canary >.git/config`, rw: true,
	},
	"a submodule that is moved": {
		before: submodule1,
		attack: `cd "$WORK"; mv sub old; git init -q sub; canary >sub/.git/config`, rw: true,
	},
	"a missing submodule": {
		before: submodule1 + `; git submodule --quiet deinit -f sub`,
		attack: `cd "$WORK/sub"; git init -q; canary >.git/config`,
	},
	"a submodule's directory": {
		before: submodule1 + `; git submodule --quiet deinit -f sub; git init -q sub`,
		attack: `canary >"$WORK/sub/.git/config"`, rw: true,
	},
}

const submodule1 = `rm -rf "$ROOT/out/m"; git init -q "$ROOT/out/m"
	(cd "$ROOT/out/m"; commit --allow-empty -m m)
	git -c protocol.file.allow=always submodule --quiet add "$ROOT/out/m" sub; commit -m two`

// TestGitAttacks has commands make git outside run a program.
func TestGitAttacks(t *testing.T) {
	for name, tt := range gitAttacks {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world, by Mechanism) {
				for _, readOnly := range []bool{true, false} {
					if !readOnly && !tt.rw {
						continue
					}
					w.repository(t, tt.before)
					w.policy.GitReadOnly = readOnly
					p := w.plan(t, by)
					if out, code := w.start(t, p, evil+tt.attack); code == 125 {
						t.Fatal(out)
					}
					// Only mounts protect files in a writable directory: Landlock shows that the attacks work.
					ran := w.looks(t, w.work, w.root+"/"+tt.dir, w.work+"/sub")
					if ran != (by == Landlock || tt.end && !readOnly) {
						t.Errorf("read-only %t: git outside has run a program of the sandbox: %t", readOnly, ran)
					}
					err := p.Tidy()
					if tt.end && !readOnly && (err == nil || w.looks(t, w.root+"/"+tt.dir)) {
						t.Errorf("after the end git runs a program of the sandbox, error %v", err)
					}
				}
			})
		})
	}
}

// TestSubmoduleHooks makes a hook in a submodule that has none.
func TestSubmoduleHooks(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		w.repository(t, submodule1+`; rm -rf .git/modules/sub/hooks`)
		p := w.plan(t, by)
		hook := w.work + "/.git/modules/sub/hooks/post-commit"
		out, code := w.start(t, p, `cd "$WORK/.git/modules/sub"; mkdir hooks; echo x >hooks/post-commit`)
		if (code == 0) != (by == Landlock) {
			t.Errorf("exit code %d, %s", code, out)
		}
		if err := p.Tidy(); err != nil || exists(hook) != (by == Landlock) {
			t.Errorf("%v, the hook is there: %t", err, exists(hook))
		}
	})
}

// TestGitReadOnly works in a repository that commands cannot change, and in one that they can.
func TestGitReadOnly(t *testing.T) {
	need(t, Bubblewrap)
	each(t, func(t *testing.T, w *world, by Mechanism) {
		if by != Bubblewrap {
			t.Skip("only mounts protect files in a writable directory")
		}
		w.repository(t, `mkdir dir; echo x >dir/file; git add .; commit -m two
			git worktree add -q "$ROOT/out/tree"`)
		const work = `cd "$AT"; echo y >new; git status --short | grep -q new; ` +
			`git log --oneline | grep -q two; git diff HEAD; git add new && ` +
			`git -c user.name=a -c user.email=a@b commit -q -m three && git repack -q -a -d && ` +
			`git pack-refs --all && git gc -q && git checkout -q -b other`
		for _, dir := range []string{w.work, w.work + "/dir", w.root + "/out/tree"} {
			w.policy.Dir, w.policy.GitReadOnly = dir, true
			out, code := w.run(t, by, `set -e; AT="`+dir+`"; `+work)
			if code == 0 || !strings.Contains(out, "Read-only file system") {
				t.Errorf("%s: exit code %d, %s", dir, code, out)
			}
			w.policy.GitReadOnly = false
			if out, code = w.run(t, by, `set -e; AT="`+dir+`"; `+
				strings.Replace(work, "-b other", "-b other"+strings.ReplaceAll(dir[1:], "/", "-"),
					1)); code != 0 {
				t.Errorf("%s: writable: exit code %d, %s", dir, code, out)
			}
		}
		w.policy.Dir, w.policy.GitReadOnly, w.policy.Write = w.work, true, []string{w.work + "/.git"}
		if out, code := w.run(t, by, `cd "$WORK"; echo z >new; git add new && `+
			`! echo x >>.git/config`); code != 0 {
			t.Errorf("opened by name: exit code %d, %s", code, out)
		}
		for _, open := range []string{".git", ".git/index"} {
			w.policy.Write = []string{w.work + "/" + open}
			plan := w.plan(t, by)
			for _, g := range plan.Guarantees() {
				if g.Name == env.KeptHooks && g.Strength != env.BestEffort {
					t.Errorf("%s is opened: %+v", open, g)
				}
			}
		}
		if out, code := w.run(t, by, `cd "$WORK"; echo z >.git/index && ! echo x >.git/HEAD`); code != 0 {
			t.Errorf("a file opened by name: exit code %d, %s", code, out)
		}
	})
}

// TestControlFiles changes control files at the top of the working directory.
func TestControlFiles(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	for _, dir := range []string{".vscode", ".github/workflows", "sub"} {
		if err := os.MkdirAll(w.work+"/"+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		".envrc", ".vscode/tasks.json", ".gitattributes", ".github/workflows/ci.yml", "sub/.envrc",
	} {
		w.write(t, "work/"+name)
	}
	if err := os.Symlink("sub", w.work+"/.claude"); err != nil {
		t.Fatal(err)
	}
	const attack = `cd "$WORK"; for f in .envrc .vscode/tasks.json .vscode/new .gitattributes; do
		echo x >$f; rm -f $f; mv $f x; done; mv .vscode v; exit 0`
	if out, code := w.run(t, Bubblewrap, attack); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	for _, name := range []string{".envrc", ".vscode/tasks.json", ".gitattributes"} {
		if got := w.content("work/" + name); got != "content of work/"+name+"\n" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if exists(w.work + "/.vscode/new") {
		t.Error("a file was made in a control directory")
	}
	const allowed = `cd "$WORK"; echo x >.github/workflows/ci.yml; echo x >sub/.envrc
		echo x >.claude/new; echo x >.husky; rm .husky`
	if out, code := w.run(t, Bubblewrap, "set -e; "+allowed); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	w.policy.Write = []string{w.work + "/.vscode", w.work + "/.envrc"}
	if out, code := w.run(t, Bubblewrap, `set -e; cd "$WORK"; echo x >.vscode/tasks.json
		echo x >.envrc; ! echo x >.gitattributes`); code != 0 {
		t.Errorf("opened by name: exit code %d, %s", code, out)
	}
	w.policy.Write = []string{w.work + "/.vscode/tasks.json"}
	if out, code := w.run(t, Bubblewrap, `set -e; cd "$WORK"; echo y >.vscode/tasks.json
		! echo x >.vscode/new; ! mv .vscode v`); code != 0 ||
		w.content("work/.vscode/tasks.json") != "y\n" {
		t.Errorf("a file opened by name: exit code %d, %s", code, out)
	}
}
