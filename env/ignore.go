package env

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
)

const (
	gitDir     = ".git"
	ignoreFile = ".gitignore"
	// excludeFile is where git keeps, in its own folder, the rules of one repository that are not part of its content.
	excludeFile = "info/exclude"
	// maxIgnoreFile is the size of the largest ignore file that is read, in bytes.
	maxIgnoreFile = 1 << 20
)

// outerRules finds the rules that stand above root, which lists entries.
func (w *walker) outerRules(ctx context.Context, entries []fs.DirEntry) (*gitignore.Stack, error) {
	root := w.absolute()
	if root == "" {
		return nil, nil
	}
	if has(entries, gitDir) != nil {
		var err error
		if w.git, err = findGit(ctx, w.e, w.root); err != nil || w.git != nil {
			return nil, err
		}
	}
	dir, git, err := w.repository(ctx, root)
	if err != nil || git == nil {
		return nil, err
	}
	below := strings.TrimPrefix(strings.TrimPrefix(root, dir), "/")
	w.prefix = below + "/"

	// Go down from the top of the repository to the folder that root is in. Seen from root, up leads to dir.
	up := strings.Repeat("../", strings.Count(w.prefix, "/"))
	rules, err := w.pushExclude(ctx, "", git, up+gitDir)
	if err != nil {
		return nil, err
	}
	at := ""
	for element := range strings.SplitSeq(below, "/") {
		entries, err := w.e.ReadDir(ctx, dir)
		if endsSearch(ctx, err) {
			return nil, err
		}
		// A folder may be closed to listing and yet let its files be read.
		if d := has(entries, ignoreFile); err != nil || d != nil && d.Type().IsRegular() {
			if rules, err = w.push(ctx, rules, at, join(dir, ignoreFile), up+ignoreFile); err != nil {
				return nil, err
			}
		}
		dir, at, up = join(dir, element), join(at, element), strings.TrimPrefix(up, "../")
		if rules.Ignored(at, true) {
			return nil, nil
		}
	}
	return rules, nil
}

// repository finds the nearest folder above dir that is the top of a repository, and what git has there; nil if there is
// none.
func (w *walker) repository(ctx context.Context, dir string) (top string, git *gitDirs, err error) {
	for top = parentOf(dir); top != ""; top = parentOf(top) {
		if git, err = findGit(ctx, w.e, top); err != nil || git != nil {
			return top, git, err
		}
	}
	return "", nil, nil
}

// innerRules adds the rules of the folder name, which lists entries.
func (w *walker) innerRules(ctx context.Context, name string, entries []fs.DirEntry, rules *gitignore.Stack) (*gitignore.Stack, error) {
	at := strings.TrimSuffix(w.prefix+name, "/")
	if has(entries, gitDir) != nil {
		git, err := w.git, error(nil)
		switch {
		case name != "":
			git, err = findGit(ctx, w.e, join(w.root, name))
		case git == nil:
			git, err = findGit(ctx, w.e, w.root)
		}
		if git != nil {
			rules, err = w.pushExclude(ctx, at, git, join(name, gitDir))
		}
		if err != nil {
			return nil, err
		}
	}
	// Like git, do not follow a link: it could lead anywhere.
	if d := has(entries, ignoreFile); d != nil && d.Type().IsRegular() {
		name := join(name, ignoreFile)
		return w.push(ctx, rules, at, join(w.root, name), name)
	}
	return rules, nil
}

// pushExclude returns the rules that git keeps for a repository whose topmost folder is at. Seen from root, its folder of
// git is called shown.
func (w *walker) pushExclude(ctx context.Context, at string, git *gitDirs, shown string) (*gitignore.Stack, error) {
	if git.own != git.common || git.linked {
		shown = git.common
	}
	return w.push(ctx, nil, at, join(git.common, excludeFile), join(shown, excludeFile))
}

// push adds the rules of the ignore file name, which hold in the folder at. If it cannot be read, shown is the name to
// report it by.
func (w *walker) push(ctx context.Context, rules *gitignore.Stack, at, name, shown string) (*gitignore.Stack, error) {
	content, err := ReadFile(ctx, w.e, name, maxIgnoreFile)
	switch {
	case err == nil:
		return rules.Push(at, gitignore.Parse(content)), nil
	case errors.Is(err, fs.ErrNotExist):
		return rules, nil
	case endsSearch(ctx, err):
		return nil, err
	}
	if err := w.fn(Entry{Name: shown, Err: err}, nil); err != nil && !errors.Is(err, fs.SkipDir) {
		return nil, err
	}
	return rules, nil
}

// absolute is the clean absolute name of root, or "" if it cannot be known.
func (w *walker) absolute() string {
	if strings.HasPrefix(w.root, "/") {
		return path.Clean(w.root)
	}
	e, ok := w.e.(interface{ Info() Info })
	if !ok {
		return ""
	}
	info := e.Info()
	if info.OS == "windows" && hasDrive(w.root) {
		return path.Clean(w.root)
	}
	return path.Join(info.WorkDir, w.root)
}

// hasDrive tells whether name starts as C:/ does.
func hasDrive(name string) bool {
	return len(name) > 2 && name[0] != '/' && name[1:3] == ":/"
}

// parentOf is the folder above a clean absolute one; "" above a topmost one.
func parentOf(dir string) string {
	parent := dir[:strings.LastIndexByte(dir, '/')+1]
	switch {
	case parent == dir:
		return ""
	case parent == "/", len(parent) == 3 && hasDrive(parent):
		return parent
	}
	return strings.TrimSuffix(parent, "/")
}

// has finds an entry by name; nil if there is none.
func has(entries []fs.DirEntry, name string) fs.DirEntry {
	for _, d := range entries {
		if d.Name() == name {
			return d
		}
	}
	return nil
}
