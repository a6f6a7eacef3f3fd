//go:build !linux

package docker

// startTime returns nothing: processes are not told apart here.
func startTime(int) string { return "" }

// namespace returns nothing, for the same reason.
func namespace() string { return "" }
