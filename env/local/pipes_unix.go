//go:build unix

package local

import (
	"os"

	"golang.org/x/sys/unix"
)

// pending returns how many bytes stand in a pipe.
func pending(r *os.File) int {
	conn, err := r.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), fionread) })
	if err != nil {
		return 0
	}
	return n
}
