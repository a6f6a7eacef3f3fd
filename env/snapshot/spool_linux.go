package snapshot

import (
	"cmp"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// newSpool creates a file in dir. It has no name, so that a killed program leaves none, where the
// file system can do that.
func newSpool(dir string) (f *os.File, named bool, err error) {
	at := cmp.Or(dir, os.TempDir())
	fd, err := unix.Open(at, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(at, "snapshot without a name")), false, nil
	}
	return namedSpool(dir)
}
