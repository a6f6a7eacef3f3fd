package workspace

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/vcs"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// gitParts are what makes git take a folder for one of its own: the first with the second, or with
// the others.
const (
	partHead    = "HEAD"
	partCommon  = "commondir"
	partObjects = "objects"
	partRefs    = "refs"
)

// isGitPart tells whether some file system takes a name for one of those that make a folder of git.
func isGitPart(name string) bool {
	return slices.ContainsFunc([]string{partHead, partCommon, partObjects, partRefs},
		func(p string) bool { return strings.EqualFold(p, name) })
}

// gitShaped tells whether git takes a folder for one of its own, by a function that tells what is
// in it.
func gitShaped(has func(name string) bool) bool {
	return has(partHead) && (has(partCommon) || has(partObjects) && has(partRefs))
}

// isGitFolder tells whether git takes a folder of the host for one of its own.
func isGitFolder(dir string) bool {
	return gitShaped(func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// insideGitFolder finds the folder of git that dir is, or is in, unless the top of a working tree
// lies between; empty if there is none.
func insideGitFolder(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if isTop(dir) {
			return ""
		}
		if isGitFolder(dir) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// hidden are folders in the workspace that are no part of it: those in which repositories are kept.
type hidden map[string]fs.FileInfo

// hide leaves a folder of git, which has an absolute name, out of the workspace if it is in it.
func (w *Workspace) hide(dir string) {
	rel, err := filepath.Rel(w.dir, dir)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return
	}
	name := filepath.ToSlash(rel)
	if w.omits(name) {
		return
	}
	w.hidden[name], _ = os.Lstat(dir)
	w.note("%s is a folder of git and does not go along", name)
}

// omits tells whether something is no part of the workspace, nor of what comes back, whatever git
// tracks.
func (w *Workspace) omits(name string) bool {
	if strings.HasPrefix(name, stagePrefix) {
		return true
	}
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if _, ok := w.hidden[name]; ok {
			return true
		}
		if vcs.IsFolder(path.Base(name)) {
			return true
		}
	}
	return false
}

// isOmitted is omits for something that was found in the workspace. It finds out what a folder is.
func (w *Workspace) isOmitted(e search.Entry) bool {
	if dir := filepath.Join(w.dir, filepath.FromSlash(e.Name)); e.Mode.IsDir() && isGitFolder(dir) {
		w.hide(dir)
	}
	return w.omits(e.Name)
}

// noteOmitted tells of a name that omits is true for, of which the user may not know.
func (w *Workspace) noteOmitted(name string) {
	if _, ok := w.hidden[name]; ok || strings.EqualFold(path.Base(name), gitName) {
		return
	}
	if strings.HasPrefix(name, stagePrefix) {
		w.note("%s does not go along: it holds changes that are being made, or were when the program "+
			"was killed; "+
			"its %s says how to undo them", name, readmeName)
		return
	}
	w.note("%s belongs to version control and does not go along", name)
}

// newRepositories finds the folders that the changes with the given names make folders of git,
// together with what is on the host. Such a folder could make git run programs there.
func (c *Changes) newRepositories(names []string) []string {
	dirs := make(map[string]bool)
	for _, name := range names {
		if _, ok := c.after.Lookup(name); !ok {
			continue
		}
		for ; name != "."; name = path.Dir(name) {
			if isGitPart(path.Base(name)) {
				dirs[path.Dir(name)] = true
			}
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	there := make(map[string]bool) // names that may be the same are one
	for _, name := range c.after.Files() {
		for ; name != "." && !there[strings.ToLower(name)]; name = path.Dir(name) {
			there[strings.ToLower(name)] = true
		}
	}
	root, err := os.OpenRoot(c.w.dir)
	if err == nil {
		defer func() { _ = root.Close() }()
	}
	maps.DeleteFunc(dirs, func(dir string, _ bool) bool {
		return !gitShaped(func(part string) bool {
			name := path.Join(dir, part)
			if there[strings.ToLower(name)] || root == nil {
				return true
			}
			_, err := root.Lstat(filepath.FromSlash(name))
			return err == nil
		})
	})
	return slices.Sorted(maps.Keys(dirs))
}

// omitsNew is omits for an environment that has made folders of git: what is new in them is no part
// of what comes back.
func (w *Workspace) omitsNew(dirs []string) func(string) bool {
	known := make(map[string]bool)
	for _, name := range w.before.Files() {
		for ; name != "." && !known[name]; name = path.Dir(name) {
			known[name] = true
		}
	}
	return func(name string) bool {
		if w.omits(name) {
			return true
		}
		if known[name] {
			return false
		}
		for ; name != "."; name = path.Dir(name) {
			// Of the workspace itself everything else stays.
			if slices.Contains(dirs, name) || isGitPart(name) && slices.Contains(dirs, ".") {
				return true
			}
		}
		return false
	}
}
