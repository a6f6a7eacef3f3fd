package docker

import (
	"os"
	"strconv"
	"strings"
)

// startOf returns when a process started, since the start of the system and with the system's identity; empty if there is
// no such process.
func startOf(pid int) string {
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

// namespace names the process namespace that this process is in.
func namespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}
