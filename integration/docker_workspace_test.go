package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestDockerUnreadable has changes in a container that cannot be fetched.
func TestDockerUnreadable(t *testing.T) {
	t.Parallel()
	proveUnreadable(t, sharedDocker(t))
}

// proveUnreadable has a command change files and make them unreadable or too large. Nothing is
// applied, and the patch has the rest.
func proveUnreadable(t *testing.T, h runner) {
	const script = "echo changed >a; chmod 000 a; echo x >d/b; chmod 000 d; echo new >c; " +
		"truncate -s 20G core.123"
	dir, state := t.TempDir(), t.TempDir()
	files := map[string]string{"a": "a\n", "d/b": "b\n"}
	writeTree(t, dir, files)
	got := h.run(t, dir, []string{"SANDBOXAGENT_STATE_DIR=" + state}, "exec", "--apply", "--", "sh",
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

// TestDockerReadOnly has commands that read uploaded files, and try to change them.
func TestDockerReadOnly(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	dir, in := t.TempDir(), t.TempDir()
	writeTree(t, dir, map[string]string{"file": "tree\n"})
	writeTree(t, in, map[string]string{"in": "upload\n"})
	upload := "--upload=" + filepath.Join(in, "in")
	got := d.run(t, dir, nil, "exec", "--read-only", "--image="+daemons.Debian, "--workdir="+dir,
		upload+":sub", upload+":/tmp", "--", "sh", "-c",
		"cat file sub/in /tmp/in; chmod 600 file; touch file; touch -d 2000-01-01 sub; rm file; ls")
	if got.code != 0 || got.stdout != "tree\nupload\nupload\nfile\nsub\n" ||
		strings.Count(got.stderr, "Read-only file system") != 4 {
		t.Errorf("%+v", got)
	}
	got = d.run(t, dir, nil, "exec", "--read-only", "--image="+daemons.Debian, "--no-upload",
		"--workdir=/usr/share/base-files", "--", "sh", "-c", "ls -d .; touch new; chmod 600 .")
	if got.code != 1 || got.stdout != ".\n" ||
		strings.Count(got.stderr, "Read-only file system") != 2 {
		t.Errorf("%+v", got)
	}
}

// TestDockerNoUpload has commands work on a directory of the image.
func TestDockerNoUpload(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	image := d.build(t, "no-upload", "FROM "+daemons.Debian+"\nCOPY file /testbed/file\n",
		map[string]string{"file": "old\n"})
	for _, test := range []struct{ name, flags, script, stdout, patch string }{
		{
			"of the image", "--patch=p --workdir=/testbed/", "ls && echo new >file && echo 1 >more",
			"file\n", "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n",
		},
		{"no directory", "--patch=p", "pwd && ls && echo 1 >more", "/workspace\n", "+++ b/more\n"},
		{"a writable root", "--writable-root --user=root", "echo x >/etc/x && cat /etc/x", "x\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeTree(t, dir, map[string]string{"host": "host\n"})
			args := append([]string{"exec", "--image=" + image, "--no-upload"},
				strings.Fields(test.flags)...)
			// a variable for other runs
			got := d.run(t, dir, []string{"SANDBOXAGENT_APPLY=true"},
				append(args, "--", "sh", "-c", test.script)...)
			if got.code != 0 || got.stdout != test.stdout || got.stderr != "" {
				t.Fatalf("%+v", got)
			}
			files := readTree(t, dir)
			wantContains(t, "the patch", files["p"], test.patch)
			delete(files, "p")
			if diff := cmp.Diff(map[string]string{"host": "host\n"}, files); diff != "" {
				t.Errorf("the host has changed (-want +got):\n%s", diff)
			}
		})
	}
}
