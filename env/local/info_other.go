//go:build unix && !linux && !darwin

package local

import "golang.org/x/sys/unix"

// osVersion returns the kernel's name and release.
func osVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
