package sandboxd

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// memoryFiles count the processes that the kernel killed for a limit on memory, in cgroups of
// version 2 and 1. In a container they are those of the container.
var memoryFiles = []string{
	"/sys/fs/cgroup/memory.events",
	"/sys/fs/cgroup/memory/memory.oom_control",
}

// memoryCount counts the processes that the kernel has killed for the container's limit on memory.
// The count of nil is unknown.
type memoryCount struct{ file *os.File }

// openMemoryCount returns the count, or nil if it is missing or covers other processes too.
func openMemoryCount() *memoryCount {
	if os.Getpid() != 1 {
		return nil
	}
	for _, name := range memoryFiles {
		if f, err := os.Open(name); err == nil {
			return &memoryCount{f}
		}
	}
	return nil
}

// kills returns the count. Commands wait for it, so it takes one system call. Calls may overlap.
func (m *memoryCount) kills() (uint64, bool) {
	if m == nil {
		return 0, false
	}
	var text [1024]byte
	n, err := unix.Pread(int(m.file.Fd()), text[:], 0)
	if err != nil {
		return 0, false
	}
	return parseMemoryKills(text[:n])
}

// parseMemoryKills returns the number in the kernel's text.
func parseMemoryKills(data []byte) (uint64, bool) {
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("oom_kill "))
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
		return n, err == nil
	}
	return 0, false
}
