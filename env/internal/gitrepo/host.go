package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ForeignError means that the .git of a working tree leads to a git directory that does not name
// the working tree as its own. A .git file or symlink is content of the working tree, and so may
// come from anybody.
type ForeignError struct {
	// Top is the working tree.
	Top string
	Dirs
}

func (e *ForeignError) Error() string {
	if e.Private != e.Common {
		return fmt.Sprintf("its .git leads to %s and %s, which do not name it as their working tree "+
			"(if they are its own, run git worktree repair %s in the main working tree)",
			e.Private, e.Common, e.Top)
	}
	return fmt.Sprintf("its .git leads to %s, which does not name it as its working tree "+
		"(if it is its own, run git --git-dir=%s config core.worktree %s)", e.Private, e.Private, e.Top)
}

// FindHost returns the git directories of the working tree of the host whose top is the directory
// top, an absolute path, with symlinks resolved. A missing .git is fs.ErrNotExist; other errors
// contain the remedy.
//
// A git directory elsewhere counts only if it refers back to top, as those of linked working trees
// and submodules do; else the error is a *ForeignError.
func FindHost(top string) (Dirs, error) {
	name := filepath.Join(top, DirName)
	fi, err := os.Stat(name)
	if err != nil {
		return Dirs{}, err
	}
	private := name
	if !fi.IsDir() {
		content, err := ReadHostFile(name)
		if err != nil {
			return Dirs{}, err
		}
		to, ok := strings.CutPrefix(content, FilePrefix)
		if !ok {
			return Dirs{}, fmt.Errorf("%s is neither a directory nor a file that points to one "+
				"(remove or repair it)", name)
		}
		private = Resolve(top, to)
	}
	if !hasHead(private) {
		return Dirs{}, fmt.Errorf("%s points to %s, which is not a git repository "+
			"(repair it with git worktree repair or git submodule update --init, or remove it)",
			name, private)
	}
	common := private
	content, err := ReadHostFile(filepath.Join(private, CommonDir))
	switch {
	case err == nil:
		common = Resolve(private, content)
	case !errors.Is(err, fs.ErrNotExist):
		return Dirs{}, err
	}
	if private, err = filepath.EvalSymlinks(private); err == nil {
		common, err = filepath.EvalSymlinks(common)
	}
	if err != nil {
		return Dirs{}, fmt.Errorf("git directory of %s: %w (repair it with git worktree repair)",
			top, err)
	}
	dirs := Dirs{Private: private, Common: common, Linked: !fi.IsDir()}
	if !dirs.belongTo(top) {
		return Dirs{}, &ForeignError{Top: top, Dirs: dirs}
	}
	return dirs, nil
}

// IsHostTop reports whether git takes a directory of the host for the top of a working tree: its
// .git is a directory with a HEAD, or a file that points to one.
func IsHostTop(dir string) bool {
	name := filepath.Join(dir, DirName)
	fi, err := os.Stat(name)
	if err == nil && fi.IsDir() {
		_, err = os.Lstat(filepath.Join(name, Head))
		return err == nil
	}
	content, err := ReadHostFile(name)
	return err == nil && strings.HasPrefix(content, FilePrefix)
}

// belongTo reports whether the directories are in the working tree top, or refer back to it: those
// of a linked working tree by the file gitdir, others by core.worktree.
func (d Dirs) belongTo(top string) bool {
	if d.Private != d.Common {
		trees := filepath.Dir(d.Private)
		back, err := ReadHostFile(filepath.Join(d.Private, "gitdir"))
		return err == nil && filepath.Dir(trees) == d.Common && filepath.Base(trees) == "worktrees" &&
			filepath.Base(back) == DirName && sameDir(filepath.Dir(Resolve(d.Private, back)), top) &&
			hasHead(d.Common)
	}
	if real, err := filepath.EvalSymlinks(top); err == nil && Contains(real, d.Private) {
		return true
	}
	back := d.workTree()
	return back != "" && sameDir(Resolve(d.Private, back), top)
}

// workTree returns core.worktree; empty if it is not set.
func (d Dirs) workTree() (name string) {
	read := func(file string) (perTree bool) {
		content, _ := ReadHostFile(filepath.Join(d.Private, file))
		settings, _ := ParseConfig([]byte(content))
		for _, s := range settings {
			switch s.Section + "." + s.Subsection + "." + s.Key {
			case "core..worktree":
				name = s.Value
			case "extensions..worktreeconfig":
				perTree = s.IsTrue()
			}
		}
		return perTree
	}
	if read("config") {
		read("config.worktree")
	}
	return name
}

// hasHead reports whether a directory has a HEAD.
func hasHead(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, Head))
	return err == nil
}

// sameDir reports whether two paths lead to one directory. Unlike a file, it cannot be a hard link.
func sameDir(a, b string) bool {
	fa, err := os.Stat(a)
	fb, berr := os.Stat(b)
	return err == nil && berr == nil && fa.IsDir() && os.SameFile(fa, fb)
}

// Contains reports whether dir is the path name or above it. Both are absolute, without symlinks.
func Contains(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}

// Resolve returns the path to, which a file in dir contains, made absolute.
func Resolve(dir, to string) string {
	to = filepath.FromSlash(to)
	if filepath.IsAbs(to) {
		return filepath.Clean(to)
	}
	return filepath.Join(dir, to)
}

// ReadHostFile reads a regular file of the host, of at most 1 MiB, without its final line endings.
func ReadHostFile(name string) (string, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	content, err := ReadFile(root, filepath.Base(name), maxPointer)
	return strings.TrimRight(string(content), "\r\n"), err
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(root *os.Root, name string, limit int64) ([]byte, error) {
	f, size, err := OpenFile(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if size > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("the file is too large")}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// OpenFile opens a regular file and returns its size. It checks the type first, since opening a
// FIFO would wait.
func OpenFile(root *os.Root, name string) (*os.File, int64, error) {
	fi, err := root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !fi.Mode().IsRegular() {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	fi, err = f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}
