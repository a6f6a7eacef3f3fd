//go:build unix

package tartree

import (
	"os"
	"syscall"
)

// readFlags open a file for reading. A FIFO that has replaced a file must not block.
const readFlags = os.O_RDONLY | syscall.O_NONBLOCK

// rename renames a file or symlink, also to the name of another one.
func rename(in *os.Root, from, to string) error { return in.Rename(from, to) }

// validHere reports whether a clean name means the same on this system as in an archive.
func validHere(string) bool { return true }
