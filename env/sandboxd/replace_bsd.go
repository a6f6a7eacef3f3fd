//go:build unix && !linux

package sandboxd

import "golang.org/x/sys/unix"

// replace makes the descriptor fd refer to the file of from.
func replace(from, fd int) error { return unix.Dup2(from, fd) }
