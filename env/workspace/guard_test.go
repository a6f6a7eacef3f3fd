package workspace_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// guarded is a working directory with a repository that commands change.
type guarded struct {
	dir string
	e   env.Environment
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil || runtime.GOOS == "windows" {
		t.Skip("git and a shell are needed")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{dir: filepath.Join(dir, "work")}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g.run(t, `git init -q --template= .; echo x >file; git add .; commit -m one`)
	if g.e, err = local.New(local.Config{Dir: g.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.e.Close() })
	return g
}

// run runs a script, in which canary prints settings that make git run a program.
func (g *guarded) run(t *testing.T, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `
commit() { git -c user.name=a -c user.email=a@b commit -q --allow-empty "$@"; }
canary() { printf '#!/bin/sh\ntouch "%s/../canary"\n' "$TOP" >"$TOP/run.sh"; chmod +x "$TOP/run.sh"
	printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n'
	printf '\tfsmonitor = "%s/run.sh"\n' "$TOP"; }
`+script)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "TOP="+g.dir, "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// canaryRuns has git look at all directories that can be listed, and others by their names, and
// reports whether it ran the canary program.
func (g *guarded) canaryRuns(t *testing.T, others ...string) bool {
	t.Helper()
	g.run(t, `{ find . -type d -not -path '*/.git/*' 2>/dev/null || true
		printf '%s\n' `+strings.Join(others, " ")+`; } | while read -r d; do
		(cd "$d" || exit 0; git status || true; git worktree list || true) >/dev/null 2>&1; done
		touch "$TOP/../commit.sh"; (commit -m later || true) >/dev/null 2>&1`)
	_, err := os.Stat(filepath.Join(filepath.Dir(g.dir), "canary"))
	_ = os.Remove(filepath.Join(filepath.Dir(g.dir), "canary"))
	return err == nil
}

// guardAttacks make git outside run a program; before prepares the repository.
var guardAttacks = map[string]struct{ before, attack, file string }{
	"the working directory": {"", `rm .git/HEAD; mkdir objects refs; echo "ref: refs/heads/main" >HEAD
		{ canary; echo "	worktree = $TOP"; } >config`, "HEAD"},
	"its HEAD a symlink": {"", `rm -rf .git; mkdir objects refs; ln -s refs/heads/main HEAD
		{ canary; echo "	worktree = $TOP"; } >config`, "HEAD"},
	"a directory below": {"", `mkdir -p a/b/objects a/b/refs; cd a/b; echo "ref: refs/heads/main" >HEAD
		{ canary; echo "	worktree = $TOP/a/b"; } >config`, "a/b/HEAD"},
	"an ignored directory": {`echo /build >.gitignore`, `mkdir -p build/.cache; cd build/.cache
		git init -q x; canary >x/.git/config`, "build/.cache/x/.git/HEAD"},
	"a repository that was there": {
		`git init -q --template= sub`, `canary >>sub/.git/config`,
		"sub/.git/config",
	},
	"settings elsewhere": {"", `canary >.git/x; git config include.path x`, ".git/config"},
	"a new hook": {
		"", `canary >/dev/null; mkdir .git/hooks; cp run.sh .git/hooks/pre-commit`,
		".git/hooks/pre-commit",
	},
	"a changed hook": {
		`mkdir .git/hooks; echo "#!/bin/sh" >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit`,
		`canary >/dev/null; cat run.sh >.git/hooks/pre-commit`, ".git/hooks/pre-commit",
	},
	"hooks elsewhere": {
		"", `canary >/dev/null; mkdir h; cp run.sh h/pre-commit; ln -s ../h .git/hooks`,
		".git/hooks",
	},
	"a common directory": {
		"", `cp -r .git ../evil; canary >../evil/config
		echo ../../evil >.git/commondir`,
		".git/commondir",
	},
	"settings of a working tree": {
		`git config extensions.worktreeConfig true`,
		`canary >.git/config.worktree`, ".git/config.worktree",
	},
	"settings of a linked working tree": {
		`git config extensions.worktreeConfig true; git worktree add -q tree`,
		`canary >.git/worktrees/tree/config.worktree`, ".git/worktrees/tree/config.worktree",
	},
	"a pointer": {"", `git init -q ../evil; canary >../evil/.git/config; mkdir sub
		echo "gitdir: ../../evil/.git" >sub/.git`, "sub/.git"},
	"a symlink": {"", `git init -q ../evil; canary >../evil/.git/config; mkdir sub
		ln -s "$TOP/../evil/.git" sub/.git`, "sub/.git"},
	"a pointer over a symlink": {"", `git init -q ../evil; canary >../evil/.git/config; mkdir sub
		ln -s ../evil link; echo "gitdir: ../link/.git" >sub/.git`, "sub/.git"},
	"behind a symlink": {`mv .git real; ln -s real .git`, `canary >/dev/null; mkdir real/hooks
		cp run.sh real/hooks/pre-commit`, "real/hooks/pre-commit"},
	"behind a symlink that leads out": {
		`mv .git ../real; ln -s ../real .git`,
		`canary >/dev/null; mkdir .git/hooks; cp run.sh .git/hooks/pre-commit`, ".git/hooks/pre-commit",
	},
	"another pointer": {`git worktree add -q tree`, `git init -q ../evil
		canary >../evil/.git/config; echo "gitdir: $TOP/../evil/.git" >tree/.git`, "tree/.git"},
}

// TestGuardElsewhere has a repository that is not in the working directory.
func TestGuardElsewhere(t *testing.T) {
	for name, tt := range map[string]struct{ script, dir string }{
		"a linked working tree": {`git worktree add -q ../tree`, "../tree"},
		"a part":                {`mkdir part`, "part"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			g.run(t, tt.script)
			top := g.dir
			g.dir = filepath.Join(top, tt.dir)
			e, err := local.New(local.Config{Dir: g.dir})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			guard := workspace.StartGuard(t.Context(), e, workspace.GuardOptions{Dir: g.dir})
			guard.Wait(t.Context())
			hooks := filepath.Join(top, ".git", "hooks")
			g.run(t, `mkdir `+hooks+`; canary >/dev/null; cp run.sh `+hooks+`/pre-commit`)
			if !g.canaryRuns(t) {
				t.Fatal("the attack does not work")
			}
			r, err := guard.Finish(t.Context())
			if err != nil || len(r.Disarmed) != 1 || r.Disarmed[0].Name != hooks+"/pre-commit" {
				t.Errorf("%+v, %v", r, err)
			}
			if g.canaryRuns(t) {
				t.Error("git runs the program")
			}
		})
	}
}

