package local_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestCommandsOccupyNoThreads counts the threads of a process that waits for many commands.
func TestCommandsOccupyNoThreads(t *testing.T) {
	aloneIn(t, settings[0], func(t *testing.T) {
		fd, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
		if err != nil {
			t.Skip("this system has no non-blocking process descriptors: ", err)
		}
		_ = unix.Close(fd)
		e := newEnv(t, local.Config{})
		mark := newMark(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := e.Exec(ctx, withMark(sh(sleeper+`; :`), mark)); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		eventually(t, "the commands", func() bool { return len(marked(t, mark)) == 100 })
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "\nThreads:")
		threads, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil || threads > 50 {
			t.Errorf("100 commands occupy %d threads, %v", threads, err)
		}
		t.Logf("%d threads", threads)
		cancel()
		wg.Wait()
	})
}
