package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// gitRepository makes a repository, and returns its directory and a function that has git look at
// it and reports whether git ran the program of canary, a shell function for commands.
func gitRepository(t *testing.T) (dir, canary string, ran func() bool) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(top, "work")
	outsideGit := func(args ...string) {
		identity := []string{"-c", "user.name=a", "-c", "user.email=a@b"}
		cmd := exec.Command("git", append(identity, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		_ = cmd.Run() // a repository that is none any more fails
	}
	fill(t, dir, map[string]string{"file": "x\n"})
	for _, args := range [][]string{
		{"init", "-q", "--template=", "."}, {"add", "."}, {"commit", "-q", "-m", "x"},
	} {
		outsideGit(args...)
	}
	canary = `canary() { printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n'; ` +
		`printf '\tworktree = %s\n\tfsmonitor = "touch %s; false"\n' "$PWD" "` + top + `/canary"; }; `
	return dir, canary, func() bool {
		for _, sub := range []string{".", "below"} {
			outsideGit("-C", sub, "status")
		}
		outsideGit("commit", "-q", "--allow-empty", "-m", "y")
		_, err := os.Stat(top + "/canary")
		_ = os.Remove(top + "/canary")
		return err == nil
	}
}

// TestGuardInSandbox attacks git outside from each kind of sandbox, and from none.
func TestGuardInSandbox(t *testing.T) {
	need(t, "git", "git", "version")
	type attack struct {
		script   string
		readOnly bool
		// kept are the kinds of sandboxes that prevent it.
		kept []sandbox.Mechanism
	}
	const head = `mkdir objects refs; echo "ref: refs/heads/main" >HEAD; canary >config`
	mounts := []sandbox.Mechanism{sandbox.Bubblewrap}
	for name, tt := range map[string]attack{
		"the working directory":       {`rm .git/HEAD; ` + head, false, nil},
		"the working directory, kept": {`rm .git/HEAD; ` + head, true, mounts},
		"a directory below":           {`mkdir below; cd below; ` + head, true, nil},
		"a common directory": {
			`cp -r .git e; canary >e/config; echo ../e >.git/commondir`, false, nil,
		},
		"settings": {`canary >>.git/config`, false, mounts},
		"an unlistable directory": {
			`mkdir below; cd below; ` + head + `; chmod 300 . ..`, true, nil,
		},
		"an unlistable repository": {`canary >>.git/config; chmod 300 .git`, false, mounts},
		"a read-only directory":    {`mkdir below; cd below; ` + head + `; chmod 555 .`, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range append(sandbox.Mechanisms(), "") {
				t.Run(string(by)+"-", func(t *testing.T) {
					if by != "" {
						if err := sandbox.Available(by); err != nil {
							t.Skip(err)
						}
					}
					dir, canary, ran := gitRepository(t)
					var e env.Environment
					if by == "" {
						e = supervise(t, local.Config{Dir: dir})
					} else {
						e = sandboxed(t, by, local.Config{Dir: dir}, env.Sandbox{GitReadOnly: tt.readOnly})
					}
					guard := workspace.StartGuard(t.Context(), e, workspace.GuardOptions{Dir: dir})
					guard.Wait(t.Context())
					if _, err := e.Exec(t.Context(), env.Command{
						Argv: []string{"sh", "-c", canary + tt.script},
					}); err != nil {
						t.Fatal(err)
					}
					kept := false
					for _, k := range tt.kept {
						kept = kept || k == by
					}
					if ran() == kept {
						t.Errorf("git ran the program: %t", !kept)
					}
					r, err := guard.Finish(t.Context())
					if err != nil || len(r.Disarmed) == 0 && !kept {
						t.Errorf("%+v, %v", r, err)
					}
					for _, d := range r.Disarmed {
						if d.Err != nil {
							t.Errorf("%+v", d)
						}
					}
					if ran() {
						t.Error("git runs the program")
					}
				})
			}
		})
	}
}

// TestVerifyReadOnlyGit has a row for a repository that commands cannot change, which fails where
// they can.
func TestVerifyReadOnlyGit(t *testing.T) {
	need(t, "git", "git", "version")
	if err := sandbox.Available(sandbox.Bubblewrap); err != nil {
		t.Skip(err)
	}
	dir, _, _ := gitRepository(t)
	host := ourHost(t)
	e := sandboxed(t, sandbox.Bubblewrap, local.Config{Dir: dir}, env.Sandbox{GitReadOnly: true})
	r, err := e.Verify(t.Context(), host)
	if err != nil || !r.OK() {
		t.Errorf("%+v, %v", r.Broken(), err)
	}
	h := thisProgram(t)
	bare := supervise(t, local.Config{Dir: dir})
	other, err := local.VerifyAs(t.Context(), bare, append([]string{h.Binary}, h.Args...), e, host)
	if err != nil {
		t.Fatal(err)
	}
	for _, findings := range []struct {
		of string
		ok bool
	}{{"the sandbox", true}, {"none", false}} {
		all := r.Findings
		if !findings.ok {
			all = other.Findings
		}
		found := false
		for _, f := range all {
			if f.Name == "git-repository" {
				found = true
				if f.OK != findings.ok || findings.ok && !strings.Contains(f.By, "bubblewrap") {
					t.Errorf("%s: %+v", findings.of, f)
				}
			}
		}
		if !found {
			t.Errorf("%s: no row", findings.of)
		}
	}
}
