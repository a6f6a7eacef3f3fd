package sandboxd

import (
	"bytes"
	"os"
	"strconv"
)

// memoryFiles are where control groups count the processes that the kernel killed for a limit on memory, in their second
// and first version. In a container they are those of the container.
var memoryFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// memoryKills returns how many processes the kernel has killed for the container's limit on memory. It reports false where
// that is not counted, or counted for more than this process answers for.
func memoryKills() (uint64, bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	for _, name := range memoryFiles {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		return parseMemoryKills(data)
	}
	return 0, false
}

// parseMemoryKills finds the number in what the kernel writes.
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
