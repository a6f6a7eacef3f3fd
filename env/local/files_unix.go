//go:build unix

package local

import "golang.org/x/sys/unix"

// nonBlocking makes opening a named pipe return at once, and opening a terminal not acquire it.
const nonBlocking = unix.O_NONBLOCK | unix.O_NOCTTY

// directoryFlag makes opening anything but a directory fail.
const directoryFlag = unix.O_DIRECTORY
