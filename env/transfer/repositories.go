package transfer

import (
	"os"
	"path"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

// repositories finds the files of version control systems in a directory of the host.
type repositories struct {
	root *os.Root
	// found is called once for each directory or file of a version control system.
	found    func(name string)
	reported map[string]bool
	// gitDirs caches whether directories are git directories.
	gitDirs map[string]bool
}

func findRepositories(root *os.Root, found func(name string)) *repositories {
	return &repositories{
		root: root, found: found, reported: make(map[string]bool), gitDirs: make(map[string]bool),
	}
}

// contains reports whether a clean name, or a directory above it, belongs to a version control
// system.
func (r *repositories) contains(name string) bool {
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		above := name[:i]
		if gitrepo.MayBeControlName(path.Base(above)) || r.isGitDir(above, i < len(name)) {
			r.report(above)
			return true
		}
	}
	return false
}

// isTop reports whether the whole directory is a git directory.
func (r *repositories) isTop() bool {
	if !r.isGitDir(".", true) {
		return false
	}
	r.report(".")
	return true
}

func (r *repositories) report(name string) {
	if !r.reported[name] {
		r.reported[name] = true
		r.found(name)
	}
}

// isGitDir reports whether name is a git directory, bare or not, at the first call for a directory.
func (r *repositories) isGitDir(name string, isDir bool) bool {
	if is, ok := r.gitDirs[name]; ok {
		return is
	}
	is := gitrepo.IsGitDir(func(part string) bool {
		_, err := r.root.Lstat(pathname.Join(name, part))
		return err == nil
	})
	if isDir || is {
		r.gitDirs[name] = is
	}
	return is
}
