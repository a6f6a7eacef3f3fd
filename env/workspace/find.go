package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
)

// findRepositories reads the repository that the folder is the top of, if it is, and those in it.
func (w *Workspace) findRepositories(ctx context.Context, host env.FileReader) error {
	f := &finder{w: w, folders: make(map[string]bool)}
	if err := f.top(); err != nil {
		return err
	}
	err := env.Walk(ctx, host, "", env.WalkOptions{}, func(e env.Entry) error {
		switch {
		case e.Err != nil:
		case e.Mode.IsDir():
			f.folders[e.Name] = true
			f.inner(e.Name)
		case path.Base(e.Name) == ignoreFile && e.Mode.IsRegular():
			f.ruled = append(f.ruled, path.Dir(e.Name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if w.rules, err = w.makeRules(f.outer, f.prefix, f.ruled); err != nil {
		return err
	}
	for _, r := range w.repos {
		for _, name := range r.submodules() {
			f.hollow(name)
		}
	}
	return nil
}

// finder finds repositories.
type finder struct {
	w *Workspace
	// home is where git keeps what belongs to the repository that the workspace is in, if any.
	home string
	// folders are those that git does not ignore.
	folders map[string]bool
	// ruled are the folders with an ignore file.
	ruled []string
	// outer are the rules above the workspace, prefix its name in its repository with a slash at its end.
	outer  *gitignore.Stack
	prefix string
}

// top reads the repository that the workspace is the top of.
func (f *finder) top() error {
	git, err := findGit(f.w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return f.inside()
	}
	if err != nil {
		return err
	}
	f.home = git.common
	fi, err := os.Stat(filepath.Join(f.w.dir, gitName))
	if err != nil {
		return err
	}
	r, err := openRepository(".", git, !fi.IsDir(), true)
	if err != nil {
		return fmt.Errorf("the git repository: %w", err)
	}
	f.add(r)
	return nil
}

// inside takes note of the repository that the workspace is inside of, if any.
func (f *finder) inside() error {
	up := enclosing(f.w.dir)
	if up == "" {
		return nil
	}
	git, err := findGit(up)
	if err != nil {
		return nil //nolint:nilerror // What is above is of no matter if it is no repository.
	}
	f.home = git.common
	f.w.note("the folder is inside the git repository %s and goes along without its history", up)
	f.outer, f.prefix, err = outerRules(up, git, f.w.dir)
	return err
}

func (f *finder) add(r *repository) {
	f.w.repos = append(f.w.repos, r)
	in := path.Join(f.w.dir, r.name)
	if r.format.promisor {
		f.w.note("the git repository in %s is a partial clone: what it has not fetched cannot be had in the environment", in)
	}
	attributes, _ := readHostFile(filepath.Join(f.w.dir, filepath.FromSlash(r.name), ".gitattributes"))
	if r.format.filters || strings.Contains(attributes, "filter=") {
		f.w.note("the git repository in %s has filters, which do not go along: files that pass through them look modified to git", in)
	}
}

// inner reads the repository that a folder of the workspace is the top of, if it is. Such a repository may be of unknown
// origin: it may not lead to places other than itself and where git keeps submodules.
func (f *finder) inner(name string) {
	dir := filepath.Join(f.w.dir, filepath.FromSlash(name))
	fi, err := os.Lstat(filepath.Join(dir, gitName))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var r *repository
	if err == nil {
		r, err = f.openInner(name, dir, fi)
	}
	if err != nil {
		f.w.note("%s goes along without its git repository: %v", name, err)
		return
	}
	f.add(r)
}

func (f *finder) openInner(name, dir string, fi fs.FileInfo) (*repository, error) {
	if fi.Mode()&fs.ModeSymlink != 0 {
		return nil, errors.New(".git is a link")
	}
	git, err := findGit(dir)
	if err != nil {
		return nil, err
	}
	if git.own != git.common {
		return nil, errors.New("it is a linked working tree")
	}
	if !fi.IsDir() && (f.home == "" || !belowModules(f.home, git.own)) {
		return nil, fmt.Errorf("it is in %s, which is no place of submodules of this repository", git.own)
	}
	return openRepository(name, git, !fi.IsDir(), !fi.IsDir())
}

// hollow makes the folder of a submodule go along that git ignores. Without it the submodule would look deleted.
func (f *finder) hollow(name string) {
	if f.folders[name] || !safeName(name) {
		return
	}
	root, err := os.OpenRoot(f.w.dir)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	if fi, err := root.Lstat(filepath.FromSlash(name)); err == nil && fi.IsDir() {
		f.w.hollow = append(f.w.hollow, name)
		f.w.note("the submodule %s is in a folder that git ignores and goes along empty", name)
	}
}
