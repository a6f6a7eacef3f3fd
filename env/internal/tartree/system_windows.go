package tartree

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// readFlags open a file for reading.
const readFlags = os.O_RDONLY

// rename renames a file or symlink, also to the name of another one. Windows replaces none that is
// read-only, nor a symlink to a directory.
func rename(in *os.Root, from, to string) error {
	err := in.Rename(from, to)
	if err == nil {
		return nil
	}
	fi, lerr := in.Lstat(to)
	if lerr != nil || fi.Mode()&fs.ModeSymlink == 0 && fi.Mode().Perm()&0o200 != 0 ||
		in.Remove(to) != nil {
		return err
	}
	return in.Rename(from, to)
}

// validHere reports whether a clean name means the same on this system as in an archive: no other
// separator, no drive or stream, no reserved device name.
func validHere(name string) bool {
	return !strings.ContainsAny(name, `\:`) && filepath.IsLocal(filepath.FromSlash(name))
}
