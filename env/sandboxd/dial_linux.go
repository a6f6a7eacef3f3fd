package sandboxd

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// checkListener returns an error if another process than pid listens (0 allows any), or if another
// user has taken an abstract name.
func checkListener(fd, pid int, abstract bool) error {
	if pid == 0 && !abstract {
		return nil
	}
	// The kernel records which process called listen.
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if pid != 0 && int(cred.Pid) != pid {
		return fmt.Errorf("process %d listens on the socket, not %d: %w", cred.Pid, pid, fs.ErrPermission)
	}
	if self := os.Geteuid(); pid == 0 && cred.Uid != 0 && int(cred.Uid) != self {
		return fmt.Errorf("user %d listens on the socket, not %d: %w", cred.Uid, self, fs.ErrPermission)
	}
	return nil
}
