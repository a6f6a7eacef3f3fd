package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// resumer runs sessions with environments of one backend, with state and a workspace of their own.
type resumer struct {
	*resumeBackend
	server           *llmtest.Server
	mark, dir, state string
}

// resumeBackend has the environments of sessions that go on.
type resumeBackend struct {
	// command makes an execution of the program in dir with environments that have the mark.
	command func(t testing.TB, dir, mark string, args ...string) *exec.Cmd
	// awaitNone waits until no environment with the mark is left.
	awaitNone func(t testing.TB, mark string)
	// workspace makes an empty workspace; nil means one of this machine.
	workspace func(t testing.TB) string
	// noUpload means that the backend has the flag --no-upload.
	noUpload bool
	// step is the number of entries of the journal from one kill to the next, and when has the points
	// at each: before, after.
	step int
	when []string
}

func newResumer(t *testing.T, b *resumeBackend, server *llmtest.Server) *resumer {
	t.Helper()
	r := &resumer{b, server, newMark(), t.TempDir(), t.TempDir()}
	if b.workspace != nil {
		r.dir = b.workspace(t)
	}
	git(t, r.dir, "init", "-q")
	writeTree(t, r.dir, map[string]string{"kept": "kept\n", "gone": "gone\n"})
	return r
}

// start starts the program, which is killed at a point of its journal, unless that is empty.
func (r *resumer) start(t *testing.T, point string, args ...string) *program {
	t.Helper()
	p := &program{marker: r.mark}
	p.Cmd = r.command(t, r.dir, r.mark, append(args, "--model=openai-compatible/m",
		"--base-url="+r.server.URL())...)
	p.Env = append(p.Env, "SANDBOXAGENT_STATE_DIR="+r.state, "SANDBOXAGENT_API_KEY="+r.server.Key())
	if point != "" {
		killAt(t, p.Cmd, point)
	}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs the program to its end and returns its exit code.
func (r *resumer) run(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	p := r.start(t, "", args...)
	_ = p.Wait() // ProcessState has the exit code
	return p.ProcessState.ExitCode(), p.stderr.String()
}

// journal returns the journal of the only session.
func (r *resumer) journal(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.state, "sessions", sessionIn(t, r.state),
		"journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (r *resumer) check(t *testing.T, want string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil || string(log) != want {
		t.Errorf("the log is %q, %v; want %q", log, err, want)
	}
}

// TestResume kills runs, and goes on in other environments with the changes so far.
func TestResume(t *testing.T) {
	t.Parallel()
	t.Run("docker", func(t *testing.T) {
		t.Parallel()
		d := sharedDocker(t)
		b := &resumeBackend{
			command: func(t testing.TB, dir, mark string, args ...string) *exec.Cmd {
				return d.command(t, dir, mark, append(args, "--ttl=3s")...)
			},
			awaitNone: func(t testing.TB, mark string) {
				await(t, "the end of all containers", func() bool {
					left, err := d.containers(t.Context(), mark)
					return err == nil && len(left) == 0
				})
			},
			noUpload: true, step: 1, when: []string{"before", "after"},
		}
		if testing.Short() {
			b.step = 9
		}
		proveResume(t, b, "--apply")
	})
	t.Run("k8s", func(t *testing.T) {
		t.Parallel()
		k := sharedKube(t)
		b := &resumeBackend{
			command: func(t testing.TB, dir, mark string, args ...string) *exec.Cmd {
				return k.command(t, dir, mark, append(args, "--ttl=20s", "--image="+daemons.Debian)...)
			},
			awaitNone: k.awaitNone, step: 8, when: []string{"after"},
		}
		if testing.Short() {
			b.step = 18
		}
		proveResume(t, b, "--apply")
	})
	t.Run("ssh", func(t *testing.T) {
		t.Parallel()
		s := sshd(t, daemons.SSHDConfig{Account: &daemons.Account{}})
		b := &resumeBackend{
			command: func(t testing.TB, dir, _ string, args ...string) *exec.Cmd {
				args = append(args, "--yes", "--ttl=3s", "--workdir="+dir)
				cmd := exec.CommandContext(t.Context(), command(t), append(args, hostFlags(s)...)...)
				cmd.Env = os.Environ()
				return cmd
			},
			awaitNone: func(t testing.TB, _ string) {
				await(t, "the end of all helpers", func() bool { return len(s.Processes()) == 0 })
			},
			workspace: s.MakeDir, step: 1, when: []string{"after"},
		}
		if testing.Short() {
			b.step = 5
		}
		proveResume(t, b)
	})
}

