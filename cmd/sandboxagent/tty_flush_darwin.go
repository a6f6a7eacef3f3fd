package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushInput drops the unread input of a terminal. It does nothing to other files.
func flushInput(f *os.File) {
	const read = 1 // the queue of input, FREAD of sys/fcntl.h
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCFLUSH, read)
}
