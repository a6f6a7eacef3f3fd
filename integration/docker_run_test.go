package integration_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// poem makes a small repository.
func poem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	writeTree(t, dir, map[string]string{
		"poem.txt": "roses\nviolets\n", "notes/old.txt": "old\n", "run.sh": "echo run\n",
		".gitignore": "*.log\n", "moved.txt": strings.Repeat("a line\n", 20),
	})
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "a poem")
	writeTree(t, dir, map[string]string{"untracked.txt": "not tracked\n", "debug.log": "ignored\n"})
	return dir
}

// rewrite is a model that checks the sandbox and then changes the poem.
const rewrite = `turns:
  - expect: {user: {contains: rewrite}, tools: [shell]}
    calls:
      - tool: shell
        args:
          command: |
            pwd; id -u; cat untracked.txt; test -e debug.log || echo no log
            tail -n +3 /proc/net/dev | cut -d: -f1; git status --short || true
  - expect:
      result:
        tool: shell
        contains: ["/workspace\n10001\n", "not tracked\n", "no log\n", " lo\n"]
        not_contains: [eth0]
    calls:
      - tool: shell
        args:
          command: |
            printf "roses\nlilies\n" >poem.txt; rm -r notes; chmod +x run.sh; mv moved.txt new.txt
            printf "\000\001" >bin.dat; echo kept >added.txt; ln -s poem.txt link; echo x >more.log
  - expect: {result: {tool: shell, contains: "exit code 0"}}
    text: It is rewritten.
`

// rewritten is the resulting tree, with the files that git ignores.
var rewritten = map[string]string{
	"poem.txt": "roses\nlilies\n", "run.sh": "echo run\n", ".gitignore": "*.log\n",
	"new.txt": strings.Repeat("a line\n", 20), "bin.dat": "\x00\x01",
	"added.txt": "kept\n", "link": "-> poem.txt", "untracked.txt": "not tracked\n",
	"debug.log": "ignored\n",
}

// readTree returns the files below dir by name, without those of a .git directory below it.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" && name != dir {
				return filepath.SkipDir
			}
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		var text string
		if d.Type()&os.ModeSymlink != 0 {
			text, err = os.Readlink(name)
			text = "-> " + text
		} else {
			var b []byte
			b, err = os.ReadFile(name)
			text = string(b)
		}
		tree[filepath.ToSlash(rel)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestDockerRun checks that a run in a container changes only those files of the host that its
// flags name.
func TestDockerRun(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	if runtime.GOOS == "windows" {
		t.Skip("the trees have links and modes")
	}
	for name, apply := range map[string]bool{"patch": false, "patch and apply": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := poem(t)
			want, patch := readTree(t, dir), filepath.Join(t.TempDir(), "out.patch")
			clean := filepath.Join(t.TempDir(), "clean")
			git(t, dir, "clone", "-q", dir, clean)
			args := []string{
				"run", scriptFlag(t, rewrite), "--patch", patch, "--output=stream-json", "rewrite it",
			}
			if apply {
				args, want = append(args, "--apply"), rewritten
			}
			got := d.run(t, dir, nil, args...)
			if got.code != 0 {
				t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
			if _, res := records(t, got.stdout); res.Status != "completed" || res.ExitCode != 0 ||
				res.Patch != patch || res.Text != "It is rewritten." {
				t.Errorf("the result is %+v", res)
			}
			if diff := cmp.Diff(want, readTree(t, dir)); diff != "" {
				t.Errorf("the directory of the host (-want +got):\n%s", diff)
			}
			git(t, clean, "apply", "--index", patch)
			writeTree(t, clean, map[string]string{
				"untracked.txt": "not tracked\n", "debug.log": "ignored\n",
			})
			if diff := cmp.Diff(rewritten, readTree(t, clean)); diff != "" {
				t.Errorf("the patch makes another tree (-want +got):\n%s", diff)
			}
			if info, err := os.Stat(filepath.Join(clean, "run.sh")); err != nil ||
				info.Mode().Perm()&0o100 == 0 {
				t.Errorf("run.sh is not executable: %v, %v", info, err)
			}
		})
	}
	t.Run("conflict", func(t *testing.T) {
		t.Parallel()
		proveConflict(t, d)
	})
	t.Run("failed run is not applied", func(t *testing.T) {
		t.Parallel()
		proveNotApplied(t, d)
	})
	t.Run("transfers", func(t *testing.T) {
		t.Parallel()
		proveTransfers(t, d)
	})
}

