package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestDockerKeep keeps a container, comes back to it, and leaves it to its end.
func TestDockerKeep(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	d.need(t, daemons.Debian)
	mark, state := newMark(), "SANDBOXAGENT_STATE_DIR="+t.TempDir()
	d.removeLeft(t, mark)
	run := func(cmd *exec.Cmd) ran {
		t.Helper()
		cmd.Env = append(cmd.Env, state)
		return finish(t, cmd)
	}
	got := run(d.command(t, t.TempDir(), mark, "exec", "--image="+daemons.Debian, "--keep",
		"--ttl=45s", "--", "sh", "-c", "echo kept >f; sleep 1000 >/dev/null 2>&1 &"))
	_, id, ok := strings.Cut(got.stderr, "env attach ")
	id, _, _ = strings.Cut(id, `"`)
	if got.code != 0 || !ok {
		t.Fatalf("%+v", got)
	}
	attach := func(more ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), command(t), append([]string{"env", "attach"}, more...)...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host)
		return cmd
	}
	shell := attach(id)
	shell.Stdin = strings.NewReader("cat f; cat /proc/[0-9]*/comm | grep -c '^sleep$'; exit 5\n")
	if got := run(shell); got.code != 5 || got.stdout != "kept\n1\n" {
		t.Errorf("%+v", got)
	}
	if got := run(attach("sandboxagent-"+id[:8], "--", "true")); got.code != 0 {
		t.Errorf("by the name of its container: %+v", got)
	}
	other := attach(id, "--", "true")
	other.Env = append(other.Env, "DOCKER_HOST=tcp://127.0.0.1:1")
	if got := run(other); got.code != 125 {
		t.Errorf("in another daemon: %+v", got)
	}
	await(t, "the end of the container", func() bool {
		left, err := d.containers(t.Context(), mark)
		return err == nil && len(left) == 0
	})
	if got := run(attach(id, "--", "true")); got.code != 125 || !strings.Contains(got.stderr,
		"gone") && !strings.Contains(got.stderr, "removed") && !strings.Contains(got.stderr, "ended") {
		t.Errorf("after its end: %+v", got)
	}
	if got := run(attach(id, "--", "true")); got.code != 125 || !strings.Contains(got.stderr,
		"unknown environment") {
		t.Errorf("after that: %+v", got)
	}
	d.checkNone(t, mark)
}

// TestDockerExisting acts in a container that was kept, which stays until it is removed.
func TestDockerExisting(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	d.need(t, daemons.Debian)
	mark := newMark()
	d.removeLeft(t, mark)
	proveExisting(t, []string{"DOCKER_HOST=" + d.host}, []string{
		"--env=docker", "--image=" + daemons.Debian, "--label=" + markLabel + "=" + mark,
	})
	d.checkNone(t, mark)
}

// proveExisting keeps an environment that flags open, acts in it and removes it.
func proveExisting(t *testing.T, vars, flags []string) {
	t.Helper()
	dir, mark := t.TempDir(), newMark()
	vars = append([]string{"SANDBOXAGENT_STATE_DIR=" + t.TempDir()}, vars...)
	call := func(args ...string) ran {
		t.Helper()
		return runCommand(t, dir, vars, args...)
	}
	script := filepath.Join(dir, "s.yaml")
	if err := os.WriteFile(script, []byte(`turns:
  - calls: [{tool: shell, args: {command: "echo three >>f"}}]
  - text: done
`), 0o600); err != nil {
		t.Fatal(err)
	}
	patch := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // of this test
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	got := call(append(append([]string{"exec", "--keep", "--ttl=5m"}, flags...), "--", "sh", "-c",
		"echo one >f; sleep "+mark+" >/dev/null 2>&1 &")...)
	_, id, _ := strings.Cut(got.stderr, "env attach ")
	id, _, _ = strings.Cut(id, `"`)
	if got.code != 0 || len(id) < 8 {
		t.Fatalf("%+v", got)
	}
	existing := "--env-id=" + id[:8]
	if got := call("exec", existing, "--patch=1.patch", "--", "sh", "-c", "echo two >>f; exit 3"); got.
		code != 3 || !strings.Contains(patch("1.patch"), "\n one\n+two\n") {
		t.Errorf("exec: %+v\n%s", got, patch("1.patch"))
	}
	if got := call("run", existing, "--patch=2.patch", "--model=script:"+script, "x"); got.code != 0 ||
		!strings.Contains(patch("2.patch"), "\n one\n two\n+three\n") {
		t.Errorf("run: %+v\n%s", got, patch("2.patch"))
	}
	if got := call("tool", existing, "read_file", `--args={"file_path": "f"}`); got.code != 0 ||
		!strings.Contains(got.stdout, "three") {
		t.Errorf("tool: %+v", got)
	}
	if got := call("exec", existing, "--image=x", "--", "true"); got.code != 125 {
		t.Errorf("a flag of a new environment: %+v", got)
	}
	cmd := exec.CommandContext(t.Context(), command(t), "exec", existing, "--", "sh", "-c",
		"trap 'echo bye; exit 7' INT; : >ready; while :; do sleep 0.1; done")
	cmd.Env = append(os.Environ(), vars...)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the command", func() bool {
		return call("exec", existing, "--", "test", "-f", "ready").code == 0
	})
	_ = cmd.Process.Signal(os.Interrupt) // the exit code shows that it arrived
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 7 || stdout.String() != "bye\n" {
		t.Errorf("an interrupt: exit code %d, stdout %q", cmd.ProcessState.ExitCode(), stdout.String())
	}
	if !running(mark) {
		t.Error("the process in the background has ended")
	}
	if got := call("env", "rm", id[:8]); got.code != 0 || got.stdout != "removed "+id+"\n" {
		t.Errorf("rm: %+v", got)
	}
	if running(mark) {
		t.Error("a process is left")
	}
	for _, args := range [][]string{{"env", "rm", id}, {"tool", existing, "list_dir"}} {
		got := call(args...)
		noDaemon := args[0] == "env" && got.code == 6 // which rm asks for what no file has
		if got.code != 2 && !noDaemon || !strings.Contains(got.stderr, "unknown environment") {
			t.Errorf("%q after the end: %+v", args, got)
		}
	}
}
