package local

import "golang.org/x/sys/unix"

// osVersion returns the version of macOS.
func osVersion() string {
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil {
		return ""
	}
	return "macOS " + version
}
