//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedHere reports whether a file belongs to this user or to root.
func ownedHere(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
