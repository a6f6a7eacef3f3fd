package proctree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitExit waits until the child has exited and returns how to reap it. Until then the child keeps
// its number, so that a signal to it or to its group cannot reach anybody else.
func awaitExit(child *os.Process) func() (*os.ProcessState, error) {
	if pollExit(child.Pid) {
		return child.Wait
	}
	for {
		err := unix.Waitid(unix.P_PID, child.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return child.Wait
		}
	}
}

// pollExit waits through the poller of Go's runtime, so that a command that runs occupies no
// thread. It reports false where the system is not able to do that.
func pollExit(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var waitErr error
	err = conn.Read(func(fd uintptr) bool {
		for {
			waitErr = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(waitErr, unix.EINTR) {
				return !errors.Is(waitErr, unix.EAGAIN) // which means not yet
			}
		}
	})
	return err == nil && waitErr == nil
}
