//go:build unix && !linux

package sandboxd_test

// removeShared has nothing to do on this system.
func removeShared() {}
