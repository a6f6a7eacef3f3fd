//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// TestFaultsOfSignals sends signals to the program while a tree of processes runs below it that
// ignores SIGTERM.
func TestFaultsOfSignals(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skipf("the test reads processes from /proc: %v", err)
	}
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skipf("the tree needs it: %v", err)
	}
	// Where tests run with hang-ups ignored, as nohup has it, a program that is started would ignore
	// them too. Of a signal that is caught here, it gets the default.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	t.Run("F24_one_signal", func(t *testing.T) { onFirstWire(t, proveSignals) })
	t.Run("F24_SIGPIPE", func(t *testing.T) { onFirstWire(t, proveSIGPIPE) })
}

// program is a run of the program that goes on while the test checks it.
type program struct {
	*exec.Cmd
	dir, state     string
	stdout, stderr lockedBuffer
	// marker is in the arguments of every process of the tree.
	marker string
}

// tree is a command that prints ready when a process, a child, a process in another session and an
// orphan run, all of which ignore SIGTERM.
func (p *program) tree() string {
	return strings.ReplaceAll(`trap '' TERM
sleep MARK1 &
setsid sh -c 'sleep MARK2; :' &
(setsid sh -c 'sleep MARK3 & sleep MARK4' > /dev/null 2>&1 &)
until grep -qs MARK4 /proc/[0-9]*/cmdline; do sleep 0.02; done
echo ready
touch ready
sleep MARK5
`, "MARK", p.marker)
}

// newProgram makes a run.
func newProgram(t *testing.T, flags ...string) *program {
	t.Helper()
	p := &program{dir: t.TempDir(), state: t.TempDir(), marker: fmt.Sprintf("9%09d",
		rand.IntN(1_000_000_000))}
	p.Cmd = exec.CommandContext(t.Context(), command(t), append([]string{
		"run", "--yes", "--output=stream-json", "go on",
	}, flags...)...)
	p.Dir = p.dir
	p.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+p.state)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout: %.3000s\nstderr: %.2000s", p.stdout.String(), p.stderr.String())
		}
		for _, pid := range p.left() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by now
		}
	})
	return p
}

// useModel starts a model server for p.
func (p *program) useModel(t *testing.T, w wire, brain llmtest.Brain) {
	t.Helper()
	srv := llmtest.NewServer(t, w.brain(brain))
	p.Args = append(p.Args, modelFlags(srv, w)...)
	p.Env = append(p.Env, "SANDBOXAGENT_API_KEY="+srv.Key())
}

// left lists the processes of the tree that run.
func (p *program) left() []int { return processesWith(p.marker) }

// awaitTree waits until all of the tree runs.
func (p *program) awaitTree(t *testing.T) {
	t.Helper()
	await(t, "the tree", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "ready"))
		return err == nil && len(p.left()) >= 5
	})
}

func (p *program) end(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(2*time.Minute, func() {
		t.Error("the program did not end")
		_ = p.Process.Kill() // it may have ended by now
	})
	defer timer.Stop()
	_ = p.Wait() // the exit code is checked
	return p.ProcessState.ExitCode()
}

// checkEnd checks that nothing runs any more and that the journal is closed with a run of this
// status.
func (p *program) checkEnd(t *testing.T, status string) {
	t.Helper()
	if left := p.left(); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
	dirs, err := filepath.Glob(filepath.Join(p.state, "sessions", "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("sessions %v, %v", dirs, err)
	}
	if got := lastRun(t, readJournal(t, dirs[0])); got != status {
		t.Errorf("by the journal the run ended with %s", got)
	}
}

// checkRecord checks that the last line is the one result record.
func (p *program) checkRecord(t *testing.T, status, text string, code int) {
	t.Helper()
	lines := slices.Collect(strings.Lines(p.stdout.String()))
	var results []event.Result
	for i, line := range lines {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %d: %v: %q", i, err, line)
		}
		if r, ok := e.Data.(event.Result); ok {
			results = append(results, r)
			if i != len(lines)-1 {
				t.Errorf("the record is line %d of %d", i, len(lines))
			}
		}
	}
	if len(results) != 1 || results[0].Status != status || results[0].Error != text ||
		results[0].ExitCode != code {
		t.Errorf("the records are %+v", results)
	}
}

func proveSignals(t *testing.T, w wire) {
	interrupted, terminated := "interrupted", "terminated"
	tests := map[string]struct {
		signal syscall.Signal
		code   int
		text   string
		// reply is the model's answer; nil is a call of the tree. The signal comes when until is in the
		// output.
		reply *llmtest.Reply
		until string
	}{
		"SIGINT in a command":  {syscall.SIGINT, 130, interrupted, nil, ""},
		"SIGTERM in a command": {syscall.SIGTERM, 143, terminated, nil, ""},
		"SIGHUP in a command":  {syscall.SIGHUP, 143, terminated, nil, ""},
		"SIGINT before bytes": {
			syscall.SIGINT, 130, interrupted,
			&llmtest.Reply{Fault: llmtest.Fault{Delay: time.Hour}}, `"type":"status"`,
		},
		"SIGTERM in a stream": {
			syscall.SIGTERM, 143, terminated,
			&llmtest.Reply{Text: "some text of pieces", Fault: llmtest.Fault{Hang: llmtest.AtEnd}},
			"text_delta",
		},
		"SIGINT before a retry": {
			syscall.SIGINT, 130, interrupted,
			&llmtest.Reply{Fault: llmtest.TooMany("", "200")}, `"type":"retry"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, "--patch=out.diff")
			reply := llmtest.Use(use("shell", map[string]any{"command": p.tree(), "timeout_ms": 600_000}))
			if tt.reply != nil {
				reply = *tt.reply
			}
			p.useModel(t, w, func(*llmtest.Request) llmtest.Reply { return reply })
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.reply == nil {
				p.awaitTree(t)
			} else {
				await(t, tt.until, func() bool { return strings.Contains(p.stdout.String(), tt.until) })
			}
			if err := p.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if got := p.end(t); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
			p.checkEnd(t, "aborted")
			p.checkRecord(t, "aborted", tt.text, tt.code)
			if text := p.stderr.String(); !strings.HasSuffix(text, "\nsandboxagent: "+tt.text+"\n") {
				t.Errorf("stderr ends in %.200q", text[max(0, len(text)-200):])
			}
			if diff, err := os.ReadFile(filepath.Join(p.dir, "out.diff")); err != nil || tt.reply == nil &&
				!strings.Contains(string(diff), "b/ready\n") {
				t.Errorf("the patch is %q, %v", diff, err)
			}
		})
	}
}

// proveSIGPIPE checks that the signal alone is not the end.
func proveSIGPIPE(t *testing.T, w wire) {
	p := newProgram(t)
	const command = "touch ready; until test -e go; do sleep 0.02; done"
	p.useModel(t, w, llmtest.Sequence(llmtest.Use(shell(command)), llmtest.Text("done")))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the command", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "ready"))
		return err == nil
	})
	if err := p.Process.Signal(syscall.SIGPIPE); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.end(t); got != 0 {
		t.Errorf("exit code %d", got)
	}
	p.checkEnd(t, "completed")
	p.checkRecord(t, "completed", "", 0)
}
