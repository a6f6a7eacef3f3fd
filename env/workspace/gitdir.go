package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// gitFilePrefix starts the content of a .git that is a file.
const gitFilePrefix = "gitdir: "

// maxSmall bounds the size of git's short files, in bytes.
const maxSmall = 1 << 20

// findGit returns the git directories of the working tree whose top is dir, with symlinks resolved.
// A missing .git is fs.ErrNotExist. Unlike gitrepo.Find it reports a broken .git with the remedy.
func findGit(dir string) (gitrepo.Dirs, error) {
	name := filepath.Join(dir, gitrepo.DirName)
	fi, err := os.Stat(name)
	if err != nil {
		return gitrepo.Dirs{}, err
	}
	private := name
	if !fi.IsDir() {
		content, err := readHostFile(name)
		if err != nil {
			return gitrepo.Dirs{}, err
		}
		to, ok := strings.CutPrefix(content, gitFilePrefix)
		if !ok {
			return gitrepo.Dirs{}, fmt.Errorf("%s is neither a directory nor a file that points to one "+
				"(remove or repair it)", name)
		}
		private = resolve(dir, to)
	}
	if _, err := os.Stat(filepath.Join(private, gitrepo.Head)); err != nil {
		return gitrepo.Dirs{}, fmt.Errorf("%s points to %s, which is not a git repository "+
			"(repair it with git worktree repair or git submodule update --init, or remove it)",
			name, private)
	}
	common := private
	content, err := readHostFile(filepath.Join(private, gitrepo.CommonDir))
	switch {
	case err == nil:
		common = resolve(private, content)
	case !errors.Is(err, fs.ErrNotExist):
		return gitrepo.Dirs{}, err
	}
	if private, err = filepath.EvalSymlinks(private); err == nil {
		common, err = filepath.EvalSymlinks(common)
	}
	if err != nil {
		return gitrepo.Dirs{}, fmt.Errorf("git directory of %s: %w (repair it with git worktree repair)",
			dir, err)
	}
	return gitrepo.Dirs{Private: private, Common: common, Linked: !fi.IsDir()}, nil
}

// resolve returns the path to, which a file in dir contains, made absolute.
func resolve(dir, to string) string {
	to = filepath.FromSlash(to)
	if filepath.IsAbs(to) {
		return filepath.Clean(to)
	}
	return filepath.Join(dir, to)
}

// readHostFile reads a short file without its final line endings.
func readHostFile(name string) (string, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	content, err := readFile(root, filepath.Base(name), maxSmall)
	return strings.TrimRight(string(content), "\r\n"), err
}

// readFile reads a regular file of at most limit bytes.
func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	f, size, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if size > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("the file is too large")}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// openFile opens a regular file and returns its size. It checks the type first, since opening a
// FIFO would wait.
func openFile(root *os.Root, name string) (*os.File, int64, error) {
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

// enclosingRepository returns the nearest parent directory of dir that is the top of a working
// tree; empty if none is.
func enclosingRepository(dir string) string {
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		if isTop(up) {
			return up
		}
	}
	return ""
}

// isTop reports whether git takes a directory for the top of a working tree: its .git is a
// directory with a HEAD, or a file that points to one.
func isTop(dir string) bool {
	name := filepath.Join(dir, gitrepo.DirName)
	fi, err := os.Stat(name)
	if err == nil && fi.IsDir() {
		_, err = os.Lstat(filepath.Join(name, gitrepo.Head))
		return err == nil
	}
	content, err := readHostFile(name)
	return err == nil && strings.HasPrefix(content, gitFilePrefix)
}

// belowModules reports whether the path name is in a directory for submodules of the git directory
// common.
func belowModules(common, name string) bool {
	rel, err := filepath.Rel(common, name)
	if err != nil || !filepath.IsLocal(rel) {
		return false
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	return len(parts) > 1 && parts[0] == "modules" || len(parts) > 3 && parts[0] == "worktrees" &&
		parts[2] == "modules"
}
