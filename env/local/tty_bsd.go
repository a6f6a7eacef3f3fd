//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package local

import "golang.org/x/sys/unix"

const getTermios = unix.TIOCGETA
