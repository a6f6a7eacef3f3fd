package sandbox

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sockets returns the unix sockets of this machine that have a path.
func sockets() []string {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil // without it no other network can be reached either
	}
	defer f.Close() //nolint:errcheck // it was only read
	var names []string
	for _, name := range scanSockets(f) {
		if real, err := filepath.EvalSymlinks(name); err == nil && !slices.Contains(names, real) {
			if info, err := os.Lstat(real); err == nil && info.Mode()&os.ModeSocket != 0 {
				names = append(names, real)
			}
		}
	}
	slices.Sort(names)
	return names
}

// scanSockets returns the absolute paths in a table like /proc/net/unix. The path follows the
// seventh column.
func scanSockets(r io.Reader) (names []string) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		rest := lines.Text()
		for range 7 {
			_, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
		}
		if strings.HasPrefix(rest, "/") {
			names = append(names, rest)
		}
	}
	return names
}
