package local

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// defaultPath is the PATH of a command without one.
const defaultPath = `C:\Windows\System32;C:\Windows`

const errNotDir = windows.ERROR_DIRECTORY

func hasSlash(name string) bool { return strings.ContainsAny(name, `/\:`) }

// splitPath returns the elements of a PATH, without the empty ones.
func splitPath(path string) []string {
	var elements []string
	for _, f := range filepath.SplitList(path) {
		if f != "" {
			elements = append(elements, f)
		}
	}
	return elements
}

// join returns name in dir. A name that starts with a slash is on the drive of dir.
func join(dir, name string) string {
	if strings.HasPrefix(name, `\`) {
		return filepath.VolumeName(dir) + name
	}
	if filepath.VolumeName(name) != "" {
		return name
	}
	return dir + `\` + name
}

// programFile returns the file for a name with a slash, from dir.
func programFile(name, dir string) (string, error) {
	name = filepath.FromSlash(name)
	if !filepath.IsAbs(name) {
		name = join(dir, name)
	}
	return executable(name, nil)
}

// executable returns file, or file with the first extension of PATHEXT that makes it exist.
func executable(file string, vars []string) (string, error) {
	extensions, ok := lookupVar(vars, "PATHEXT")
	if !ok {
		extensions = ".com;.exe;.bat;.cmd"
	}
	candidates := []string{}
	if filepath.Ext(file) != "" {
		candidates = append(candidates, file)
	}
	for _, ext := range strings.Split(strings.ToLower(extensions), ";") {
		if ext != "" {
			candidates = append(candidates, file+ext)
		}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && !info.IsDir() {
			return c, nil
		}
	}
	if info, err := os.Stat(file); err == nil {
		if info.IsDir() {
			return "", fs.ErrPermission
		}
		return file, nil
	}
	return "", windows.ERROR_FILE_NOT_FOUND
}

// mayEnter returns nil: this system has no such check.
func mayEnter(string) error { return nil }

// explainStart returns the system's error.
func explainStart(_, _ string, err error) error { return systemError(err) }
