package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// newExclusive returns an exclusive environment, which is closed at the end of the test.
func newExclusive(t *testing.T) *local.Environment {
	t.Helper()
	e, err := local.Exclusive(local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// children returns the children of this process, by state.
func children(t *testing.T) (alive, zombies []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		line := string(data)
		fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if fields[0] == "Z" {
			zombies = append(zombies, pid)
		} else {
			alive = append(alive, pid)
		}
	}
	return alive, zombies
}

// noZombies waits until this process has only living children, and as many as given.
func noZombies(t *testing.T, living int) {
	t.Helper()
	eventually(t, "the end of the last zombie", func() bool {
		alive, zombies := children(t)
		return len(alive) == living && len(zombies) == 0
	})
}

// TestExitStatusesAreNotLost has commands end beside orphans.
func TestExitStatusesAreNotLost(t *testing.T) {
	alone(t, func(t *testing.T) {
		e := newExclusive(t)
		const parallel = 16
		commands := amount(2560, 512)
		var wg sync.WaitGroup
		for i := range parallel {
			wg.Go(func() {
				for n := i; n < commands; n += parallel {
					want := n % 256
					r, err := e.Exec(t.Context(), sh(`(: &) ; (sleep 0.01 &) ; exit $1`, strconv.Itoa(want)))
					if err != nil || r.ExitCode != want || r.Signal != "" {
						t.Errorf("command %d: %+v, %v, want exit code %d", n, r, err, want)
					}
				}
			})
		}
		wg.Wait()
		noZombies(t, 0)
	})
}

func TestF27ZombiesAreReaped(t *testing.T) {
	alone(t, func(t *testing.T) {
		e := newExclusive(t)
		script := `i=0; while [ $i -lt $1 ]; do (: &); i=$((i+1)); done; exit 7`
		orphans := strconv.Itoa(amount(1250, 200))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if r, err := e.Exec(t.Context(), sh(script, orphans)); err != nil || r.ExitCode != 7 {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		noZombies(t, 0)
	})
}

// TestOrphansBehindACommandAreReaped has a dead command first in the kernel's list of dead
// children, for as long as its output is not read.
func TestOrphansBehindACommandAreReaped(t *testing.T) {
	alone(t, func(t *testing.T) {
		e := newExclusive(t)
		done, taken := make(chan error, 1), make(chan struct{})
		cmd := sh(`echo output; exit 3`)
		cmd.Stdout = writerFunc(func(p []byte) (int, error) {
			<-taken
			return len(p), nil
		})
		go func() {
			r, err := e.Exec(t.Context(), cmd)
			if err == nil && r.ExitCode != 3 {
				err = fmt.Errorf("%+v", r)
			}
			done <- err
		}()
		eventually(t, "a dead command", func() bool { _, dead := children(t); return len(dead) == 1 })
		_, before := children(t)
		if r, err := e.Exec(t.Context(), sh(`(: &); (: &); (sleep 0.01 &); exit 5`)); err != nil ||
			r.ExitCode != 5 {
			t.Errorf("%+v, %v", r, err)
		}
		eventually(t, "the end of the orphans", func() bool {
			alive, dead := children(t)
			return len(alive) == 0 && slices.Equal(before, dead)
		})
		close(taken)
		if err := <-done; err != nil {
			t.Error(err)
		}
		noZombies(t, 0)
	})
}

// escapees is a script that starts processes with the mark $M, which have left their session,
// parents and variables, and ignore SIGTERM.
const escapees = `i=0; while [ $i -lt $1 ]; do i=$((i+1))
(setsid env -i PATH="$PATH" sh -c '(trap "" TERM
exec sh -c "while :; do sleep 1000; done" "$1" >/dev/null 2>&1 </dev/null &)' sh "$M" &)
done; `

func TestEscapeesDie(t *testing.T) {
	count := amount(200, 50)
	alone(t, func(t *testing.T) {
		e := newExclusive(t)
		neighbour, mark := newMark(t)+"-neighbour", newMark(t)
		output(t, e, withMark(sh(escapees, "3"), neighbour))
		eventually(t, "the neighbours", func() bool { return len(marked(t, neighbour)) == 3 })

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.Exec(ctx, withMark(sh(escapees+`trap "" TERM; while :; do sleep 1000; done`,
				strconv.Itoa(count)), mark))
			done <- err
		}()
		eventually(t, "the processes", func() bool { return len(marked(t, mark)) == count })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes %v live on", left)
		}
		if len(marked(t, neighbour)) != 3 {
			t.Error("another command's daemons died")
		}

		output(t, e, withMark(sh(escapees, strconv.Itoa(count)), mark))
		eventually(t, "the processes", func() bool { return len(marked(t, mark)) == count })
		if err := e.Kill(); err != nil {
			t.Error(err)
		}
		if left := append(marked(t, mark), marked(t, neighbour)...); len(left) > 0 {
			t.Errorf("processes %v live on after Kill", left)
		}

		output(t, e, withMark(sh(escapees, "5"), mark))
		eventually(t, "the processes", func() bool { return len(marked(t, mark)) == 5 })
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes %v live on after Close", left)
		}
	})
}

