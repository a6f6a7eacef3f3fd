//go:build !linux

package remote

// startTime returns nothing: the start of a process is unknown on this system.
func startTime(int) string { return "" }

// namespace returns nothing, for the same reason.
func namespace() string { return "" }
