package integration_test

import (
	"os"
	"os/exec"
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
		"--ttl=20s", "--", "sh", "-c", "echo kept >f; sleep 1000 >/dev/null 2>&1 &"))
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
	if got := run(attach("sandboxagent-"+id, "--", "true")); got.code != 0 {
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
