package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestDockerFaults has containers misbehave, and images that lack almost everything.
func TestDockerFaults(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	for _, tt := range []struct {
		name  string
		prove func(*testing.T, *dockerHost)
	}{
		{"F14_fork_bomb", proveForkBomb},
		{"F17_hostile_changes", func(t *testing.T, d *dockerHost) { proveHostileChanges(t, d) }},
		{"F18_hostile_download", proveHostileDownload},
		{"F26_images", proveImages},
		{"F27_double_forks", proveDoubleForks},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.prove(t, d)
		})
	}
}

// proveForkBomb lets a command multiply until it meets the limit of processes. Its timeout ends it
// with all its processes, and the container remains usable.
func proveForkBomb(t *testing.T, d *dockerHost) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"model.yaml": `turns:
  - calls: [{tool: shell, args: {command: 'b() { b | b & }; b; sleep 1000', timeout_ms: 3000}}]
  - expect: {result: {tool: shell, contains: more than 3000 ms}}
    calls:
      - tool: shell
        args: {timeout_ms: 3000, command: 'for i in $(seq 300); do sleep 1000 & done; wait'}
  - expect: {result: {tool: shell, contains: 000 ms}}
    calls:
      - tool: shell
        args: {command: 'set -- /proc/[0-9]*; test $# -lt 10 && echo only $# are left'}
  - expect: {result: {tool: shell, contains: are left, not_contains: exit code 1}}
    text: It is quiet.
`})
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o750); err != nil {
		t.Fatal(err)
	}
	got := d.run(t, work, nil, "run", "--image="+daemons.Debian, "--pids=100", "--cpus=0.5",
		"--timeout=10m", "--model=script:../model.yaml", "be loud")
	if got.code != 0 || got.stdout != "It is quiet.\n" {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}

// proveDoubleForks makes ten thousand orphans.
func proveDoubleForks(t *testing.T, d *dockerHost) {
	count := 10_000
	if testing.Short() {
		count /= 10
	}
	got := d.run(t, t.TempDir(), nil, "exec", "--image="+daemons.Busybox, "--timeout=2m", "--", "sh",
		"-c", fmt.Sprintf(`
i=0
while [ $i -lt %d ]; do (true & ); i=$((i+1)); done
n=0
while grep -qs '^State:.Z' /proc/[0-9]*/status && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l
set -- /proc/[0-9]*
test $# -lt 10 || echo $# processes
exit 7`, count))
	if got.code != 7 || got.stdout != "0\n" {
		t.Errorf("exit code %d, zombies and processes: %s\n%s", got.code, got.stdout, got.stderr)
	}
}

// hostileImage has in each directory of /evil files that must not reach the host.
const hostileImage = `FROM %s
RUN mkdir -p /evil/absolute /evil/climbing /evil/chain/a /evil/device /evil/pipe /evil/setuid \
    /evil/names /evil/inside/deep \
 && ln -s /etc/passwd /evil/absolute/x \
 && ln -s ../../../../../../../../etc/passwd /evil/climbing/x \
 && ln -s a/../.. /evil/chain/b && ln -s b/../../etc /evil/chain/c \
 && mknod /evil/device/sda b 8 0 && mknod /evil/device/kmsg c 1 11 \
 && mkfifo /evil/pipe/p \
 && cp /bin/busybox /evil/setuid/sh && chmod 6755 /evil/setuid/sh \
 && echo 1 >'/evil/names/..\..\x' && echo 2 >"/evil/names/$(printf 'a\nb')" \
 && echo 3 >/evil/names/-rf && echo 4 >'/evil/names/C:x' \
 && echo ok >/evil/inside/deep/f && ln -s deep/f /evil/inside/l \
 && ln /evil/inside/deep/f /evil/inside/deep/g
`

