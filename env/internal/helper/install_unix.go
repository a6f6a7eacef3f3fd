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

// openPlain opens a file for reading, without following a link and without waiting for anything.
func openPlain(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// ours reports whether a file belongs to this user.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
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
