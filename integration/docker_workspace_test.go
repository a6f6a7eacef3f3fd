package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// patchesIn lists the kept patches.
func patchesIn(t *testing.T, state string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(state, "patches", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDockerUnreadable has a command change files and make them unreadable or too large. Nothing is
// applied, and the patch has the rest.
func TestDockerUnreadable(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	const script = "echo changed >a; chmod 000 a; echo x >d/b; chmod 000 d; echo new >c; " +
		"truncate -s 20G core.123"
	dir, state := t.TempDir(), t.TempDir()
	files := map[string]string{"a": "a\n", "d/b": "b\n"}
	writeTree(t, dir, files)
	got := d.run(t, dir, []string{"SANDBOXAGENT_STATE_DIR=" + state}, "exec", "--apply", "--", "sh",
		"-c", script)
	if got.code != 125 {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
	wantContains(t, "the message", got.stderr,
		`--apply: nothing is applied because of unreadable files: "a", "core.123", "d"`,
		"the patch is in ")
	if diff := cmp.Diff(files, readTree(t, dir)); diff != "" {
		t.Errorf("the host has changed (-want +got):\n%s", diff)
	}
	left := patchesIn(t, state)
	if len(left) != 1 {
		t.Fatalf("kept: %q", left)
	}
	if b, err := os.ReadFile(left[0]); err != nil || !strings.Contains(string(b), "+new\n") {
		t.Errorf("the patch is %q, %v", b, err)
	}
}

// TestDockerTransferRepository downloads a .git in which a command has planted commands.
func TestDockerTransferRepository(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	dir, state := t.TempDir(), t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "http.extraheader", "canary")
	writeTree(t, dir, map[string]string{"a": "a\n"})
	want := readTree(t, filepath.Join(dir, ".git"))
	const script = `printf "[core]\n\tfsmonitor = touch planted; false\n" >>.git/config; echo b >a; ` +
		`! grep -r canary . >&2 && test ! -e in/.git`
	got := d.run(t, dir, []string{"SANDBOXAGENT_STATE_DIR=" + state}, "exec", "--workdir=.",
		"--upload=.:in", "--apply", "--download=.", "--", "sh", "-c", script)
	if got.code != 0 {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
	wantContains(t, "standard error", got.stderr, `--upload: ".git" is skipped`,
		`--download: ".git" is skipped`)
	if diff := cmp.Diff(want, readTree(t, filepath.Join(dir, ".git"))); diff != "" {
		t.Errorf("the repository has changed (-want +got):\n%s", diff)
	}
	if got := readTree(t, dir)["a"]; got != "b\n" {
		t.Errorf("a is %q", got)
	}
	if left := patchesIn(t, state); len(left) > 0 {
		t.Errorf("a patch that was applied is kept: %q", left)
	}
}
