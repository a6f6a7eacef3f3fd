package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// crashPoints is at how many points of a run the program is killed.
const crashPoints = 50

// TestFaultsOfCrashes kills the program with SIGKILL, which it cannot catch, at points spread over
// a run whose commands leave processes in every way. Neither these nor the helper may survive.
func TestFaultsOfCrashes(t *testing.T) {
	for _, need := range []string{"setsid", "nohup"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("the commands need it: %v", err)
		}
	}
	t.Run("F1_F2_kill_of_the_program", proveCrashes)
	t.Run("F1_F2_kill_of_exec", proveCrashOfExec)
}

// strays is a command that leaves processes behind, all with the marker in their arguments, and
// ends.
func (p *program) strays() string {
	return strings.ReplaceAll(`sleep MARK1 > /dev/null 2>&1 &
setsid sleep MARK2 > /dev/null 2>&1 &
nohup sleep MARK3 > /dev/null 2>&1 &
(setsid sh -c 'sleep MARK4 & sleep MARK5 &' > /dev/null 2>&1 &)
(env -i setsid sh -c 'trap "" HUP TERM; sleep MARK6 & exec sleep MARK7' > /dev/null 2>&1 &)
echo left`, "MARK", p.marker)
}

// crashRun makes a run of eight calls and an answer, the last call being a command that does not
// end by itself if stay is set.
func crashRun(t *testing.T, stay bool) *program {
	t.Helper()
	p := newProgram(t, "--patch=out.diff")
	call := use("shell", map[string]any{"command": p.strays()})
	var replies []llmtest.Reply
	for range 8 {
		replies = append(replies, llmtest.Use(call))
	}
	if stay {
		replies = append(replies, llmtest.Use(use("shell", map[string]any{"command": p.strays() +
			"; sleep " + p.marker + "8", "timeout_ms": 600_000})))
	} else {
		replies = append(replies, llmtest.Text("done"))
	}
	p.useModel(t, wires()[0], llmtest.Sequence(replies...))
	return p
}

// readLines returns when p has printed n lines, or has come to the command that does not end.
func (p *program) readLines(t *testing.T, out io.Reader, n int) {
	t.Helper()
	var got atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			got.Add(1)
		}
	}()
	t.Cleanup(func() { <-ended })
	for deadline := time.Now().Add(time.Minute); got.Load() < int64(n); time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			return
		default:
		}
		if running(p.marker+"8") || time.Now().After(deadline) {
			return
		}
	}
}

func proveCrashes(t *testing.T) {
	p := crashRun(t, false)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 0 {
		t.Fatalf("the run that is not killed ends with %d", code)
	}
	total := strings.Count(p.stdout.String(), "\n")
	if total < crashPoints {
		t.Fatalf("the run has only %d lines of output", total)
	}
	p.awaitNothing(t, nil)
	var killed sync.Map
	t.Cleanup(func() {
		n := 0
		killed.Range(func(any, any) bool { n++; return true })
		if n < crashPoints*9/10 && !testing.Short() {
			t.Errorf("only %d of %d runs were killed before they ended", n, crashPoints)
		}
	})
	step := 1
	if testing.Short() {
		step = 10
	}
	for i := 0; i < crashPoints; i += step {
		t.Run(fmt.Sprintf("at_line_%d", i*total/crashPoints), func(t *testing.T) {
			t.Parallel()
			p := crashRun(t, true)
			p.Stdout = nil
			out, err := p.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			p.readLines(t, out, i*total/crashPoints)
			// spreads the points between two lines
			time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
			if p.crash(t) {
				killed.Store(i, true)
			}
		})
	}
}

// proveCrashOfExec kills a command's program while the strays certainly run.
func proveCrashOfExec(t *testing.T) {
	p := newProgram(t)
	p.Args = []string{p.Args[0], "exec", "--", "sh", "-c", p.strays() + "; sleep " + p.marker + "8"}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the strays", func() bool { return len(p.left()) >= 8 })
	if !p.crash(t) {
		t.Error("it ended before it was killed")
	}
}

// crash kills the program and checks that nothing is left. It reports whether the program ran until
// then.
func (p *program) crash(t *testing.T) bool {
	t.Helper()
	helpers := childrenOf(t, p.Process.Pid)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it was killed, or had ended
	p.awaitNothing(t, helpers)
	status, ok := p.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// awaitNothing waits until no process with the marker and none of the helpers is left, and until no
// temporary file of a write is.
func (p *program) awaitNothing(t *testing.T, helpers []process) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		left := p.left()
		for _, h := range helpers {
			if h.runs() {
				left = append(left, h.pid)
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for _, pid := range left {
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("process %d survives: %q %v", pid, strings.ReplaceAll(string(line), "\x00", " "), err)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	if temps, err := filepath.Glob(filepath.Join(p.dir, ".sandboxagent-tmp-*")); err != nil ||
		len(temps) > 0 {
		t.Errorf("the files %v are left (%v)", temps, err)
	}
}
