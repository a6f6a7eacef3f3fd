package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// patchesIn lists the patches that were kept.
func patchesIn(t *testing.T, state string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(state, "patches", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDockerUnreadable lets a command close what it has changed. Nothing of that is lost in
// silence.
func TestDockerUnreadable(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	const script = "echo changed >a; chmod 000 a; echo x >d/b; chmod 000 d; echo new >c"
	files := map[string]string{"a": "a\n", "d/b": "b\n"}
	for name, kind := range map[string]struct {
		command, flags []string
		code           int
	}{
		"exec": {[]string{"exec"}, []string{"--", "sh", "-c", script}, 125},
		"run":  {[]string{"run"}, nil, 6},
	} {
		t.Run(name, func(t *testing.T) {
			dir, state := t.TempDir(), t.TempDir()
			writeTree(t, dir, files)
			patch := filepath.Join(t.TempDir(), "out.patch")
			args := append(kind.command, "--workdir=.", "--apply", "--patch="+patch)
			if name == "run" {
				model := filepath.Join(t.TempDir(), "model.yaml")
				writeTree(t, filepath.Dir(model), map[string]string{"model.yaml": "turns:\n  - calls:\n     " +
					" - {tool: shell, args: {command: '" + script + "'}}\n  - text: done\n"})
				args = append(args, "--model=script:"+model, "change it")
			}
			got := d.run(t, dir, []string{"SANDBOXAGENT_STATE_DIR=" + state}, append(args, kind.flags...)...)
			if got.code != kind.code {
				t.Errorf("exit code %d, want %d\n%s", got.code, kind.code, got.stderr)
			}
			wantContains(t, "the message", got.stderr,
				`--apply: nothing is applied because of unreadable files: "a", "d"`, patch)
			if diff := cmp.Diff(files, readTree(t, dir)); diff != "" {
				t.Errorf("the host is not as it was (-want +got):\n%s", diff)
			}
			if b, err := os.ReadFile(patch); err != nil || !strings.Contains(string(b), "+new\n") {
				t.Errorf("the patch is %q, %v", b, err)
			}
			if left := patchesIn(t, state); len(left) > 0 {
				t.Errorf("kept besides: %q", left)
			}
		})
	}
}

// TestDockerLargeFile leaves a core file behind, which costs itself and not the work.
func TestDockerLargeFile(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	dir, state := t.TempDir(), t.TempDir()
	writeTree(t, dir, map[string]string{"a": "a\n"})
	got := d.run(t, dir, []string{"SANDBOXAGENT_STATE_DIR=" + state}, "exec", "--apply", "--", "sh",
		"-c", "echo b >a; truncate -s 20G core.123")
	if got.code != 125 {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
	wantContains(t, "the message", got.stderr, `cannot be read: "core.123"`, "the patch is in ")
	left := patchesIn(t, state)
	if len(left) != 1 {
		t.Fatalf("kept: %q", left)
	}
	if b, err := os.ReadFile(left[0]); err != nil || !strings.Contains(string(b), "-a\n+b\n") {
		t.Errorf("the patch is %q, %v", b, err)
	}
}

// TestDockerTransferRepository lets a container plant commands where git would run them, by way of
// what is downloaded.
func TestDockerTransferRepository(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	dir, state := t.TempDir(), t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "http.extraheader", "canary")
	writeTree(t, dir, map[string]string{"a": "a\n"})
	want := readTree(t, filepath.Join(dir, ".git"))
	const script = `printf "[core]\n\tfsmonitor = touch planted; false\n" >>.git/config; echo b >a; ! grep -r canary . >&2 && test ! -e in/.git`
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
		t.Errorf("kept though it was applied: %q", left)
	}
}
