package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushInput drops what was typed into a terminal and not read yet. It does nothing to other files.
func flushInput(f *os.File) { _ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
