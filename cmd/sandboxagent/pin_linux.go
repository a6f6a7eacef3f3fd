package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// pin returns a reference to the file name without opening it, so that no other file gets its inode
// number. It is nil on failure.
func pin(name string) *os.File {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}
