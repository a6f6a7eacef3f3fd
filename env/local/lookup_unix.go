//go:build unix

package local

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is the PATH of a command without one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const errNotDir = unix.ENOTDIR

func hasSlash(name string) bool { return strings.Contains(name, "/") }

// splitPath returns the elements of a PATH. An empty one is the command's own directory.
func splitPath(path string) []string { return strings.Split(path, ":") }

// join returns name in dir without cleaning either.
func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// programFile returns name as it is: the system resolves it after chdir.
func programFile(name, _ string) (string, error) { return name, nil }

// executable returns file if it is one that may be executed.
func executable(file string, _ []string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", unix.ENOENT // a directory without search permission counts as empty
	}
	if !info.Mode().IsRegular() {
		return "", unix.EACCES
	}
	return file, unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// mayEnter reports why dir cannot become the current directory of a process.
func mayEnter(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
}

// explainStart replaces a misleading error of a failed start.
func explainStart(file, dir string, err error) error {
	err = systemError(err)
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
