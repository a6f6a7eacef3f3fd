//go:build unix

package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// needProc skips tests that look for processes in /proc.
func needProc(tb testing.TB) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("looks for processes in /proc")
	}
}

// marked returns the numbers of living processes that have the argument mark.
func marked(tb testing.TB, mark string) []int {
	tb.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && bytes.Contains(append([]byte{0}, args...), []byte("\x00"+mark+"\x00")) {
			pids = append(pids, pid) // a zombie has no command line
		}
	}
	return pids
}

// eventually polls until ok returns true.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	pause := 2 * time.Millisecond
	for deadline := time.Now().Add(3 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within three minutes", what)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond) // listing all processes is expensive
	}
}

// markPrefix returns the prefix of the marks of a test in a process.
func markPrefix(tb testing.TB, pid int) string {
	return fmt.Sprintf("mark-%s-%d-", strings.ReplaceAll(tb.Name(), "/", "-"), pid)
}

// newMark returns an argument that no other process has. Processes that still have it when the test
// ends, because that failed, are killed.
func newMark(tb testing.TB) string {
	mark := markPrefix(tb, os.Getpid()) + strconv.FormatInt(time.Now().UnixNano(), 10)
	tb.Cleanup(func() {
		for _, pid := range marked(tb, mark) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	return mark
}

// sleeper is a script that runs forever with the argument $M, which only it has.
const sleeper = `sh -c 'while :; do sleep 1000; done' "$M" `

// escapes are ways in which descendants leave their tree, beyond those of the conformance suite.
// Each starts at least count processes with the mark $M. Some create the file ready when the
// parents in between have ended.
var escapes = []struct {
	name, script string
	count        int
}{
	{"cleared variables", `env -i PATH="$PATH" ` + sleeper + `& wait`, 1},
	{"cleared variables and double fork", `(env -i PATH="$PATH" ` + sleeper +
		`&); : >ready; sleep 1000`, 1},
	{"cleared variables and setsid", `setsid env -i PATH="$PATH" ` + sleeper + `& wait`, 1},
	{"cleared variables and another group", `(env -i perl -e 'setpgrp(0, 0); exec @ARGV' ` +
		sleeper + `&); : >ready; sleep 1000`, 1},
	{"stopped", `sh -c 'kill -STOP $$; sleep 1000' "$M" & wait`, 1},
	{"forks while it is killed", `trap '' TERM; i=0; while [ $i -lt 300 ]; do setsid ` + sleeper +
		`& sleep 0.01; i=$((i+1)); done; wait`, 20},
}

// withMark returns cmd with the variable M.
func withMark(cmd env.Command, mark string) env.Command {
	cmd.Vars = append(cmd.Vars, "M="+mark)
	return cmd
}

func TestTreeIsDeadAfterTimeoutAndCancel(t *testing.T) {
	t.Parallel()
	needProc(t)
	for _, tt := range escapes {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{"setsid", "perl"} {
				if _, err := exec.LookPath(program); err != nil && strings.Contains(tt.script, program) {
					t.Skip(program + " is not installed")
				}
			}
			e := newEnv(t, local.Config{})
			neighbour := newMark(t)
			output(t, e, withMark(sh(sleeper+`</dev/null >/dev/null 2>&1 &`), neighbour))
			eventually(t, "the neighbour", func() bool { return len(marked(t, neighbour)) == 1 })
			mark := newMark(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			type outcome struct {
				r   env.Result
				err error
			}
			done := make(chan outcome, 1)
			go func() {
				r, err := e.Exec(ctx, withMark(sh(tt.script), mark))
				done <- outcome{r, err}
			}()
			eventually(t, "the processes", func() bool {
				if strings.Contains(tt.script, "ready") {
					if _, err := os.Stat(e.Info().WorkDir + "/ready"); err != nil {
						return false
					}
				}
				return len(marked(t, mark)) >= tt.count
			})
			enough := errors.New("enough")
			cancel(enough)
			got := <-done
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("processes %v live on", left)
			}
			if !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, enough) || got.r.TimedOut {
				t.Errorf("%+v, %v", got.r, got.err)
			}
			if len(marked(t, neighbour)) == 0 {
				t.Error("the daemon of another command died")
			}
		})
	}
}

