package remote

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Owner returns the creator of environments of this process, user@machine.
func Owner() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	machine, err := os.Hostname()
	if err != nil || machine == "" {
		machine = "unknown"
	}
	return name + "@" + machine
}

// ThisProcess identifies this process until the machine restarts.
func ThisProcess() string {
	return fmt.Sprintf("%d:%s:%s", os.Getpid(), startTime(os.Getpid()), namespace())
}

// ProcessEnded reports whether the process that ThisProcess identified as id has ended. It returns
// false if that is unknown: process IDs are valid only in their PID namespace, on their machine.
func ProcessEnded(id string) bool {
	parts := strings.Split(id, ":")
	space := namespace()
	if len(parts) < 3 || parts[1] == "" || space == "" || strings.Join(parts[2:], ":") != space {
		return false
	}
	// All machines have the same number for their first namespace, so the boot must be the same.
	_, boot, _ := strings.Cut(parts[1], "@")
	_, now, _ := strings.Cut(startTime(os.Getpid()), "@")
	pid, err := strconv.Atoi(parts[0])
	return err == nil && pid > 0 && boot == now && startTime(pid) != parts[1]
}
