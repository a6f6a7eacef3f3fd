package local

import "golang.org/x/sys/unix"

// How members of a tree are found here, and what hides them.
const (
	trackedBy = "a marker variable read by sysctl"
	trackLost = "clears or overwrites its variables, or is a program that the system protects,"
)

// osVersion returns the version of macOS.
func osVersion() string {
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil {
		return ""
	}
	return "macOS " + version
}