// scriptFlag returns the flag for a model that plays a script.
func scriptFlag(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(name), map[string]string{"model.yaml": text})
	return "--model=script:" + name
}

// proveNotApplied has a model that changes a file and cannot do its task.
func proveNotApplied(t *testing.T, d runner) {
	dir := poem(t)
	before, patch := readTree(t, dir), filepath.Join(t.TempDir(), "out.patch")
	script := scriptFlag(t, `turns:
  - calls: [{tool: shell, args: {command: echo more >>poem.txt}}]
  - calls: [{tool: exit, args: {code: 1, reason: I cannot}}]
`)
	got := d.run(t, dir, nil, "run", "--max-replans=0", "--apply", "--patch", patch, script,
		"rewrite it")
	if diff := cmp.Diff(before, readTree(t, dir)); got.code != 1 || diff != "" {
		t.Errorf("exit code %d; (-before +after):\n%s", got.code, diff)
	}
	if b, err := os.ReadFile(patch); err != nil || !strings.Contains(string(b), "+more\n") {
		t.Errorf("the patch holds %q, %v", b, err)
	}
}

// proveTransfers has files beside the working directory for a run, and of it.
func proveTransfers(t *testing.T, d runner) {
	dir, in, out := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new", "dir")
	writeTree(t, in, map[string]string{
		"data/a.csv": "1,2\n", "data/sub/b.csv": "3\n", "one.txt": "one\n",
	})
	got := d.run(t, dir, nil, "run", "--upload", filepath.Join(in, "data")+":/tmp/in", "--upload",
		filepath.Join(in, "one.txt"), "--download", "/tmp/out:"+out,
		scriptFlag(t, `turns:
  - calls:
      - tool: shell
        args:
          command: |
            cat /tmp/in/a.csv one.txt; mkdir -p /tmp/out/deep
            cat /tmp/in/sub/b.csv >/tmp/out/deep/r.csv; ln -s deep/r.csv /tmp/out/latest
  - expect: {result: {tool: shell, contains: "1,2\none\n"}}
    text: done
`), "copy")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s", got.code, got.stderr)
	}
	if diff := cmp.Diff(map[string]string{"out/deep/r.csv": "3\n", "out/latest": "-> deep/r.csv"},
		readTree(t, out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left := readTree(t, dir); len(left) > 0 {
		t.Errorf("the working directory has got %v", left)
	}
}

// proveConflict changes a file of the host while the model changes it in the environment.
func proveConflict(t *testing.T, d runner) {
	dir := poem(t)
	srv := llmtest.NewServer(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Number == 0 {
			writeTree(t, dir, map[string]string{"poem.txt": "the user's own\n"})
			return llmtest.Use(shell("echo more >>poem.txt; echo new >new.txt; rm run.sh"))
		}
		return llmtest.Text("done")
	})
	want := readTree(t, dir)
	want["poem.txt"] = "the user's own\n"
	state, args := t.TempDir(), []string{"run", "--apply", "--model=openai/gpt-5.2", "--base-url=" +
		srv.URL(), "--output=stream-json", "rewrite it"}
	got := d.run(t, dir, []string{"OPENAI_API_KEY=" + srv.Key(), "SANDBOXAGENT_STATE_DIR=" + state},
		args...)
	_, res := records(t, got.stdout)
	if got.code != 6 || res.ExitCode != 6 || !strings.Contains(res.Error,
		`"poem.txt" changed since it was uploaded`) {
		t.Errorf("exit code %d, %+v\n%s", got.code, res, got.stderr)
	}
	if diff := cmp.Diff(want, readTree(t, dir)); diff != "" {
		t.Errorf("the host is not as it was (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(res.Patch, state) {
		t.Errorf("the patch is in %q", res.Patch)
	}
	b, err := os.ReadFile(res.Patch)
	if err != nil || !strings.Contains(res.Error, res.Patch) {
		t.Errorf("%v; the message is %q", err, res.Error)
	}
	for _, part := range []string{" violets\n+more\n", "+++ b/new.txt", "deleted file mode"} {
		wantContains(t, "the patch", string(b), part)
	}
}

// TestDockerExitCodes ends runs in every way that a container can change, and checks the exit code,
// the record, the patch, and that no container is left.
func TestDockerExitCodes(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	if runtime.GOOS == "windows" {
		t.Skip("a program of Windows gets no signals")
	}
	const long = `turns: [{calls: [{tool: shell, args: {command: 'echo begun >f; sleep 1000', ` +
		`timeout_ms: 500000}}]}]`
	tests := map[string]struct {
		script string
		flags  []string
		// at is called when the command runs.
		at     func(t *testing.T, run *os.Process, mark string)
		code   int
		status string
		text   string
	}{
		"done": {script: `turns: [{text: ok}]`, code: 0, status: "completed"},
		"check failed": {
			script: `turns: [{text: ok}, {text: ok}, {text: ok}]`,
			flags:  []string{"--verify=false", "--max-replans=0"}, code: 1, status: "verify_failed",
		},
		"removed": {
			script: long, code: 6, status: "environment_error", text: "removed",
			at: func(t *testing.T, _ *os.Process, mark string) {
				list, err := d.containers(t.Context(), mark)
				if err != nil || len(list) != 1 {
					t.Fatalf("containers %v, %v", list, err)
				}
				id, _, _ := strings.Cut(list[0], " ")
				if err := d.api.ContainerRemove(t.Context(), id, container.RemoveOptions{
					Force: true, RemoveVolumes: true,
				}); err != nil {
					t.Fatal(err)
				}
			},
		},
		"timeout": {script: long, flags: []string{"--timeout=1m"}, code: 124, status: "timed_out"},
		"interrupted": {
			script: long, code: 130, status: "aborted", text: "interrupt", at: signalled(os.Interrupt),
		},
		"terminated": {
			script: long, code: 143, status: "aborted", text: "terminat", at: signalled(syscall.SIGTERM),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, mark := t.TempDir(), newMark()
			patch := filepath.Join(t.TempDir(), "out.patch")
			writeTree(t, filepath.Dir(patch), map[string]string{"model.yaml": tt.script})
			cmd := d.command(t, dir, mark, append([]string{
				"run", "--output=stream-json", "--patch", patch,
				"a task", "--model=script:" + filepath.Join(filepath.Dir(patch), "model.yaml"),
			}, tt.flags...)...)
			d.removeLeft(t, mark)
			var stderr lockedBuffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var stdout strings.Builder
			for lines := bufio.NewScanner(out); lines.Scan(); {
				stdout.WriteString(lines.Text() + "\n")
				if tt.at != nil && strings.Contains(lines.Text(), `"type":"tool_call_start"`) {
					d.awaitFile(t, mark, "/workspace/f")
					tt.at(t, cmd.Process, mark)
				}
			}
			_ = cmd.Wait() // the exit code is checked
			d.checkNone(t, mark)
			_, res := records(t, stdout.String())
			if code := cmd.ProcessState.ExitCode(); code != tt.code || res.ExitCode != tt.code ||
				res.Status != tt.status || !strings.Contains(res.Error, tt.text) {
				t.Errorf("exit code %d, record %+v, want %d %s %s\n%s", code, res, tt.code, tt.status, tt.text,
					stderr.String())
			}
			if (res.Error == "") != (tt.code == 0) {
				t.Errorf("the error is %q", res.Error)
			}
			if b, err := os.ReadFile(patch); tt.script == long && tt.code != 6 && (err != nil ||
				!strings.Contains(string(b), "+begun\n")) {
				t.Errorf("the patch holds %q, %v", b, err)
			}
		})
	}
}

func signalled(s os.Signal) func(*testing.T, *os.Process, string) {
	return func(t *testing.T, p *os.Process, _ string) {
		t.Helper()
		if err := p.Signal(s); err != nil {
			t.Error(err)
		}
	}
}

// awaitFile waits until a file exists in the container of a run.
func (d *dockerHost) awaitFile(t testing.TB, mark, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		list, err := d.containers(ctx, mark)
		if err == nil && len(list) == 1 {
			id, _, _ := strings.Cut(list[0], " ")
			if _, err = d.api.ContainerStatPath(ctx, id, name); err == nil {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%s did not appear: %v, %v", name, list, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
