//go:build unix

package remote

import (
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestStartKills closes the stream of a command that does not exit by itself.
func TestStartKills(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 10 seconds")
	}
	cmd := exec.Command("sleep", "1000")
	s, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("%v", cmd.ProcessState)
	}
	if _, err := Start(exec.Command("/no/such/program")); err == nil {
		t.Error("a missing program has started")
	}
}

// TestWriteFileBesideProcesses executes programs right after they were written, while other
// goroutines start processes, which inherit open files for a moment.
func TestWriteFileBesideProcesses(t *testing.T) {
	script := "#!/bin/sh\nexit 7\n" + strings.Repeat("#\n", 1<<20)
	p := &Program{Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(script)), nil
	}}
	var forks sync.WaitGroup
	done := make(chan struct{})
	for range 8 {
		forks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("true").Run() // only its start counts
				}
			}
		})
	}
	defer forks.Wait()
	defer close(done)
	for i := range 100 {
		name := filepath.Join(t.TempDir(), "program")
		if err := p.WriteFile(name); err != nil {
			t.Fatal(err)
		}
		// The shell is what backends have between: the error is not that of this process.
		out, err := exec.Command("sh", "-c", `"$0"; exit $?`, name).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Fatalf("program %d: %v: %s", i, err, out)
		}
	}
}
