//go:build unix

package local

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is where programs are looked for if the command has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const errNotDir = unix.ENOTDIR

func hasSlash(name string) bool { return strings.Contains(name, "/") }

// splitPath returns the folders of a PATH. An empty one is the command's own folder.
func splitPath(path string) []string { return strings.Split(path, ":") }

// join returns name in dir without cleaning either.
func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// programFile returns name as it is: the system resolves it after the change of folder.
func programFile(name, _ string) (string, error) { return name, nil }

// executable returns file if it is one that may be executed.
func executable(file string, _ []string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", unix.ENOENT // a folder that may not be searched holds nothing
	}
	if !info.Mode().IsRegular() {
		return "", unix.EACCES
	}
	return file, unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// mayEnter reports why dir cannot become the current folder of a process.
func mayEnter(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
}

// explainStart says more about why file could not be started where the system's error misleads.
func explainStart(file, dir string, err error) error {
	err = bare(err)
	if !strings.HasPrefix(file, "/") {
		file = join(dir, file)
	}
	info, statErr := os.Stat(file)
	switch {
	case statErr != nil:
		return err
	case info.IsDir():
		return &condition{is: fs.ErrPermission, err: errors.New("is a directory")}
	case errors.Is(err, fs.ErrNotExist):
		return &condition{is: err, err: errors.New("its interpreter or loader does not exist")}
	default:
		return err
	}
}
