//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner and group of another file, if the system allows that.
func keepOwner(f *os.File, as fs.FileInfo) {
	now, err := f.Stat()
	if err != nil {
		return
	}
	want, ok := as.Sys().(*syscall.Stat_t)
	have, ok2 := now.Sys().(*syscall.Stat_t)
	if ok && ok2 && (want.Uid != have.Uid || want.Gid != have.Gid) {
		_ = f.Chown(int(want.Uid), int(want.Gid))
	}
}
