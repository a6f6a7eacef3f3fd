//go:build unix

package remote

import (
	"os/exec"
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
