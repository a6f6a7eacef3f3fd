package remote

import (
	"os"
	"strconv"
	"strings"
)

// startTime returns the start time of a process, in clock ticks since boot, with the boot ID; empty
// if it does not exist.
func startTime(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fields[19]
	}
	return fields[19] + "@" + strings.TrimSpace(string(boot))
}

// namespace identifies the PID namespace of this process.
func namespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}
