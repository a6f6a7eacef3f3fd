package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

func openSupervised(t testing.TB) *local.SupervisedEnvironment {
	t.Helper()
	e, err := supervised(t.Context(), t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// memory measures the most memory that a process has used since reset, in MiB.
type memory struct {
	t   testing.TB
	pid int
}

func (m memory) reset() float64 {
	m.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.pid), []byte("5"), 0); err != nil {
		m.t.Skipf("the memory of a process cannot be watched here: %v", err)
	}
	return m.peak()
}

func (m memory) peak() float64 {
	m.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		m.t.Fatal(err)
	}
	return peakOf(m.t, string(status))
}

// TestFaultsOfFloods lets commands print without bound through a helper.
func TestFaultsOfFloods(t *testing.T) {
	t.Run("F13_output_of_a_gigabyte", func(t *testing.T) {
		if testing.Short() {
			t.Skip("moves 1 GiB")
		}
		proveFlood(t, "head -c 1073741824 /dev/zero", 1<<30, false)
	})
	t.Run("F13_errors_without_end", func(t *testing.T) { proveFlood(t, "yes >&2", 0, true) })
	t.Run("F13_a_line_of_ten_megabytes", func(t *testing.T) {
		proveFlood(t, "head -c 10000000 /dev/zero | tr '\\0' x; echo", 10_000_001, false)
	})
}

// proveFlood runs a command that prints much, and checks the output, and that neither this process
// nor the helper stores it. A timeout ends an endless command.
func proveFlood(t *testing.T, script string, size int64, endless bool) {
	before := childrenOf(t, os.Getpid())
	e := openSupervised(t)
	helper := memory{t, newChild(t, before).pid}
	cmd := env.Command{Argv: []string{"sh", "-c", script}}
	if endless {
		cmd.Timeout = 2 * time.Second
	}
	if _, _, err := env.Output(t.Context(), e, env.Command{Argv: []string{
		"head", "-c", "20000000", "/dev/zero",
	}}, env.OutputOptions{}); err != nil {
		t.Fatal(err) // which brings the buffers of both to their size
	}
	idle := helper.reset()
	out, res, err := env.Output(t.Context(), e, cmd, env.OutputOptions{})
	if err != nil || res.TimedOut != endless || !endless && res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	got, kept := out.Stdout.Size(), len(out.Stdout.Bytes())
	if endless {
		got, kept = out.Stderr.Size(), len(out.Stderr.Bytes())
	}
	if !endless && got != size || endless && got < 1<<20 {
		t.Errorf("%d bytes came", got)
	}
	if kept > 2*env.DefaultCapture {
		t.Errorf("%d bytes are kept", kept)
	}
	if growth := helper.peak() - idle; growth > 8 {
		t.Errorf("the helper grew by %.1f MiB", growth)
	}
}

// newChild returns the child of this process that before lacks.
func newChild(t *testing.T, before []process) process {
	t.Helper()
	known := map[process]bool{}
	for _, p := range before {
		known[p] = true
	}
	for _, p := range childrenOf(t, os.Getpid()) {
		if !known[p] {
			return p
		}
	}
	t.Fatal("no helper runs")
	return process{}
}

// TestFaultsOfClosing ends environments at every moment of their life.
func TestFaultsOfClosing(t *testing.T) {
	t.Run("F25_close_beside_everything", proveCloseBesideCalls)
	t.Run("F25_opening_is_cancelled", proveCancelledOpening)
}

// proveCloseBesideCalls closes an environment several times at once beside calls of all kinds.
func proveCloseBesideCalls(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	before := childrenOf(t, os.Getpid())
	marker := fmt.Sprintf("8%09d", rand.IntN(1_000_000_000))
	commands := watchFor(t, marker)
	for round := range rounds {
		e, err := supervised(t.Context(), t, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() { callUntilClosed(t, e, i, marker) })
		}
		if round == 0 {
			await(t, "a command", commands.seen.Load)
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // spreads the moments of closing
		for range 3 {
			calls.Go(func() {
				if err := e.Close(); err != nil {
					t.Errorf("round %d: Close: %v", round, err)
				}
			})
		}
		calls.Wait()
		if running(marker) {
			t.Errorf("round %d: a process is left", round)
		}
	}
	commands.gone()
	awaitChildren(t, before)
}

// callUntilClosed makes calls until one reports that the environment is closed.
func callUntilClosed(t *testing.T, e env.Environment, i int, marker string) {
	for n := 0; ; n++ {
		var err error
		switch i % 4 {
		case 0:
			_, err = e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "setsid sleep " + marker +
				" & sleep 0.01"}})
		case 1:
			_, err = e.WriteFile(t.Context(), fmt.Sprintf("f%d-%d", i, n), strings.NewReader("x"),
				env.WriteOptions{})
		case 2:
			_, err = e.ReadDir(t.Context(), ".")
		default:
			var r io.ReadCloser
			if r, err = e.CopyOut(t.Context(), "."); err == nil {
				if _, err = io.Copy(io.Discard, r); err != nil && !errors.Is(err, fs.ErrClosed) &&
					errors.Is(err, fs.ErrNotExist) {
					err = nil // a file went while it was packed
				}
				_ = r.Close()
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("call of kind %d: %v", i%4, err)
		}
		return
	}
}

// proveCancelledOpening cancels the opening at every moment. Whether it succeeds or not, no helper
// is left.
func proveCancelledOpening(t *testing.T) {
	before := childrenOf(t, os.Getpid())
	dir := t.TempDir()
	opened := 0
	for range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(40_000))*time.Microsecond)
		e, err := supervised(ctx, t, dir)
		switch {
		case err == nil:
			opened++
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("opening ends with %v", err)
		}
		cancel()
	}
	t.Logf("%d of 60 were opened", opened)
	awaitChildren(t, before)
}

// awaitChildren waits until this process has no other children than these.
func awaitChildren(t *testing.T, before []process) {
	t.Helper()
	known := map[process]bool{}
	for _, p := range before {
		known[p] = true
	}
	await(t, "the end of all helpers", func() bool {
		for _, p := range childrenOf(t, os.Getpid()) {
			if !known[p] {
				return false
			}
		}
		return true
	})
}
