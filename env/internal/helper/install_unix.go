//go:build unix

package helper

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// openPlain opens a file for reading. It follows no symlink and does not wait for the writer of a
// FIFO.
func openPlain(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// owned reports whether a file belongs to this user.
func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// trusted reports whether a file belongs to this user or root, and nobody else may write to it.
func trusted(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || owned(info)) && info.Mode().Perm()&0o002 == 0
}

// execPath returns a path to the open file, where the system has such paths for executing.
func execPath(f *os.File) string {
	if runtime.GOOS == "linux" {
		path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return f.Name()
}
