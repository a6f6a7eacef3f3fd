//go:build unix && !linux

package sandboxd

// memoryKills is known on Linux only.
func memoryKills() (uint64, bool) { return 0, false }
