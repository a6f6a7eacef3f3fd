//go:build unix

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const errLoop = unix.ELOOP

// dirKey returns a key that all names of a directory share.
func dirKey(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return dir
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(st.Dev, st.Ino)
	}
	return dir
}

// keepOwner gives the temporary file the owner and group of old and reports whether it has them.
func keepOwner(temp *os.File, now, old fs.FileInfo) bool {
	is, ok1 := now.Sys().(*syscall.Stat_t)
	was, ok2 := old.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 {
		return false
	}
	if is.Uid == was.Uid && is.Gid == was.Gid {
		return true
	}
	if temp.Chown(int(was.Uid), int(was.Gid)) == nil {
		return true
	}
	_ = temp.Chown(-1, int(was.Gid)) // at least the group, if this process is in it
	return false
}

// mayWrite reports why an existing file must not be written.
func mayWrite(path string, _ fs.FileInfo) error {
	err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS)
	if errors.Is(err, unix.ETXTBSY) {
		return nil // a program that runs can be replaced
	}
	return err
}

// inPlaceHelps reports whether err forbids replacing a file but perhaps not writing it.
func inPlaceHelps(err error) bool {
	for _, errno := range []error{unix.EACCES, unix.EPERM, unix.EBUSY, unix.EXDEV, unix.EROFS} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
