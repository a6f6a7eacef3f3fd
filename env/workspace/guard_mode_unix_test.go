//go:build unix

package workspace_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// asUser refuses, as the kernel does for an ordinary user, to list directories that their owner
// cannot list. With foreign set, they are those of another user, and their modes stay.
type asUser struct {
	env.Environment
	foreign bool
}

func (e asUser) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	info, err := e.Stat(ctx, name)
	if err == nil && info.Mode().Perm()&0o400 == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.EACCES}
	}
	return e.Environment.ReadDir(ctx, name)
}

func (e asUser) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	if e.foreign && cmd.Argv[0] == "chmod" {
		return env.Result{ExitCode: 1}, nil
	}
	return e.Environment.Exec(ctx, cmd)
}

// modeAttacks hide what they do from everybody who lists directories, which git does not need.
// Disarmed files are there after the first script, or after the second one, with which the user has
// the directories back; listed means that only the right to list them helps.
var modeAttacks = map[string]struct {
	before, attack, after, file string
	listed                      bool
}{
	"a repository": {
		"", `git init -q sub; canary >sub/.git/config; chmod 300 sub/.git`, "",
		"sub/.git/HEAD", false,
	},
	"a directory with a repository": {
		"", `git init -q sub; canary >sub/.git/config; chmod 300 sub`,
		"", "sub/.git/HEAD", false,
	},
	"a bare repository": {
		"", `git init -q --bare sub
		{ canary; echo "	worktree = $TOP/sub"; } >sub/config; chmod 300 sub`, "",
		"sub/HEAD", false,
	},
	"directories in directories": {"", `git init -q sub/a/b; canary >sub/a/b/.git/config
		chmod 300 sub/a/b/.git sub/a/b sub/a sub`, "", "sub/a/b/.git/HEAD", true},
	"settings": {"", `canary >.git/config; chmod 300 .git`, "", ".git/config", false},
	"closed":   {"", `canary >.git/config; chmod 0 .git`, `chmod 700 .git`, ".git/config", true},
	"not to be entered": {
		"", `canary >.git/config; chmod 600 .git`, `chmod 700 .git`,
		".git/config", true,
	},
	"settings below": {
		`git init -q sub`, `canary >sub/.git/config; chmod 600 sub`, `chmod 700 sub`,
		"sub/.git/config", true,
	},
	"a hook": {"", `canary >/dev/null; mkdir .git/hooks; cp run.sh .git/hooks/pre-commit
		chmod 300 .git/hooks`, "", ".git/hooks/pre-commit", false},
	"the working directory": {
		"", `git init -q sub; canary >sub/.git/config; chmod 300 .`, "",
		"sub/.git/HEAD", true,
	},
	"one that was closed": {`mkdir sub; chmod 0 sub`, `chmod 700 sub; git init -q sub
		canary >sub/.git/config; chmod 300 sub`, "", "sub/.git/HEAD", false},
	"one that was not listed": {`mkdir sub; chmod 300 sub`, `git init -q sub
		canary >sub/.git/config`, "", "sub/.git/HEAD", false},
}

// TestGuardModes has directories that cannot be listed, also those of other users, where the kernel
// would refuse to list them and where a fake does.
func TestGuardModes(t *testing.T) {
	for name, tt := range modeAttacks {
		for _, who := range []string{"", " of another user", " without a search"} {
			foreign, topOnly := who == " of another user", who == " without a search"
			if foreign && (tt.listed || os.Getuid() != 0) ||
				topOnly && !strings.HasPrefix(tt.file, ".git/") {
				continue
			}
			if os.Getuid() == 0 && tt.after != "" {
				continue // root enters all directories
			}
			t.Run(name+who, func(t *testing.T) {
				t.Parallel()
				g := newGuarded(t)
				t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", g.dir).Run() })
				g.run(t, tt.before)
				e := env.Environment(asUser{g.e, foreign})
				guard := workspace.StartGuard(t.Context(), e, workspace.GuardOptions{
					Dir: g.dir, TopOnly: topOnly,
				})
				guard.Wait(t.Context())
				g.run(t, tt.attack)
				if tt.after == "" && !g.canaryRuns(t, "sub", "sub/a/b") {
					t.Fatal("the attack does not work")
				}
				r, err := guard.Finish(t.Context())
				if len(r.Disarmed) != 1 || r.Disarmed[0].Name != tt.file || r.Disarmed[0].Err != nil {
					t.Errorf("%+v, %v", r, err)
				}
				// What is in a directory that cannot be listed is not known.
				if (err != nil) != (foreign && name != "one that was not listed") {
					t.Error(err)
				}
				g.run(t, tt.after)
				if g.canaryRuns(t, "sub", "sub/a/b") {
					t.Error("git runs the program")
				}
			})
		}
	}
	if os.Getuid() == 0 {
		t.Run("as an ordinary user", func(t *testing.T) { asOrdinaryUser(t, "TestGuardModes") })
	}
}

// TestGuardClosedBefore leaves directories alone that no command has closed.
func TestGuardClosedBefore(t *testing.T) {
	g := newGuarded(t)
	g.run(t, `mkdir -p a b/c; chmod 300 b`)
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", g.dir).Run() })
	guard := workspace.StartGuard(t.Context(), asUser{Environment: g.e},
		workspace.GuardOptions{Dir: g.dir})
	guard.Wait(t.Context())
	if r, err := guard.Finish(t.Context()); err != nil || len(r.Disarmed) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if info, err := os.Stat(filepath.Join(g.dir, "b")); err != nil || info.Mode().Perm() != 0o300 {
		t.Error(info.Mode(), err)
	}
}

// asOrdinaryUser runs a test in another process, as a user without rights.
func asOrdinaryUser(t *testing.T, name string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "test"), program, 0o755), //nolint:gosec // for another user
		os.Chmod(dir, 0o777),               //nolint:gosec // for another user
		os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // for another user
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "test"), "-test.run=^"+name+"$",
		"-test.v", "-test.timeout=5m")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
		t.Fatalf("%v\n%s", err, out)
	}
}