func TestGuard(t *testing.T) {
	for name, tt := range guardAttacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t)
			g.run(t, tt.before)
			guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir})
			guard.Wait(t.Context())
			g.run(t, tt.attack)
			if !g.canaryRuns(t) {
				t.Fatal("the attack does not work")
			}
			r, err := guard.Finish(t.Context())
			if err != nil || len(r.Disarmed) != 1 || r.Disarmed[0].Name != tt.file ||
				r.Disarmed[0].Err != nil {
				t.Errorf("%+v, %v", r, err)
			}
			if g.canaryRuns(t) {
				t.Error("git runs the program")
			}
			again := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir})
			if r, err := again.Finish(t.Context()); err != nil || len(r.Disarmed) != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestGuardTop has the checks between commands, and those without a search.
func TestGuardTop(t *testing.T) {
	g := newGuarded(t)
	guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{
		Dir: g.dir, TopOnly: true,
	})
	guard.Wait(t.Context())
	g.run(t, guardAttacks["the working directory"].attack)
	g.run(t, guardAttacks["a directory below"].attack)
	r, err := guard.Finish(t.Context())
	if err != nil || len(r.Disarmed) != 1 || r.Disarmed[0].Kept != "HEAD.disarmed" {
		t.Errorf("%+v, %v", r, err)
	}
	note, err := os.ReadFile(filepath.Join(g.dir, "HEAD.disarmed.txt"))
	if err != nil || !strings.Contains(string(note), "core.fsmonitor") ||
		!strings.Contains(string(note), "mv HEAD.disarmed HEAD") {
		t.Errorf("%s, %v", note, err)
	}
}