// proveHostileDownload downloads the directories of hostileImage.
func proveHostileDownload(t *testing.T, d *dockerHost) {
	ref := d.build(t, "hostile", fmt.Sprintf(hostileImage, daemons.Busybox), nil)
	for name, tt := range map[string]struct {
		refused string            // part of the message; empty if the download succeeds
		want    map[string]string // files of the host afterwards
	}{
		"absolute": {refused: "x"}, "climbing": {refused: "x"}, "chain": {refused: "chain"},
		"device/sda": {refused: "sda"}, "pipe/p": {refused: "pipe/p"},
		"device": {want: map[string]string{"device/sda": "", "device/kmsg": ""}},
		"pipe":   {want: map[string]string{"pipe/p": ""}},
		"names": {want: map[string]string{
			`names/..\..\x`: "1\n", "names/a\nb": "2\n", "names/-rf": "3\n", "names/C:x": "4\n",
		}},
		"inside": {want: map[string]string{
			"inside/deep/f": "ok\n", "inside/l": "-> deep/f", "inside/deep/g": "ok\n",
		}},
		"setuid": {},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			writeTree(t, top, map[string]string{"beside": "beside\n", "out/own": "own\n"})
			out := filepath.Join(top, "out")
			got := d.run(t, t.TempDir(), nil, "exec", "--image="+ref, "--download=/evil/"+name+":"+out, "--",
				"true")
			tree := readTree(t, top)
			if tree["beside"] != "beside\n" || tree["out/own"] != "own\n" {
				t.Errorf("other files have changed: %q", tree)
			}
			noWayOut(t, top)
			if tt.refused != "" {
				if got.code != 125 || !strings.Contains(got.stderr, "--download") ||
					!strings.Contains(got.stderr, tt.refused) {
					t.Errorf("exit code %d: %s", got.code, got.stderr)
				}
				return
			}
			if got.code != 0 {
				t.Fatalf("exit code %d: %s", got.code, got.stderr)
			}
			for name, text := range tt.want {
				if tree["out/"+name] != text {
					t.Errorf("%q holds %q, want %q", name, tree["out/"+name], text)
				}
			}
			if info, err := os.Stat(filepath.Join(out, "setuid", "sh")); name == "setuid" && (err != nil ||
				info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0) {
				t.Errorf("it came as %v, %v", info, err)
			}
		})
	}
}

// noWayOut checks that a tree of the host has neither links that lead out of it nor special files.
func noWayOut(t *testing.T, top string) {
	t.Helper()
	err := filepath.WalkDir(top, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if kind := e.Type(); kind&os.ModeSymlink != 0 {
			to, err := filepath.EvalSymlinks(name)
			if err != nil || !strings.HasPrefix(to, top) {
				t.Errorf("%s leads to %s, %v", name, to, err)
			}
		} else if !e.IsDir() && !kind.IsRegular() {
			t.Errorf("%s is a %v", name, kind)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// hostileChange is a command in the workspace, run with --patch and --apply.
type hostileChange struct {
	command string
	// refused is part of the message if the changes do not apply; empty if they do.
	refused string
	// want are files of the host afterwards, as readTree has them; an empty text stands for no file.
	want map[string]string
}

func hostileChanges() map[string]hostileChange {
	return map[string]hostileChange{
		"hooks and settings of git": {
			command: `mkdir -p .git/hooks; printf '#!/bin/sh\ntouch /tmp/owned\n' >.git/hooks/post-checkout
chmod +x .git/hooks/post-checkout
printf '[core]\n\tfsmonitor = touch /tmp/owned\n' >>.git/config; echo new >new.txt`,
			want: map[string]string{"new.txt": "new\n"},
		},
		"git under other names": {
			command: `mkdir -p .GIT sub/.Git; for d in .GIT sub/.Git; do echo x >$d/config; done; ` +
				`echo new >new.txt`,
			want: map[string]string{"new.txt": "new\n", ".GIT/config": "", "sub/.Git/config": ""},
		},
		"absolute link": {command: `ln -s /etc/passwd link`, refused: "link"},
		"directory becomes a link": {
			command: `rm -r notes; ln -s ../outside notes; mkdir -p ../outside || true`, refused: "notes",
		},
		"write behind a link": {
			command: `rm way; mkdir -p way/deep; echo inside >way/deep/f`,
			want:    map[string]string{"way/deep/f": "inside\n"},
		},
		"special files": {
			command: `mkfifo pipe; echo new >new.txt`,
			want:    map[string]string{"new.txt": "new\n", "pipe": ""},
		},
		"names that look like a patch": {
			command: `mkdir 'a
+++ b'; printf x >'a
+++ b/owned
@@ -0,0 +1 @@
+y'; printf y >'tab	and "quotes" \ é'; printf z >-rf`,
			want: map[string]string{
				"a\n+++ b/owned\n@@ -0,0 +1 @@\n+y": "x", "tab\tand \"quotes\" \\ é": "y", "-rf": "z",
			},
		},
		"contents that look like a patch": {
			command: `printf 'diff --git a/../outside/owned b/../outside/owned\nnew file mode 100644\n--- ` +
				`/dev/null\n+++ b/../outside/owned\n@@ -0,0 +1 @@\n+y\n' >new.txt`,
			want: map[string]string{"new.txt": "diff --git a/../outside/owned b/../outside/owned\nnew " +
				"file mode 100644\n--- /dev/null\n+++ b/../outside/owned\n@@ -0,0 +1 @@\n+y\n"},
		},
	}
}

// proveHostileChanges makes changes in an environment that would harm this machine, or its git, if
// they were made here.
func proveHostileChanges(t *testing.T, h runner) {
	for name, tt := range hostileChanges() {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := filepath.Join(top, "repository"), filepath.Join(top, "outside")
			writeTree(t, top, map[string]string{
				"repository/notes/old.txt": "old\n", "repository/f": "f\n", "outside/secret": "secret\n",
			})
			if err := os.Symlink("../outside", filepath.Join(dir, "way")); err != nil {
				t.Fatal(err)
			}
			git(t, dir, "init", "-q", "-b", "main")
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-q", "-m", "all")
			before, meta := readTree(t, dir), readTree(t, filepath.Join(dir, ".git"))
			patch := filepath.Join(top, "out.patch")
			got := h.run(t, dir, nil, "exec", "--image="+daemons.Busybox, "--patch="+patch, "--apply",
				"--timeout=1m", "--", "sh", "-c", tt.command)
			after := readTree(t, dir)
			if diff := cmp.Diff(map[string]string{"secret": "secret\n"}, readTree(t, outside)); diff != "" {
				t.Errorf("outside has changed: %s", diff)
			}
			if diff := cmp.Diff(meta, readTree(t, filepath.Join(dir, ".git"))); diff != "" {
				t.Errorf("the host's .git has changed (-before +after):\n%s", diff)
			}
			if tt.refused != "" {
				if got.code != 125 || !strings.Contains(got.stderr, "--apply: ") ||
					!strings.Contains(got.stderr, tt.refused) {
					t.Errorf("exit code %d: %s", got.code, got.stderr)
				}
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("the host has changed (-before +after):\n%s", diff)
				}
				return
			}
			if got.code != 0 {
				t.Fatalf("exit code %d: %s", got.code, got.stderr)
			}
			for name, text := range tt.want {
				if after[name] != text {
					t.Errorf("%q holds %q, want %q", name, after[name], text)
				}
			}
			clean := filepath.Join(top, "clean")
			git(t, top, "clone", "-q", dir, clean)
			git(t, clean, "apply", patch)
			if diff := cmp.Diff(after, readTree(t, clean)); diff != "" {
				t.Errorf("git apply makes another tree than --apply (-apply +git):\n%s", diff)
			}
		})
	}
}

