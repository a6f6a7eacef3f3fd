package local

import (
	"bufio"
	"os"
	"strings"
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
