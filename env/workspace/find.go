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
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// findRepositories reads the repository whose top the directory is, if any, those below it, and the
// ignore rules.
func (w *Workspace) findRepositories(ctx context.Context, host env.FileReader) error {
	f := &finder{w: w, dirs: make(map[string]bool)}
	if err := f.readTop(); err != nil {
		return err
	}
	var attributed []string // directories with attributes
	err := search.Walk(ctx, host, "", search.WalkOptions{}, func(e search.Entry) error {
		switch {
		case e.Err != nil:
		case w.isOmitted(e):
			w.warnOmitted(e.Name)
			if e.Mode.IsDir() {
				return fs.SkipDir
			}
		case e.Mode.IsDir():
			f.dirs[e.Name] = true
			f.readInner(e.Name)
		case path.Base(e.Name) == ignoreFile && e.Mode.IsRegular():
			f.ignoring = append(f.ignoring, path.Dir(e.Name))
		case path.Base(e.Name) == attributesFile && e.Mode.IsRegular():
			attributed = append(attributed, path.Dir(e.Name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.warnConversions(attributed)
	if w.rules, err = w.makeRules(f.outer, f.prefix, f.ignoring); err != nil {
		return err
	}
	for _, r := range w.repos {
		for _, name := range r.submodules() {
			f.addEmptySubmodule(name)
		}
	}
	return nil
}

// finder finds repositories.
type finder struct {
	w *Workspace
	// common is the git directory of the repository that the workspace is in, if any.
	common string
	// dirs are the directories that git does not ignore.
	dirs map[string]bool
	// ignoring are the directories with an ignore file.
	ignoring []string
	// outer are the rules above the workspace, prefix its name in its repository with a trailing
	// slash.
	outer  *gitignore.Stack
	prefix string
}

// readTop reads the repository whose top the workspace is, or only the rules of the repository that
// it is in.
func (f *finder) readTop() error {
	fi, err := os.Stat(filepath.Join(f.w.dir, gitrepo.DirName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.IsDir() && !gitrepo.IsHostTop(f.w.dir) {
		return f.readOuter()
	}
	if err != nil {
		return err
	}
	git, err := gitrepo.FindHost(f.w.dir)
	var foreign *gitrepo.ForeignError
	if errors.As(err, &foreign) {
		f.w.warn("%s is uploaded without its git repository: %v", f.w.dir, foreign)
		f.outer = f.w.repositoryRules(foreign.Dirs)
		return nil
	}
	if err != nil {
		return err
	}
	f.common = git.Common
	f.w.exclude(git.Common)
	f.w.exclude(git.Private)
	r, err := openRepository(".", git, []string{f.w.dir, git.Common})
	if errors.Is(err, errBare) {
		f.w.warn("the git repository in %s is not uploaded: %v", f.w.dir, err)
		f.outer = pushRules(nil, "", f.w.globalRules(nil))
		return nil
	}
	if err != nil {
		return fmt.Errorf("git repository: %w", err)
	}
	if r.foreign != "" {
		f.w.warn("%s is uploaded without its git repository: %v", f.w.dir, r.borrowsError(r.foreign))
	}
	f.add(r)
	return nil
}

// readOuter reads the rules of the repository that the workspace is in, if any.
func (f *finder) readOuter() error {
	up := enclosingRepository(f.w.dir)
	if up == "" {
		f.outer = pushRules(nil, "", f.w.globalRules(nil))
		return nil
	}
	git, err := gitrepo.FindHost(up)
	var foreign *gitrepo.ForeignError
	if errors.As(err, &foreign) {
		git, err = foreign.Dirs, nil // Its rules only leave out files.
	}
	if err != nil {
		f.outer = pushRules(nil, "", f.w.globalRules(nil))
		return nil //nolint:nilerror // A broken repository above does not matter.
	}
	f.common = git.Common
	f.w.warn("the directory is in the git repository %s and is uploaded without its history", up)
	f.outer, f.prefix, err = f.w.outerRules(up, git)
	return err
}

func (f *finder) add(r *repository) {
	f.w.repos = append(f.w.repos, r)
	in := path.Join(f.w.dir, r.name)
	if r.format.promisor {
		f.w.warn("the git repository in %s is a partial clone: objects that it has not fetched are "+
			"missing in the environment", in)
	}
	if r.rebasing {
		f.w.warn("a rebase is in progress in the git repository in %s; in the environment HEAD is "+
			"detached and no rebase is in progress", in)
	}
}

// warnConversions adds a warning for each repository whose settings or attributes convert files
// between index and working tree. Dirs are the directories with an attributes file.
func (w *Workspace) warnConversions(dirs []string) {
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
	for _, dir := range dirs {
		name := filepath.Join(w.dir, filepath.FromSlash(dir), attributesFile)
		content, err := gitrepo.ReadHostFile(name)
		if r := w.repositoryOf(dir); err == nil && r != nil {
			readAttributes(kinds[r], content)
		}
	}
	for _, r := range w.repos {
		in := path.Join(w.dir, r.name)
		switch {
		case kinds[r]["filter"]:
			w.warn("the git repository in %s has filters, which are not uploaded: git reports filtered "+
				"files as modified, and on the host git apply may refuse a patch for them", in)
		case len(kinds[r]) > 0:
			w.warn("the git repository in %s converts files (%s): on the host git apply may refuse a "+
				"patch for them", in, strings.Join(slices.Sorted(maps.Keys(kinds[r])), ", "))
		}
	}
}

// repositoryOf returns the repository of a directory, or nil.
func (w *Workspace) repositoryOf(dir string) *repository {
	for {
		for _, r := range w.repos {
			if r.name == dir {
				return r
			}
		}
		if dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

const attributesFile = ".gitattributes"

// readAttributes adds the kinds of conversion in an attributes file to kinds.
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

// readInner reads the repository whose top a directory of the workspace is, if any. It is not
// trusted: it may refer only to itself and to the directory for submodules of the outer repository.
func (f *finder) readInner(name string) {
	dir := filepath.Join(f.w.dir, filepath.FromSlash(name))
	fi, err := os.Lstat(filepath.Join(dir, gitrepo.DirName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return // The snapshot reports an unreadable directory.
	}
	if err == nil && fi.IsDir() && !gitrepo.IsHostTop(dir) {
		return
	}
	var r *repository
	if err == nil {
		r, err = f.openInner(name, dir, fi)
	}
	if err != nil {
		f.w.warn("%s is uploaded without its git repository: %v", name, err)
		return
	}
	f.add(r)
}

func (f *finder) openInner(name, dir string, fi fs.FileInfo) (*repository, error) {
	if fi.Mode()&fs.ModeSymlink != 0 {
		return nil, errors.New(".git is a symlink")
	}
	git, err := gitrepo.FindHost(dir)
	if err != nil {
		return nil, err
	}
	f.w.exclude(git.Common)
	f.w.exclude(git.Private)
	if git.Private != git.Common {
		return nil, errors.New("it is a linked working tree")
	}
	if git.Linked && (f.common == "" || !belowModules(f.common, git.Private)) {
		return nil, fmt.Errorf("it is in %s, which is not the directory for submodules of this "+
			"repository", git.Private)
	}
	var lenders []string
	if git.Linked {
		lenders = []string{f.w.dir, f.common}
	}
	r, err := openRepository(name, git, lenders)
	if err == nil && r.foreign != "" {
		err = r.borrowsError(r.foreign)
	}
	return r, err
}

// addEmptySubmodule adds the directory of a submodule that git ignores, without which git would
// report the submodule as deleted.
func (f *finder) addEmptySubmodule(name string) {
	if f.dirs[name] || !safeName(name) {
		return
	}
	root, err := os.OpenRoot(f.w.dir)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	if fi, err := root.Lstat(filepath.FromSlash(name)); err == nil && fi.IsDir() {
		f.w.emptySubmodules = append(f.w.emptySubmodules, name)
		f.w.warn("the submodule %s is in a directory that git ignores and is uploaded empty", name)
	}
}
