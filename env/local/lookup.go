package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// lookProgram returns the file to execute for a program name, searched in the command's own PATH,
// whose relative elements are relative to dir. A name with a slash is returned as it is: the system
// resolves it from dir.
func lookProgram(name, dir string, vars []string) (string, error) {
	if hasSlash(name) {
		return programFile(name, dir)
	}
	path, ok := lookupVar(vars, "PATH")
	if !ok {
		path = defaultPath
	}
	var denied error
	for _, element := range splitPath(path) {
		if !filepath.IsAbs(element) {
			element = join(dir, element)
		}
		file, err := executable(filepath.Join(element, name), vars)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, fs.ErrPermission):
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", errNotFound
}

var errNotFound = &condition{
	is:  fs.ErrNotExist,
	err: errors.New("executable file not found in PATH"),
}

// checkDir returns a *fs.PathError with Op "chdir" if no command can run in dir. Its Path is name,
// which the caller wrote.
func checkDir(dir, name string) error {
	if name == "" {
		name = dir
	}
	info, err := os.Stat(dir)
	if err != nil {
		return pathError("chdir", name, err)
	}
	if !info.IsDir() {
		return pathError("chdir", name, errNotDir)
	}
	if err := mayEnter(dir); err != nil {
		return pathError("chdir", name, err)
	}
	return nil
}
