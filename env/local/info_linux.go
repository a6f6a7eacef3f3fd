package local

import (
	"bufio"
	"os"
	"strings"
)

// How members of a tree are found here, and what hides them.
const (
	trackedBy = "a marker variable read from /proc"
	trackLost = "clears or overwrites its variables or changes its user"
)

// osVersion returns the name of the distribution.
func osVersion() string {
	for _, name := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
				_ = f.Close()
				return strings.Trim(value, `"'`)
			}
		}
		_ = f.Close()
	}
	return ""
}