// TestGuardCheck has a check between two commands.
func TestGuardCheck(t *testing.T) {
	g := newGuarded(t)
	guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir})
	guard.Wait(t.Context())
	g.run(t, guardAttacks["a common directory"].attack)
	for {
		guard.Check(t.Context())
		if _, err := os.Stat(filepath.Join(g.dir, ".git", "commondir.disarmed")); err == nil {
			break
		}
		runtime.Gosched()
	}
	r, err := guard.Finish(t.Context())
	if err != nil || len(r.Disarmed) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestGuardHarmless does what builds do.
func TestGuardHarmless(t *testing.T) {
	for name, script := range map[string]string{
		"a clone":              `git clone -q .git build/_deps/x-src`,
		"a shallow clone":      `git clone -q --depth 1 "file://$TOP" x`,
		"a bare mirror":        `git clone -q --mirror .git x`,
		"with alternates":      `git clone -q -s .git x`,
		"a new repository":     `git init -q x; cd x; git remote add origin git@example.com:a/b`,
		"a partial clone":      `git clone -q --filter=blob:none --no-tags "file://$TOP" x`,
		"work":                 `git checkout -q -b x; commit -m x; git gc -q; git branch -q --track y`,
		"an identity":          `git config user.name x; git config pull.rebase true`,
		"sparse":               `mkdir d; echo x >d/f; git add d; commit -m d; git sparse-checkout set d`,
		"a linked tree":        `git worktree add -q tree; git worktree add -q sub/tree2`,
		"a submodule":          `git -c protocol.file.allow=always submodule --quiet add ./.git sub`,
		"without a repository": `rm -rf .git`,
		"a directory HEAD":     `mkdir -p HEAD objects refs; echo x >config`,
		"samples":              `mkdir -p .git/hooks; cp file .git/hooks/pre-commit.sample`,
		"moved":                `git init -q --template= x; mv x y`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t)
			g.run(t, `git config alias.x '!true'`)
			guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir})
			guard.Wait(t.Context())
			g.run(t, script)
			if r, err := guard.Finish(t.Context()); err != nil || len(r.Disarmed) != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestGuardControlFiles reports control files.
func TestGuardControlFiles(t *testing.T) {
	g := newGuarded(t)
	g.run(t, `mkdir .vscode; echo x >.vscode/a; echo x >.vscode/b; echo x >.envrc
		echo 1 >mise.toml; echo y >to; ln -s to .ripgreprc`)
	guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir})
	guard.Wait(t.Context())
	g.run(t, `echo longer >.vscode/a; mkdir -p .github/workflows; echo x >.github/workflows/ci.yml
		echo x >new; touch .envrc
		touch -r mise.toml time; echo 2 >mise.toml; touch -r time mise.toml
		echo z >to`)
	r, err := guard.Finish(t.Context())
	if want := ".github/workflows/ci.yml .ripgreprc .vscode/a mise.toml"; err != nil ||
		strings.Join(r.ControlFiles, " ") != want {
		t.Errorf("%q, %v; want %s", r.ControlFiles, err, want)
	}
}

// TestGuardCanceled has no state to compare with, and changes nothing.
func TestGuardCanceled(t *testing.T) {
	g := newGuarded(t)
	g.run(t, `canary >>.git/config`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	guard := workspace.StartGuard(ctx, g.e, workspace.GuardOptions{Dir: g.dir})
	if r, err := guard.Finish(t.Context()); err == nil || len(r.Disarmed) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
