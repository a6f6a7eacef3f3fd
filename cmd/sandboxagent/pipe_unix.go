//go:build unix

package main

import (
	"errors"
	"syscall"
)

// isBrokenPipe reports whether a write failed because the reader closed the pipe.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
