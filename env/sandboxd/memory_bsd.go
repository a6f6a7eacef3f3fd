//go:build unix && !linux

package sandboxd

// memoryCount is available on Linux only.
type memoryCount struct{}

func openMemoryCount() *memoryCount { return nil }

func (*memoryCount) kills() (uint64, bool) { return 0, false }
