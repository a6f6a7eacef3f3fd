package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// pin holds on to what a name stands for, without opening it, so that nothing else gets its number.
// It is nil where that cannot be.
func pin(name string) *os.File {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}
