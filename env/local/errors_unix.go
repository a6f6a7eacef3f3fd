//go:build unix

package local

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// classify returns the sentinel error of package env for an error of the system, or nil.
func classify(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	switch errno {
	case unix.ENOTDIR:
		return env.ErrNotDir
	case unix.EISDIR:
		return env.ErrIsDir
	case unix.EROFS:
		return env.ErrReadOnlyFile
	case unix.ENOSPC, unix.EDQUOT:
		return env.ErrNoSpace
	case unix.EBUSY, unix.ETXTBSY:
		return env.ErrBusy
	case unix.ENXIO, unix.ENODEV:
		return env.ErrNotRegular
	default:
		return nil
	}
}
