package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// gitAttack has commands turn a repository against git outside, with the program, and checks that
// git runs no program of theirs. Without a sandbox only run is guarded.
func gitAttack(t *testing.T, dir string, sandboxed bool, call func(args ...string) ran) {
	t.Helper()
	canary := filepath.Join(t.TempDir(), "canary")
	shaped := func(name string) string { // a script that makes a directory a git directory
		return `mkdir -p ` + name + `/objects ` + name + `/refs; cd ` + name + `
			echo "ref: refs/heads/main" >HEAD
			printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n' >config
			printf '\tfsmonitor = "touch ` + canary + `; false"\n' >>config`
	}
	look := func() bool {
		for _, at := range []string{dir, dir + "/below"} {
			cmd := exec.Command("git", "status")
			cmd.Dir = at
			cmd.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
				"GIT_CONFIG_VALUE_0=*")
			_ = cmd.Run() // it may be no repository
		}
		_, err := os.Stat(canary)
		_ = os.Remove(canary)
		return err == nil
	}
	model := func(script string) string {
		file := filepath.Join(t.TempDir(), "model.yaml")
		text := "turns:\n  - calls:\n      - tool: shell\n        args:\n          command: |\n"
		for line := range strings.Lines(script) {
			text += "            " + line
		}
		if err := os.WriteFile(file, []byte(text+"\n  - text: done\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--model=script:" + file
	}
	// The attack works where nobody looks.
	if err := exec.Command("sh", "-ec", shaped(dir+"/below")).Run(); err != nil {
		t.Fatal(err)
	}
	if !look() {
		t.Fatal("the attack does not work")
	}
	if err := os.RemoveAll(dir + "/below"); err != nil {
		t.Fatal(err)
	}

	got := call("run", model(shaped("below")), "--yes", "--output=json", "a task")
	if got.code != 6 || !strings.Contains(got.stdout, `"disarmed":[{"path":"below/HEAD"`) || look() {
		t.Errorf("a directory below: %+v", got)
	}
	// A sandbox of bubblewrap leaves nothing to disarm.
	got = call("run", model(`rm .git/HEAD && `+shaped(".")), "--yes", "--output=json", "a task")
	if got.code == 0 && !sandboxed || look() {
		t.Errorf("the working directory: %+v", got)
	}
	if err := os.WriteFile(dir+"/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !sandboxed {
		return
	}
	got = call("exec", "--", "sh", "-c", `rm .git/HEAD; `+shaped("."))
	if got.code != 125 || !strings.Contains(got.stderr, "HEAD.disarmed") || look() {
		t.Errorf("a command: %+v", got)
	}
}

// TestGitAttack attacks git on the host, by commands on it and on a remote host.
func TestGitAttack(t *testing.T) {
	t.Parallel()
	s := sshd(t, daemons.SSHDConfig{})
	for name, tt := range map[string]struct {
		flags     []string
		sandboxed bool
	}{
		"local": {nil, true}, "local without a sandbox": {[]string{"--sandbox=off"}, false},
		"ssh":                   {hostFlags(s), true},
		"ssh without a sandbox": {append(hostFlags(s), "--sandbox=off"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			git(t, dir, "init", "-q")
			gitAttack(t, dir, tt.sandboxed, func(args ...string) ran {
				flags := append([]string{args[0], "--workdir=" + dir}, tt.flags...)
				return runCommand(t, dir, nil, append(flags, args[1:]...)...)
			})
		})
	}
}

// TestGitRefusal has commands of the user and of the model change a repository. One note names the
// flags that allow it.
func TestGitRefusal(t *testing.T) {
	t.Parallel()
	const setting = "the sandbox keeps commands from changing git's settings, which can name " +
		"programs; change them outside, or with --sandbox=off"
	const file = "the sandbox kept a command from changing a file; --git rw lets commands commit, " +
		"and --allow-write PATH lets them change PATH"
	script := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(script), map[string]string{"model.yaml": `
turns:
  - calls:
      - {tool: shell, args: {command: git config a.b c}}
      - {tool: shell, args: {command: git config a.b c}}
  - text: It is not allowed.
`})
	config := []string{"--", "git", "config", "a.b", "c"}
	commit := []string{"--", "git", "commit", "--allow-empty", "-m", "x"}
	for _, test := range []struct {
		name string
		args []string
		code int
		note string
	}{
		{"exec", append([]string{"exec"}, config...), 4, setting},
		{"exec, git is read-only", append([]string{"exec", "--git=ro"}, config...), 255, setting},
		{"commit", append([]string{"exec", "--git=ro"}, commit...), 128, file},
		{"no sandbox", append([]string{"exec", "--sandbox=off"}, config...), 0, ""},
		{"another failure", []string{"exec", "--", "git", "config", "none.such"}, 1, ""},
		{"quiet", append([]string{"exec", "--quiet"}, config...), 4, ""},
		{"run", []string{"run", "--model=script:" + script, "task"}, 0, setting},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			git(t, dir, "init", "-q")
			got := runCommand(t, dir, []string{
				"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a",
				"GIT_COMMITTER_EMAIL=a@example.org",
			}, test.args...)
			for _, note := range []string{setting, file} {
				want := 0
				if note == test.note {
					want = 1
				}
				if got.code != test.code || strings.Count(got.stderr, note) != want {
					t.Errorf("exit code %d\n%s", got.code, got.stderr)
				}
			}
		})
	}
}
