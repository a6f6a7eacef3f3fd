package batch_test

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

// TestResultCannotBeStored has a disk without room for a result: the attempts that run end, and the
// tasks keep none.
func TestResultCannotBeStored(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	})
	const room = 64 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	dir, running := t.TempDir(), make(chan struct{})
	totals, err := batch.Run(t.Context(), batch.Config{
		Dir: dir, Parallel: 2,
		Run: func(ctx context.Context, a *batch.Attempt) batch.Outcome {
			a.Opened()
			if a.Task.ID == "t1" {
				<-running
				o := failed("completed", 0, false)
				o.Text = strings.Repeat("x", 2*room)
				return o
			}
			close(running)
			<-ctx.Done()
			return failed("canceled", 130, false)
		},
	}, tasks(3))
	if !errors.Is(err, unix.EFBIG) || totals.Left() != 3 {
		t.Errorf("%d tasks are left, %v", totals.Left(), err)
	}
	if got := results(t, dir); len(got) != 0 {
		t.Errorf("%d results", len(got))
	}
}
