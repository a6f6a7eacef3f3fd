package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	left, err := filepath.Glob(filepath.Join(state, "patches", "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("kept: %q, %v", left, err)
	}
	if b, err := os.ReadFile(left[0]); err != nil || !strings.Contains(string(b), "+new\n") {
		t.Errorf("the patch is %q, %v", b, err)
	}
}
