//go:build unix && !linux

package proctree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// send sends a signal to a process, unless its number belongs to another one by now. An ended
// process is no error.
func send(s procInfo, signal unix.Signal) error {
	handle, err := os.FindProcess(s.pid)
	if err != nil {
		return nil
	}
	defer func() { _ = handle.Release() }()
	now, err := readProcess(s.pid)
	if err != nil || now.start != s.start {
		return nil
	}
	if err := handle.Signal(signal); !errors.Is(err, os.ErrProcessDone) && !errors.Is(err,
		unix.ESRCH) {
		return err
	}
	return nil
}
