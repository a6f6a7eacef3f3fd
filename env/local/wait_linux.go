package local

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitExit waits until the child has exited and returns how to reap it. Until then the child keeps its number, so that
// a signal to it or to its group cannot reach anybody else.
func awaitExit(child *os.Process) func() (*os.ProcessState, error) {
	for {
		err := unix.Waitid(unix.P_PID, child.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return child.Wait
		}
	}
}
