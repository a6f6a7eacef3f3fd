package transfer

import (
	"os"
	"path"

	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// repositories finds what belongs to version control programs in a folder of the host.
type repositories struct {
	root *os.Root
	// found is told of each, once.
	found func(name string)
	told  map[string]bool
	// laidOut says of the folders that were looked at whether they are laid out like a repository, as
	// they were then.
	laidOut map[string]bool
}

func findRepositories(root *os.Root, found func(name string)) *repositories {
	return &repositories{
		root: root, found: found, told: make(map[string]bool),
		laidOut: make(map[string]bool),
	}
}

// holds tells whether a clean name belongs to version control, or a folder that it is in.
func (r *repositories) holds(name string) bool {
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		if above := name[:i]; gitrepo.MayBeControlName(path.Base(above)) || r.isRepository(above, i < len(name)) {
			r.tell(above)
			return true
		}
	}
	return false
}

// isTop tells whether the whole folder is laid out like a repository.
func (r *repositories) isTop() bool {
	if !r.isRepository(".", true) {
		return false
	}
	r.tell(".")
	return true
}

func (r *repositories) tell(name string) {
	if !r.told[name] {
		r.told[name] = true
		r.found(name)
	}
}

// isRepository tells whether what is called name is laid out like a git repository without a
// working tree. What is found of a folder is kept.
func (r *repositories) isRepository(name string, isDir bool) bool {
	if laidOut, ok := r.laidOut[name]; ok {
		return laidOut
	}
	_, err := r.root.Lstat(pathname.Join(name, "HEAD"))
	laidOut := err == nil
	for _, folder := range []string{"objects", "refs"} {
		if laidOut {
			fi, err := r.root.Stat(pathname.Join(name, folder))
			laidOut = err == nil && fi.IsDir()
		}
	}
	if isDir || laidOut {
		r.laidOut[name] = laidOut
	}
	return laidOut
}
