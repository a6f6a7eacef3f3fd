package sandboxd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// protect makes the process unreadable for others of its user, and keeps inherited descriptors from
// commands.
func protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become unreadable: %w", os.NewSyscallError("prctl", err))
	}
	// The process name would otherwise be that of a descriptor. A failure is harmless.
	if name, err := unix.BytePtrFromString("sandboxd"); err == nil &&
		unix.Gettid() == unix.Getpid() {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	return closeOnExec()
}

// closeOnExec marks all descriptors but the standard ones.
func closeOnExec() error {
	err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return errors.Join(err, dir.Close())
}
