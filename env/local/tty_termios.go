//go:build aix || linux || solaris

package local

import "golang.org/x/sys/unix"

const getTermios = unix.TCGETS