// TestExclusiveInTurn opens environments one after another. A second one at a time is an error.
func TestExclusiveInTurn(t *testing.T) {
	alone(t, func(t *testing.T) {
		for range 2 {
			e := newExclusive(t)
			if second, err := local.Exclusive(local.Config{}); err == nil {
				t.Errorf("a second environment: %v", second.Close())
			}
			mark := newMark(t)
			for range 3 {
				output(t, e, withMark(sh(escapees, "1"), mark))
			}
			eventually(t, "the daemons", func() bool { return len(marked(t, mark)) == 3 })
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("processes %v live on after Close", left)
			}
			if alive, zombies := children(t); len(alive)+len(zombies) > 0 {
				t.Errorf("children %v live on and %v were not reaped", alive, zombies)
			}
		}
	})
}

// TestUntaggedAreEndedByClose has a process that replaces its tag.
func TestUntaggedAreEndedByClose(t *testing.T) {
	alone(t, func(t *testing.T) {
		if _, err := exec.LookPath("prlimit"); err != nil {
			t.Skip("prlimit is not installed")
		}
		e := newExclusive(t)
		mark := newMark(t)
		script := `(setsid env -i PATH="$PATH" prlimit --rttime=1000000000:1000000000 sh -c 'sh -c ` +
			`"while :; do sleep 1000; done" "$1" &' sh "$M" &)`
		cmd := withMark(sh(script+`; while :; do sleep 1000; done`), mark)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.Exec(ctx, cmd)
			done <- err
		}()
		eventually(t, "the process", func() bool { return len(marked(t, mark)) == 1 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes %v live on after Close", left)
		}
	})
}

func TestExclusiveInfo(t *testing.T) {
	alone(t, func(t *testing.T) {
		want := map[env.GuaranteeName]env.Strength{
			env.KillTree: env.BestEffort, env.CleanClose: env.BestEffort,
			env.CleanCrash: env.BestEffort,
		}
		if os.Getpid() == 1 {
			want[env.CleanClose], want[env.CleanCrash] = env.Enforced, env.Enforced
		}
		e := newExclusive(t)
		for p, strength := range want {
			if got := e.Info().Strength(p); got != strength {
				t.Errorf("%s is %s, want %s", p, got, strength)
			}
		}
		for _, g := range e.Info().Guarantees {
			if g.By == "" {
				t.Errorf("%s has no By", g.Name)
			}
		}
		if vars := output(t, e, sh("env")); strings.Contains(vars, "SANDBOXAGENT_EXEC_") {
			t.Errorf("a command has a marker variable: %s", vars)
		}
	})
}

