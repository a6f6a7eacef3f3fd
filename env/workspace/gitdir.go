package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const gitName = ".git"

// gitFilePrefix begins a .git that is a file.
const gitFilePrefix = "gitdir: "

// maxSmall is the size of the largest of git's short files that is read, in bytes.
const maxSmall = 1 << 20

// gitFolders are where git keeps what belongs to one working tree and what all of one repository
// share. For most repositories it is the same folder.
type gitFolders struct {
	own, common string
}

// findGit finds the folders of the repository whose top is dir. There being none is fs.ErrNotExist.
func findGit(dir string) (gitFolders, error) {
	name := filepath.Join(dir, gitName)
	fi, err := os.Stat(name)
	if err != nil {
		return gitFolders{}, err
	}
	own := name
	if !fi.IsDir() {
		content, err := readHostFile(name)
		if err != nil {
			return gitFolders{}, err
		}
		to, ok := strings.CutPrefix(content, gitFilePrefix)
		if !ok {
			return gitFolders{}, fmt.Errorf("%s is no folder and does not say where one is; remove or "+
				"repair it", name)
		}
		own = resolve(dir, to)
	}
	if _, err := os.Stat(filepath.Join(own, "HEAD")); err != nil {
		return gitFolders{}, fmt.Errorf("%s points to %s, which is no git repository; "+
			"repair it with git worktree repair or git submodule update --init, or remove it", name, own)
	}
	common := own
	content, err := readHostFile(filepath.Join(own, "commondir"))
	switch {
	case err == nil:
		common = resolve(own, content)
	case !errors.Is(err, fs.ErrNotExist):
		return gitFolders{}, err
	}
	if own, err = filepath.EvalSymlinks(own); err == nil {
		common, err = filepath.EvalSymlinks(common)
	}
	if err != nil {
		return gitFolders{}, fmt.Errorf("the folder of git of %s: %w; repair it with git worktree repair",
			dir, err)
	}
	return gitFolders{own: own, common: common}, nil
}

// resolve returns the name of what a file in dir points to.
func resolve(dir, to string) string {
	to = filepath.FromSlash(to)
	if filepath.IsAbs(to) {
		return filepath.Clean(to)
	}
	return filepath.Join(dir, to)
}

// readHostFile reads a short file that holds one line.
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

// openFile opens a regular file. What is something else is looked at first, since opening a pipe
// would wait.
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

// enclosing finds the nearest folder above dir that is the top of a repository; empty if there is
// none.
func enclosing(dir string) string {
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		if isTop(up) {
			return up
		}
	}
	return ""
}

// isTop tells whether git takes a folder for the top of a working tree: its .git is a folder with a
// HEAD, or a file that tells where that folder is.
func isTop(dir string) bool {
	name := filepath.Join(dir, gitName)
	fi, err := os.Stat(name)
	if err == nil && fi.IsDir() {
		_, err = os.Lstat(filepath.Join(name, partHead))
		return err == nil
	}
	content, err := readHostFile(name)
	return err == nil && strings.HasPrefix(content, gitFilePrefix)
}

// belowModules tells whether name is in a folder for the repositories of submodules, of the
// repository in home.
func belowModules(home, name string) bool {
	rel, err := filepath.Rel(home, name)
	if err != nil || !filepath.IsLocal(rel) {
		return false
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	return len(parts) > 1 && parts[0] == "modules" || len(parts) > 3 && parts[0] == "worktrees" &&
		parts[2] == "modules"
}
