package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushInput drops the unread input of a terminal. It does nothing to other files.
func flushInput(f *os.File) { _ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