// TestLimitInForce starts with the limit that serves as tag already in use.
func TestLimitInForce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		limit  uint64
		tagged bool
	}{{"small", 1_000_000, false}, {"large", 1 << 55, true}} {
		t.Run(tt.name, func(t *testing.T) {
			aloneIn(t, settings[0], func(t *testing.T) {
				limit := unix.Rlimit{Cur: tt.limit - 5, Max: tt.limit}
				if err := unix.Prlimit(0, unix.RLIMIT_RTTIME, &limit, nil); err != nil {
					t.Fatal(err)
				}
				e := newExclusive(t)
				vars := output(t, e, sh("env; grep 'Max realtime timeout' /proc/self/limits"))
				if got := !strings.Contains(vars, "SANDBOXAGENT_EXEC_"); got != tt.tagged {
					t.Errorf("a command sees %s", vars)
				}
				if same := strings.Contains(vars, fmt.Sprint(tt.limit)); same == tt.tagged {
					t.Errorf("a command sees %s", vars)
				}
				reported := slices.ContainsFunc(e.Info().Guarantees, func(g env.Guarantee) bool {
					return g.Name == env.KillTree &&
						strings.Contains(g.By, "a limit of real-time CPU time is in force")
				})
				if reported == tt.tagged {
					t.Errorf("%+v", e.Info().Guarantees)
				}
				mark := newMark(t)
				cmd := withMark(sh(`(setsid `+sleeper+`&) ; sleep 1000`), mark)
				cmd.Timeout = time.Second
				if r, err := e.Exec(t.Context(), cmd); err != nil || !r.TimedOut {
					t.Error(r, err)
				}
				if left := marked(t, mark); len(left) > 0 {
					t.Errorf("processes %v live on", left)
				}
			})
		})
	}
}

func TestSignal(t *testing.T) {
	needProc(t)
	test := func(t *testing.T, e *local.Environment) {
		mark, daemon := newMark(t), newMark(t)+"-daemon"
		output(t, e, withMark(sh(`setsid sh -c 'trap "echo daemon >>got" USR1; `+
			`sleep 1000 & : >daemon; wait; wait' "$M" >/dev/null 2>&1 &`), daemon))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		up, done := make(chan struct{}, 2), make(chan error, 2)
		for i := range 2 {
			// The shells wait, since some of them lose signals that come while they start a program.
			script := `setsid sh -c 'trap "echo child >>got; exit" USR1; sleep 1000 & : >child'$1'; ` +
				`wait' "$M" & ` +
				`(trap "" USR1; exec sleep 1000 >/dev/null) & trap 'echo leader >>got; exit' USR1; ` +
				`until [ -e child$1 ]; do sleep 0.01; done; echo up; wait`
			cmd := withMark(sh(script, strconv.Itoa(i)), mark)
			cmd.Stdout = writerFunc(func(p []byte) (int, error) {
				up <- struct{}{}
				return len(p), nil
			})
			go func() {
				_, err := e.Exec(ctx, cmd)
				done <- err
			}()
		}
		<-up
		<-up
		got := filepath.Join(e.Info().WorkDir, "got")
		eventually(t, "the daemon", func() bool {
			_, err := os.Stat(filepath.Join(e.Info().WorkDir, "daemon"))
			return err == nil
		})
		if err := e.Signal(unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		eventually(t, "four answers", func() bool {
			data, err := os.ReadFile(got)
			return err == nil && strings.Count(string(data), "leader\n") == 2 &&
				strings.Count(string(data), "child\n") == 2
		})
		if data, err := os.ReadFile(got); err != nil || bytes.Contains(data, []byte("daemon")) {
			t.Errorf("%q, %v", data, err)
		}
		if err := e.Signal(unix.SIGUSR1); err != nil {
			t.Errorf("without commands: %v", err)
		}
	}
	t.Run("plain", func(t *testing.T) { test(t, newEnv(t, local.Config{})) })
	t.Run("exclusive", func(t *testing.T) {
		alone(t, func(t *testing.T) { test(t, newExclusive(t)) })
	})
}

// TestSuccessorsDie stops commands that start a chain of processes when they get SIGTERM, of which
// only the last stays. A scan of the processes one by one may miss each of them.
func TestSuccessorsDie(t *testing.T) {
	const hop = `trap 'setsid sh -c "setsid sh -c \"exec sh -c \\\"sleep 1000; ` +
		`:\\\" $M\" &" & exit' TERM; sleep 1000 & wait`
	test := func(t *testing.T, e *local.Environment) {
		for range amount(30, 10) {
			mark := newMark(t)
			cmd := withMark(sh(hop), mark)
			cmd.Timeout = 50 * time.Millisecond
			if r, err := e.Exec(t.Context(), cmd); err != nil || !r.TimedOut {
				t.Error(r, err)
			}
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("processes %v live on", left)
			}
		}
	}
	t.Run("plain", func(t *testing.T) { test(t, newEnv(t, local.Config{})) })
	t.Run("exclusive", func(t *testing.T) {
		alone(t, func(t *testing.T) { test(t, newExclusive(t)) })
	})
}
