//go:build unix && !linux && !darwin

package local

import "golang.org/x/sys/unix"

// How members of a tree are found here, and what hides them; processes cannot be listed, so that it is never said.
const (
	trackedBy = ""
	trackLost = ""
)

// osVersion returns the kernel's name and release.
func osVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
