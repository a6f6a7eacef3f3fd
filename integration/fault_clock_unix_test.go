//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFault23Suspend stops the program until the time of its command is over, as a machine does
// that sleeps while its clock goes on. Afterwards the timeout is neither forgotten nor counted
// anew, and nothing is left.
func TestFault23Suspend(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skipf("processes are looked for in /proc: %v", err)
	}
	const timeout = 2 * time.Second
	dir, marker := t.TempDir(), fmt.Sprintf("9%09d", rand.IntN(1_000_000_000))
	var stderr lockedBuffer
	cmd := exec.CommandContext(t.Context(), command(t), "exec", "--timeout", timeout.String(), "--",
		"sh", "-c", "touch ready; sleep "+marker+"; :")
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the command", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
	w := watchFor(t, marker)
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the command's time", func() bool { return time.Since(began) > timeout })
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(2*time.Minute, func() {
		t.Error("the program did not end")
		_ = cmd.Process.Kill() // it may have ended by now
	})
	defer watchdog.Stop()
	_ = cmd.Wait() // the exit code is checked
	if got := cmd.ProcessState.ExitCode(); got != 124 || !strings.Contains(stderr.String(),
		"--timeout") {
		t.Errorf("exit code %d, want 124\n%s", got, stderr.String())
	}
	w.gone()
}
