package workspace

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// isGitDir reports whether git takes a directory of the host for a git directory.
func isGitDir(dir string) bool {
	return gitrepo.IsGitDir(func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// enclosingGitDir returns the git directory that dir is, or is in without a working tree between;
// empty if none.
func enclosingGitDir(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if gitrepo.IsHostTop(dir) {
			return ""
		}
		if isGitDir(dir) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// excludedDirs are the git directories below the directory, which are not part of the workspace, by
// name.
type excludedDirs map[string]fs.FileInfo

// exclude excludes the git directory with the absolute path dir, if it is below the workspace.
func (w *Workspace) exclude(dir string) {
	rel, err := filepath.Rel(w.dir, dir)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return
	}
	name := filepath.ToSlash(rel)
	if w.omits(name) {
		return
	}
	w.excluded[name], _ = os.Lstat(dir)
	w.warn("%s is a git directory and is not uploaded", name)
}

// omits reports whether a name is neither part of the workspace nor of its changes, even if git
// tracks it.
func (w *Workspace) omits(name string) bool {
	if strings.HasPrefix(name, stagePrefix) {
		return true
	}
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if _, ok := w.excluded[name]; ok {
			return true
		}
		if gitrepo.IsControlName(path.Base(name)) {
			return true
		}
	}
	return false
}

// isOmitted is omits for a file that exists. It excludes git directories.
func (w *Workspace) isOmitted(e search.Entry) bool {
	if dir := filepath.Join(w.dir, filepath.FromSlash(e.Name)); e.Mode.IsDir() && isGitDir(dir) {
		w.exclude(dir)
	}
	return w.omits(e.Name)
}

// warnOmitted adds a warning about an omitted name, unless the user expects that.
func (w *Workspace) warnOmitted(name string) {
	if _, ok := w.excluded[name]; ok || strings.EqualFold(path.Base(name), gitrepo.DirName) {
		return
	}
	if strings.HasPrefix(name, stagePrefix) {
		if steps := w.recordOf(name); steps != "" {
			w.warn("%s is not uploaded: it has the files of changes that are being made, or were when the "+
				"program was killed; %s has the steps to undo them", name, steps)
			return
		}
		w.warn("%s is not uploaded: its name is that of a directory with unfinished changes, but no run "+
			"of this user is known to have made it (do not follow its README; review and remove it)", name)
		return
	}
	w.warn("%s belongs to a version control system and is not uploaded", name)
}

// newRepositories returns the directories that the changes with the given names, together with the
// files on the host, make git directories. Git on the host could run programs that they name.
func (c *Changes) newRepositories(names []string) []string {
	dirs := make(map[string]bool)
	for _, name := range names {
		if _, ok := c.after.Lookup(name); !ok {
			continue
		}
		for ; name != "."; name = path.Dir(name) {
			if gitrepo.GitDirPart(path.Base(name)) != "" {
				dirs[path.Dir(name)] = true
			}
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	exists := make(map[string]bool) // by directory in lower case, as some file systems compare
	for _, name := range c.after.Files() {
		for ; name != "."; name = path.Dir(name) {
			if part := gitrepo.GitDirPart(path.Base(name)); part != "" {
				exists[strings.ToLower(path.Dir(name))+"/"+part] = true
			}
		}
	}
	root, err := os.OpenRoot(c.w.dir)
	if err == nil {
		defer func() { _ = root.Close() }()
	}
	maps.DeleteFunc(dirs, func(dir string, _ bool) bool {
		return !gitrepo.IsGitDir(func(part string) bool {
			if exists[strings.ToLower(dir)+"/"+part] || root == nil {
				return true
			}
			_, err := root.Lstat(filepath.FromSlash(path.Join(dir, part)))
			return err == nil
		})
	})
	return slices.Sorted(maps.Keys(dirs))
}

// omitsNew is omits for an environment in which dirs became git directories: new files in them are
// not part of the changes.
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
			// If the workspace itself became one, only its git files are omitted.
			if slices.Contains(dirs, name) || gitrepo.GitDirPart(name) != "" && slices.Contains(dirs, ".") {
				return true
			}
		}
		return false
	}
}