// TestAllIsDeliveredToSlowWriter has a writer that blocks for longer than DrainTime at the first
// bytes, while the command writes more, exits and leaves a child that holds the pipe.
func TestAllIsDeliveredToSlowWriter(t *testing.T) {
	needFull(t, "a writer blocks for longer than env.DrainTime")
	t.Parallel()
	needProc(t)
	e := newEnv(t, local.Config{})
	var got bytes.Buffer
	cmd := sh(`printf first; until [ -e go ]; do sleep 0.01; done; head -c 50000 /dev/zero; ` +
		`sleep 1000 & :`)
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		if got.Len() == 0 {
			write(t, e.Info().WorkDir+"/go", "", 0o644)
			time.Sleep(env.DrainTime + time.Second)
		}
		return got.Write(p)
	})
	r, err := e.Exec(t.Context(), cmd)
	if want := "first" + strings.Repeat("\x00", 50000); err != nil || !r.Detached ||
		got.String() != want {
		t.Errorf("%+v, %v, %d bytes of %d", r, err, got.Len(), len(want))
	}
}

// TestCancelWhileChildHoldsPipes cancels after the command itself has exited.
func TestCancelWhileChildHoldsPipes(t *testing.T) {
	t.Parallel()
	needProc(t)
	e := newEnv(t, local.Config{})
	mark := newMark(t)
	ctx, cancel := context.WithCancel(t.Context())
	// The child prints when the command is a zombie.
	cmd := withMark(sh(`setsid sh -c 'until grep -q ") Z" /proc/$1/stat; do sleep 0.01; done; `+
		`echo orphaned; sleep 1000' "$M" $$ &`), mark)
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	var r env.Result
	var err error
	for range 5 { // a machine may be too slow for the child to print it in time
		if r, err = e.Exec(ctx, cmd); err != nil {
			break
		}
	}
	if !errors.Is(err, context.Canceled) || r.ExitCode != 0 || len(marked(t, mark)) != 0 {
		t.Errorf("%+v, %v, left %v", r, err, marked(t, mark))
	}
}

// TestCloseSparesOthers closes an environment beside another one with a daemon.
func TestCloseSparesOthers(t *testing.T) {
	t.Parallel()
	needProc(t)
	e, other := newEnv(t, local.Config{}), newEnv(t, local.Config{})
	mark, neighbour := newMark(t)+"-mine", newMark(t)+"-other"
	daemon := `setsid sh -c 'sh -c "while :; do sleep 1000; done" "$M" &' </dev/null >/dev/null 2>&1`
	output(t, e, withMark(sh(daemon), mark))
	output(t, other, withMark(sh(daemon), neighbour))
	eventually(t, "the daemons", func() bool {
		return len(marked(t, mark)) == 1 && len(marked(t, neighbour)) == 1
	})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes %v live on after Close", left)
	}
	if len(marked(t, neighbour)) == 0 {
		t.Error("the daemon of another environment died")
	}
}

// TestCloseDuringExec starts commands while the environment is being closed: none may survive.
func TestCloseDuringExec(t *testing.T) {
	needProc(t)
	for round := range amount(40, 10) {
		e := newEnv(t, local.Config{})
		mark := newMark(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					_, err := e.Exec(t.Context(), withMark(sh(`setsid `+sleeper+`&`), mark))
					if errors.Is(err, fs.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(round%10) * time.Millisecond)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes %v live on after Close", left)
		}
	}
}

// TestNested kills a command in which another environment runs commands.
func TestNested(t *testing.T) {
	needProc(t)
	if dir := os.Getenv("LOCAL_TEST_NESTED"); dir != "" {
		inner, err := local.New(local.Config{Dir: dir, Inherit: &vars.Filter{Mode: vars.None}})
		if err != nil {
			t.Fatal(err)
		}
		// The command detaches itself, and this process never closes the environment.
		_, _ = inner.Exec(t.Context(), withMark(sh(`setsid sh -c 'sh -c "while :; do sleep 1000; `+
			`done" "$M" &'; sleep 1000`), os.Getenv("LOCAL_TEST_MARK")))
		return
	}
	e := newEnv(t, local.Config{})
	mark := newMark(t)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := env.Command{
		Argv: []string{os.Args[0], "-test.run=^TestNested$"},
		Vars: []string{"LOCAL_TEST_NESTED=" + t.TempDir(), "LOCAL_TEST_MARK=" + mark},
	}
	done := make(chan error, 1)
	go func() {
		_, err := e.Exec(ctx, cmd)
		done <- err
	}()
	eventually(t, "the inner process", func() bool { return len(marked(t, mark)) > 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes %v of the inner environment live on", left)
	}
}

func TestCommandLeadsItsSession(t *testing.T) {
	needProc(t)
	e := newEnv(t, local.Config{})
	stat := strings.Fields(output(t, e, env.Command{Argv: []string{"cat", "/proc/self/stat"}}))
	if stat[0] != stat[4] || stat[0] != stat[5] {
		t.Errorf("process %s has group %s and session %s, want %[1]s", stat[0], stat[4], stat[5])
	}
}
