package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// resolver resolves the symlinks in names, and remembers the results: most names of secrets are
// missing, in a few directories.
type resolver struct {
	real map[string]string
	// listed are the entries of directories that were listed, by the directories' names.
	listed map[string]map[string]fs.FileMode
}

func newResolver() resolver {
	return resolver{make(map[string]string), make(map[string]map[string]fs.FileMode)}
}

// list lists a home directory and its parts, to save a system call for each missing entry.
func (r resolver) list(home string) {
	for _, part := range append([]string{""}, homeParts...) {
		dir := r.prefix(filepath.Join(home, part))
		if _, ok := r.mode(dir); !ok || r.listed[dir] != nil {
			continue
		}
		if entries, err := os.ReadDir(dir); err == nil { // others can be entered, and not listed
			r.listed[dir] = make(map[string]fs.FileMode, len(entries))
			for _, e := range entries {
				r.listed[dir][e.Name()] = e.Type()
			}
		}
	}
}

// mode returns the type of a file, without following a symlink, and whether the file exists. The
// parents of name have no symlinks.
func (r resolver) mode(name string) (mode fs.FileMode, ok bool) {
	dir := filepath.Dir(name)
	if entries := r.listed[dir]; entries != nil {
		mode, ok = entries[filepath.Base(name)]
		return mode, ok
	}
	if r.listed[filepath.Dir(dir)] != nil {
		if _, ok := r.mode(dir); !ok {
			return 0, false
		}
	}
	info, err := os.Lstat(name)
	if err != nil {
		return 0, false
	}
	return info.Mode().Type(), true
}

// prefix returns name with the symlinks in its longest existing prefix resolved.
func (r resolver) prefix(name string) string {
	real, known := r.real[name]
	if known {
		return real
	}
	dir := filepath.Dir(name)
	if name != filepath.Clean(name) { // ".." behind a symlink leads elsewhere
		if real, err := filepath.EvalSymlinks(name); err == nil {
			return real
		}
	}
	if real = name; dir != name {
		real = filepath.Join(r.prefix(dir), filepath.Base(name))
		if mode, _ := r.mode(real); mode&fs.ModeSymlink != 0 {
			if target, err := filepath.EvalSymlinks(real); err == nil {
				real = target
			}
		}
	}
	r.real[name] = real
	return real
}

// hideable reports whether name, which has no symlinks, is a directory, a regular file or missing:
// HISTFILE may be /dev/null.
func (r resolver) hideable(name string) bool {
	mode, ok := r.mode(name)
	return !slices.ContainsFunc(kernelDirs, func(k string) bool { return Within(name, k) }) &&
		(!ok || mode.IsDir() || mode.IsRegular())
}