// proveImages uses images that lack almost everything.
func proveImages(t *testing.T, d *dockerHost) {
	for _, image := range []string{daemons.Busybox, daemons.Empty} {
		d.need(t, image)
	}
	script := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(script), map[string]string{"model.yaml": `turns:
  - calls: [{tool: shell, args: {command: echo from a shell}}]
  - calls: [{tool: list_dir, args: {path: .}}]
  - expect: {result: {tool: list_dir, is_error: false}}
    text: done
`})
	for _, user := range []string{"10001:10001", "12345", "root"} {
		uid, _, _ := strings.Cut(strings.Replace(user, "root", "0", 1), ":")
		t.Run("busybox as "+uid, func(t *testing.T) {
			got := d.run(t, t.TempDir(), nil, "exec", "--image="+daemons.Busybox, "--user="+user, "--", "sh",
				"-euc",
				`id -u; echo ok >/workspace/f; cat f; echo h >"$HOME/h"; echo t >/tmp/t; if echo x `+
					`2>/dev/null >/x; then echo the root is writable; fi`)
			if got.code != 0 || got.stdout != uid+"\nok\n" {
				t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
		})
		t.Run("empty as "+uid, func(t *testing.T) {
			dir := t.TempDir()
			writeTree(t, dir, map[string]string{"f": "f\n"})
			flags := []string{"--image=" + daemons.Empty, "--user=" + user}
			got := d.run(t, dir, nil, append(append([]string{"exec"}, flags...), "--workdir=.",
				"--download=f:out", "--", "/bin/probe", "args", "a b", "")...)
			if got.code != 0 || got.stdout != "\"a b\"\n\"\"\n" || readTree(t, dir)["out/f"] != "f\n" {
				t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
			if got := d.run(t, dir, nil, append(append([]string{"exec"}, flags...), "--", "/bin/probe",
				"exit", "9")...); got.code != 9 {
				t.Errorf("exit code %d\n%s", got.code, got.stderr)
			}
			if got := d.run(t, dir, nil, append(append([]string{"exec"}, flags...), "--", "sh", "-c",
				"true")...); got.code != 127 || !strings.Contains(got.stderr, "sh") {
				t.Errorf("exit code %d\n%s", got.code, got.stderr)
			}
			got = d.run(t, dir, nil, append(append([]string{"run"}, flags...), "--model=script:"+script,
				"--patch=p", "look around")...)
			if got.code != 0 || got.stdout != "done\n" {
				t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
		})
	}
}