// proveResume runs a session with the flags whole, and kills it at entries of its journal.
func proveResume(t *testing.T, b *resumeBackend, flags ...string) {
	server := llmtest.NewServer(t, llmtest.Careful(3))
	whole := newResumer(t, b, server)
	args := slices.Concat([]string{"run"}, flags, []string{"write it"})
	if code, stderr := whole.run(t, args...); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	whole.check(t, "0\n1\n2\n")
	entries := bytes.Count(whole.journal(t), []byte("\n"))
	for n := 2; n <= entries; n += b.step { // before the first entry is done there is no session
		for _, when := range b.when {
			t.Run(fmt.Sprintf("killed %s %d of %d", when, n, entries), func(t *testing.T) {
				r := newResumer(t, b, server)
				r.proveKill(t, fmt.Sprintf("%s %d", when, n), args)
				b.awaitNone(t, r.mark)
			})
		}
	}
	if len(flags) > 0 { // which apply the changes to the host
		t.Run("without apply", func(t *testing.T) { resumeLater(t, newResumer(t, b, server)) })
	}
	b.awaitNone(t, whole.mark)
}

// proveKill kills a run at a point, and goes on with its session. No entry, and no result that the
// run had printed, may be lost.
func (r *resumer) proveKill(t *testing.T, point string, args []string) {
	p := r.start(t, point, append(args, "--output=stream-json")...)
	_ = p.Wait()
	if p.ProcessState.Exited() {
		t.Fatalf("the run was not killed: exit code %d", p.ProcessState.ExitCode())
	}
	before := r.journal(t)
	before = before[:bytes.LastIndexByte(before, '\n')+1] // without the line that the kill has cut
	for _, found := range endedCall.FindAllStringSubmatch(p.stdout.String(), -1) {
		stored := regexp.MustCompile(`"type":"tool_result".*` + regexp.QuoteMeta(found[1]))
		if !stored.Match(before) {
			t.Errorf("the result of %s was printed, but is not stored", found[1])
		}
	}
	code, stderr := r.run(t, "session", "resume", "--last")
	if strings.Contains(stderr, "has no task yet") { // it died before it had stored the task
		code, stderr = r.run(t, "session", "resume", "--last", "write it")
	}
	if done := strings.Contains(stderr, "is done"); code != 0 && !done {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if code, stderr := r.run(t, "session", "resume", "--last", "again"); code != 0 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if after := r.journal(t); !bytes.HasPrefix(after, before) {
		t.Errorf("the journal was\n%s\nand is\n%s", before, after)
	}
	r.check(t, "0\n1\n2\n")
}

// endedCall is the event of the end of a call, with its ID.
var endedCall = regexp.MustCompile(`"type":"tool_call_end".*"call_id":"([^"]+)"`)

// resumeLater runs a session without --apply, goes on with it, and applies its changes at last.
// Files of the host that changed meanwhile are not overwritten.
func resumeLater(t *testing.T, r *resumer) {
	if code, stderr := r.run(t, "run", "write it"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "log")); err == nil {
		t.Fatal("the host was changed")
	}
	resumeElsewhere(t, r)
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
	if r.noUpload {
		code, stderr = r.run(t, "session", "resume", "--last", "again", "--no-upload", "--apply=false")
		if code != 0 || !strings.Contains(stderr, "are lost with its environment") {
			t.Errorf("without an upload: exit code %d\n%s", code, stderr)
		}
	}
	r.awaitNone(t, r.mark)
}

// resumeElsewhere exports the session of r, imports it with other state and another workspace, and
// applies its changes there.
func resumeElsewhere(t *testing.T, r *resumer) {
	t.Helper()
	sessions, err := filepath.Glob(filepath.Join(r.state, "sessions", "*"))
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%q, %v", sessions, err)
	}
	file := filepath.Join(t.TempDir(), "session.tar.gz")
	other := newResumer(t, r.resumeBackend, r.server)
	for _, step := range []struct {
		state string
		args  []string
	}{
		{r.state, []string{"session", "export", filepath.Base(sessions[0]), file}},
		{other.state, []string{"session", "import", file}},
	} {
		cmd := exec.CommandContext(t.Context(), command(t), step.args...)
		cmd.Dir, cmd.Env = other.dir, append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+step.state)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", step.args, err, out)
		}
	}
	if code, stderr := other.run(t, "session", "resume", "--last", "again", "--apply"); code != 0 {
		t.Errorf("imported: exit code %d\n%s", code, stderr)
	}
	other.check(t, "0\n1\n2\n")
	other.awaitNone(t, other.mark)
}
