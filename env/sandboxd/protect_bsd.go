//go:build unix && !linux

package sandboxd

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// protect keeps inherited descriptors from commands.
func protect() error {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return errors.Join(err, dir.Close())
}
