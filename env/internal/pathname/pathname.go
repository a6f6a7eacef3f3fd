// Package pathname computes with the names of files in an environment: slash-separated on every
// system, relative to the working directory unless absolute.
package pathname

import (
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// Join returns the name of the file name in the directory dir, which may be empty for the working
// directory. It keeps "..", which path.Join resolves as if no directory were a symlink.
func Join(dir, name string) string {
	if dir == "" || dir == "." {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// HasDrive reports whether name starts with a Windows drive, as C:/ does.
func HasDrive(name string) bool {
	return len(name) > 2 && name[0] != '/' && name[1:3] == ":/"
}

// Absolute returns the clean absolute form of name. For a relative name, e needs a method Info;
// without one the result is empty.
func Absolute(e env.FileReader, name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	i, ok := e.(interface{ Info() env.Info })
	if !ok {
		return ""
	}
	info := i.Info()
	if info.OS == "windows" && HasDrive(name) {
		return path.Clean(name)
	}
	return path.Join(info.WorkDir, name)
}

// Parent returns the directory that holds the clean absolute name dir; empty for a root.
func Parent(dir string) string {
	parent := dir[:strings.LastIndexByte(dir, '/')+1]
	switch {
	case parent == dir:
		return ""
	case parent == "/", len(parent) == 3 && HasDrive(parent):
		return parent
	}
	return strings.TrimSuffix(parent, "/")
}
