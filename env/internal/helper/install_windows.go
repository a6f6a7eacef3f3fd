package helper

import (
	"io/fs"
	"os"
)

// openPlain opens a file for reading.
func openPlain(name string) (*os.File, error) { return os.Open(name) }

// ours reports whether a file belongs to this user. There is no helper for this system, so nobody asks.
func ours(fs.FileInfo) bool { return true }

// execPath returns the name of the file.
func execPath(f *os.File) string { return f.Name() }
