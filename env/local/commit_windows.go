package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

const errLoop = windows.ERROR_CANT_RESOLVE_FILENAME

// dirKey returns a key of a directory; its other names, by links, have other keys.
func dirKey(dir string) string { return strings.ToLower(filepath.Clean(dir)) }

// keepOwner reports true: a file has the owner that its directory gives it.
func keepOwner(_ *os.File, _, _ fs.FileInfo) bool { return true }

// mayWrite reports why an existing file must not be written.
func mayWrite(_ string, info fs.FileInfo) error {
	if info.Mode()&0o200 == 0 {
		return windows.ERROR_ACCESS_DENIED
	}
	return nil
}

// inPlaceHelps reports whether err forbids replacing a file but perhaps not writing it.
func inPlaceHelps(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
}
