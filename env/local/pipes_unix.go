//go:build unix

package local

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pending returns the number of unread bytes in a pipe.
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

// readNow reads without waiting. It returns os.ErrDeadlineExceeded if r is empty.
func readNow(r *os.File, buf []byte) (n int, err error) {
	conn, err := r.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := conn.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), buf); !errors.Is(err, unix.EINTR) {
				return true
			}
		}
	})
	switch {
	case cerr != nil:
		return 0, cerr
	case errors.Is(err, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
