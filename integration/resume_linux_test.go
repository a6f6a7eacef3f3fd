//go:build unix

package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// resumer runs sessions in containers of a daemon, with state and a workspace of their own.
type resumer struct {
	*dockerHost
	server           *llmtest.Server
	mark, dir, state string
}

func newResumer(t *testing.T, d *dockerHost, server *llmtest.Server) *resumer {
	t.Helper()
	r := &resumer{d, server, newMark(), t.TempDir(), t.TempDir()}
	git(t, r.dir, "init", "-q")
	writeTree(t, r.dir, map[string]string{"kept": "kept\n", "gone": "gone\n"})
	return r
}

// start starts the program.
func (r *resumer) start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{marker: r.mark}
	p.Cmd = r.command(t, r.dir, r.mark, append(args, "--model=openai-compatible/m",
		"--base-url="+r.server.URL(), "--ttl=3s")...)
	p.Env = append(p.Env, "SANDBOXAGENT_STATE_DIR="+r.state, "SANDBOXAGENT_API_KEY="+r.server.Key())
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs the program to its end and returns its exit code.
func (r *resumer) run(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	p := r.start(t, args...)
	_ = p.Wait() // ProcessState has the exit code
	return p.ProcessState.ExitCode(), p.stderr.String()
}

// entries returns the number of entries in the journal.
func (r *resumer) entries() int {
	names, _ := filepath.Glob(filepath.Join(r.state, "sessions", "*", "journal.jsonl"))
	if len(names) == 0 {
		return 0
	}
	data, _ := os.ReadFile(names[0])
	return bytes.Count(data, []byte("\n"))
}

func (r *resumer) check(t *testing.T, want string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil || string(log) != want {
		t.Errorf("the log is %q, %v; want %q", log, err, want)
	}
}

// TestDockerResume kills runs in containers, and goes on in other containers with the changes so
// far.
func TestDockerResume(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	server := llmtest.NewServer(t, llmtest.Careful(3))
	whole := newResumer(t, d, server)
	if code, stderr := whole.run(t, "run", "--apply", "write it"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	whole.check(t, "0\n1\n2\n")
	entries := whole.entries()
	step := 1
	if testing.Short() {
		step = 6
	}
	for n := 3; n < entries; n += step {
		t.Run(fmt.Sprintf("killed after %d of %d", n, entries), func(t *testing.T) {
			r := newResumer(t, d, server)
			p := r.start(t, "run", "--apply", "write it")
			await(t, "the entry", func() bool { return r.entries() >= n })
			_ = p.Process.Kill()
			_ = p.Wait() // it was killed
			if _, err := os.Stat(filepath.Join(r.dir, "log")); err == nil {
				return // it was done already
			}
			if code, stderr := r.run(t, "session", "resume", "--last"); code != 0 &&
				!strings.Contains(stderr, "is done") {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
			if code, stderr := r.run(t, "session", "resume", "--last", "again"); code != 0 {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
			r.check(t, "0\n1\n2\n")
			r.awaitNone(t)
		})
	}
	t.Run("without apply", func(t *testing.T) { resumeLater(t, newResumer(t, d, server)) })
	whole.awaitNone(t)
}

// awaitNone waits until no container of the tests is left.
func (r *resumer) awaitNone(t *testing.T) {
	t.Helper()
	await(t, "the end of all containers", func() bool {
		left, err := r.containers(t.Context(), r.mark)
		return err == nil && len(left) == 0
	})
}

// resumeLater runs a session without --apply, goes on with it, and applies its changes at last.
// Files of the host that changed meanwhile are not overwritten.
func resumeLater(t *testing.T, r *resumer) {
	if code, stderr := r.run(t, "run", "write it"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "log")); err == nil {
		t.Fatal("the host was changed")
	}
	writeTree(t, r.dir, map[string]string{"log": "mine\n"})
	code, stderr := r.run(t, "session", "resume", "--last", "again", "--apply")
	if code != 6 || !strings.Contains(stderr, `"log" appeared`) {
		t.Errorf("with a file in the way: exit code %d\n%s", code, stderr)
	}
	r.check(t, "mine\n")
	if err := os.Remove(filepath.Join(r.dir, "log")); err != nil {
		t.Fatal(err)
	}
	writeTree(t, r.dir, map[string]string{"kept": "changed on the host\n"})
	if code, stderr := r.run(t, "session", "resume", "--last", "again", "--apply"); code != 0 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	r.check(t, "0\n1\n2\n")
	if code, stderr := r.run(t, "session", "resume", "--last", "again", "--apply"); code != 0 {
		t.Errorf("after the changes were applied: exit code %d\n%s", code, stderr)
	}
	r.check(t, "0\n1\n2\n")
	if err := os.Remove(filepath.Join(r.dir, "log")); err != nil { // the user rejects the change
		t.Fatal(err)
	}
	if code, stderr := r.run(t, "session", "resume", "--last", "again", "--apply"); code != 0 {
		t.Errorf("after the change was rejected: exit code %d\n%s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "log")); err == nil {
		t.Error("a rejected change came back")
	}
	code, stderr = r.run(t, "session", "resume", "--last", "again", "--no-upload", "--apply=false")
	if code != 0 || !strings.Contains(stderr, "are lost with its environment") {
		t.Errorf("without an upload: exit code %d\n%s", code, stderr)
	}
	r.awaitNone(t)
}
