//go:build unix

package ssh

import (
	"io/fs"
	"os"
	"syscall"
)

// tooOpen reports whether users other than its owner may use a key file of this user, and its mode. Files of others are
// as their owners want them.
func tooOpen(file string) (fs.FileMode, bool) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	return mode, ok && int(stat.Uid) == os.Getuid() && mode&0o077 != 0
}
