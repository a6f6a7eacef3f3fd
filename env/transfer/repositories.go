package transfer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

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
	// parts caches the parts of git directories that directories have, during a download.
	parts map[string]gitParts
	// complete is parts after all entries but the held ones.
	complete map[string]gitParts
}

// gitParts are the names that gitrepo.IsGitDir needs.
type gitParts map[string]bool

func findRepositories(root *os.Root, found func(name string)) *repositories {
	return &repositories{
		root: root, found: found, reported: make(map[string]bool), gitDirs: make(map[string]bool),
		parts: make(map[string]gitParts), complete: make(map[string]gitParts),
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

// isHead reports whether some file system takes the file name for the HEAD of a git directory.
// Download makes it last, so that it knows the other parts then, whatever the order of the entries.
func isHead(name string) bool { return gitrepo.GitDirPart(path.Base(name)) == gitrepo.Head }

// keepHead reports whether a HEAD does not make its directory a git directory.
func (r *repositories) keepHead(name string) bool {
	dir := path.Dir(name)
	has, ok := r.complete[dir]
	if !ok {
		has = r.partsOf(dir)
		r.complete[dir] = has
	}
	if has[gitrepo.CommonDir] || has[gitrepo.Objects] && has[gitrepo.Refs] {
		r.report(name)
		return false
	}
	return true
}

// completes reports whether a clean name, or a directory above it, would make a directory of the
// host that has a HEAD a git directory.
func (r *repositories) completes(name string) bool {
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		above := name[:i]
		part, dir := gitrepo.GitDirPart(path.Base(above)), path.Dir(above)
		if part == "" || part == gitrepo.Head {
			continue
		}
		has, ok := r.parts[dir]
		if !ok {
			has = r.partsOf(dir)
			r.parts[dir] = has
		}
		if gitrepo.IsGitDir(func(p string) bool { return p == part || has[p] }) {
			r.report(above)
			return true
		}
		has[part] = true
	}
	return false
}

// partsOf returns the parts of a git directory in a directory of the host, in any spelling. A
// directory called HEAD is none; an unreadable directory has all.
func (r *repositories) partsOf(dir string) gitParts {
	has := make(gitParts)
	f, err := r.root.Open(dir + "/.") // which does not wait for a FIFO
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return has
	}
	for err == nil {
		var entries []fs.DirEntry
		entries, err = f.ReadDir(1000)
		for _, e := range entries {
			part := gitrepo.GitDirPart(e.Name())
			has[part] = has[part] || part != gitrepo.Head || !e.IsDir()
		}
	}
	if f != nil {
		_ = f.Close()
	}
	if err != io.EOF { //nolint:errorlint // ReadDir returns it as it is.
		for _, part := range []string{gitrepo.Head, gitrepo.CommonDir} {
			has[part] = true
		}
	}
	return has
}
