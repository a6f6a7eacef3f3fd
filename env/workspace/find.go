package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// findRepositories reads the repository that the folder is the top of, if it is, and those in it.
func (w *Workspace) findRepositories(ctx context.Context, host env.FileReader) error {
	f := &finder{w: w, folders: make(map[string]bool)}
	if err := f.top(); err != nil {
		return err
	}
	var attributed []string // folders with attributes
	err := search.Walk(ctx, host, "", search.WalkOptions{}, func(e search.Entry) error {
		switch {
		case e.Err != nil:
		case w.isOmitted(e):
			w.noteOmitted(e.Name)
			if e.Mode.IsDir() {
				return fs.SkipDir
			}
		case e.Mode.IsDir():
			f.folders[e.Name] = true
			f.inner(e.Name)
		case path.Base(e.Name) == ignoreFile && e.Mode.IsRegular():
			f.ruled = append(f.ruled, path.Dir(e.Name))
		case path.Base(e.Name) == attributesFile && e.Mode.IsRegular():
			attributed = append(attributed, path.Dir(e.Name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.converted(attributed)
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
	// outer are the rules above the workspace, prefix its name in its repository with a slash at its
	// end.
	outer  *gitignore.Stack
	prefix string
}

// top reads the repository that the workspace is the top of.
func (f *finder) top() error {
	fi, err := os.Stat(filepath.Join(f.w.dir, gitName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.IsDir() && !isTop(f.w.dir) {
		return f.inside()
	}
	if err != nil {
		return err
	}
	git, err := findGit(f.w.dir)
	if err != nil {
		return err
	}
	f.home = git.common
	f.w.hide(git.common)
	f.w.hide(git.own)
	r, err := openRepository(".", git, !fi.IsDir(), true)
	if errors.Is(err, errBare) {
		f.w.note("the git repository in %s does not go along: %v", f.w.dir, err)
		f.outer = pushRules(nil, "", f.w.globalRules(nil))
		return nil
	}
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
		f.outer = pushRules(nil, "", f.w.globalRules(nil))
		return nil
	}
	git, err := findGit(up)
	if err != nil {
		f.outer = pushRules(nil, "", f.w.globalRules(nil))
		return nil //nolint:nilerror // What is above is of no matter if it is no repository.
	}
	f.home = git.common
	f.w.note("the folder is inside the git repository %s and goes along without its history", up)
	f.outer, f.prefix, err = f.w.outerRules(up, git)
	return err
}

func (f *finder) add(r *repository) {
	f.w.repos = append(f.w.repos, r)
	in := path.Join(f.w.dir, r.name)
	if r.format.promisor {
		f.w.note("the git repository in %s is a partial clone: what it has not fetched cannot be had "+
			"in the environment", in)
	}
	if r.rebasing {
		f.w.note("a rebase is in progress in the git repository in %s; in the environment git knows "+
			"nothing of it and sees a detached HEAD", in)
	}
}

// converted notes which repositories have files that are not in the working tree as they are in the
// index, by settings and by the attributes that stand in the folders with the given names.
func (w *Workspace) converted(folders []string) {
	kinds := make(map[*repository]map[string]bool)
	for _, r := range w.repos {
		kinds[r] = make(map[string]bool)
		readAttributes(kinds[r], string(r.file("info/attributes")))
		if r.format.filters {
			kinds[r]["filter"] = true
		}
		if r.format.converts {
			kinds[r]["autocrlf"] = true
		}
	}
	for _, folder := range folders {
		content, err := readHostFile(filepath.Join(w.dir, filepath.FromSlash(folder), attributesFile))
		if r := w.repositoryOf(folder); err == nil && r != nil {
			readAttributes(kinds[r], content)
		}
	}
	for _, r := range w.repos {
		in := path.Join(w.dir, r.name)
		switch {
		case kinds[r]["filter"]:
			w.note("the git repository in %s has filters, which do not go along: files that pass through "+
				"them look modified to git, "+
				"and on the host git apply may refuse a patch for them, unlike --apply", in)
		case len(kinds[r]) > 0:
			w.note("the git repository in %s converts files (%s): on the host git apply may refuse a "+
				"patch for them, unlike --apply",
				in, strings.Join(slices.Sorted(maps.Keys(kinds[r])), ", "))
		}
	}
}

// repositoryOf returns the repository that a folder belongs to; nil if there is none.
func (w *Workspace) repositoryOf(folder string) *repository {
	for {
		for _, r := range w.repos {
			if r.name == folder {
				return r
			}
		}
		if folder == "." {
			return nil
		}
		folder = path.Dir(folder)
	}
}

const attributesFile = ".gitattributes"

// readAttributes adds the kinds of conversion that attributes name.
func readAttributes(kinds map[string]bool, attributes string) {
	for line := range strings.Lines(attributes) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(line, "#") {
			continue
		}
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			if name == "ident" || value != "" && (name == "filter" || name == "working-tree-encoding") ||
				field == "eol=crlf" {
				kinds[name] = true
			}
		}
	}
}

// inner reads the repository that a folder of the workspace is the top of, if it is. Such a
// repository may be of unknown origin: it may not lead to places other than itself and where git
// keeps submodules.
func (f *finder) inner(name string) {
	dir := filepath.Join(f.w.dir, filepath.FromSlash(name))
	fi, err := os.Lstat(filepath.Join(dir, gitName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return // A folder that cannot be read is named with all that do not go along.
	}
	if err == nil && fi.IsDir() && !isTop(dir) {
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
	f.w.hide(git.common)
	f.w.hide(git.own)
	if git.own != git.common {
		return nil, errors.New("it is a linked working tree")
	}
	if !fi.IsDir() && (f.home == "" || !belowModules(f.home, git.own)) {
		return nil, fmt.Errorf("it is in %s, which is no place of submodules of this repository", git.own)
	}
	return openRepository(name, git, !fi.IsDir(), !fi.IsDir())
}

// hollow makes the folder of a submodule go along that git ignores. Without it the submodule would
// look deleted.
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
