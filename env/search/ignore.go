package search

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

const (
	ignoreFile = ".gitignore"
	// excludeFile is the file in a git directory with rules that are not part of the content.
	excludeFile = "info/exclude"
	// maxIgnoreFile bounds the size of an ignore file, in bytes.
	maxIgnoreFile = 1 << 20
)

// outerRules returns the rules of the directories above root, and sets w.prefix and w.git. The
// entries are those of root.
func (w *walker) outerRules(ctx context.Context, entries []fs.DirEntry) (*gitignore.Stack, error) {
	root := pathname.Absolute(w.e, w.root)
	if root == "" {
		return nil, nil
	}
	if find(entries, gitrepo.DirName) != nil {
		var err error
		if w.git, err = gitrepo.Find(ctx, w.e, w.root); err != nil || w.git != nil {
			return nil, err
		}
	}
	dir, git, err := gitrepo.FindAbove(ctx, w.e, root)
	if err != nil || git == nil {
		return nil, err
	}
	below := strings.TrimPrefix(strings.TrimPrefix(root, dir), "/")
	w.prefix = below + "/"

	// Go down from the top of the repository to the parent of root. Up is the path from root to dir.
	up := strings.Repeat("../", strings.Count(w.prefix, "/"))
	rules, err := w.pushExclude(ctx, "", git, up+gitrepo.DirName)
	if err != nil {
		return nil, err
	}
	at := ""
	for element := range strings.SplitSeq(below, "/") {
		entries, err := w.e.ReadDir(ctx, dir)
		if fatal := env.FatalError(ctx, err); fatal != nil {
			return nil, fatal
		}
		// A directory that cannot be listed may have readable files.
		if d := find(entries, ignoreFile); err != nil || d != nil && d.Type().IsRegular() {
			name := pathname.Join(dir, ignoreFile)
			if rules, err = w.push(ctx, rules, at, name, up+ignoreFile); err != nil {
				return nil, err
			}
		}
		dir, at = pathname.Join(dir, element), pathname.Join(at, element)
		up = strings.TrimPrefix(up, "../")
		if rules.Ignored(at, true) {
			return nil, nil
		}
	}
	return rules, nil
}

// innerRules adds the rules of the directory name. The entries are those of the directory.
func (w *walker) innerRules(
	ctx context.Context, name string, entries []fs.DirEntry, rules *gitignore.Stack,
) (*gitignore.Stack, error) {
	at := strings.TrimSuffix(w.prefix+name, "/")
	if find(entries, gitrepo.DirName) != nil {
		git, err := w.git, error(nil)
		switch {
		case name != "":
			git, err = gitrepo.Find(ctx, w.e, pathname.Join(w.root, name))
		case git == nil:
			git, err = gitrepo.Find(ctx, w.e, w.root)
		}
		if git != nil {
			rules, err = w.pushExclude(ctx, at, git, pathname.Join(name, gitrepo.DirName))
		}
		if err != nil {
			return nil, err
		}
	}
	// Like git, do not follow a symlink.
	if d := find(entries, ignoreFile); d != nil && d.Type().IsRegular() {
		name := pathname.Join(name, ignoreFile)
		return w.push(ctx, rules, at, pathname.Join(w.root, name), name)
	}
	return rules, nil
}

// pushExclude returns the rules in the git directory of the repository whose top is at. Shown is
// the name of the git directory relative to root.
func (w *walker) pushExclude(
	ctx context.Context, at string, git *gitrepo.Dirs, shown string,
) (*gitignore.Stack, error) {
	if git.Private != git.Common || git.Linked {
		shown = git.Common
	}
	return w.push(ctx, nil, at,
		pathname.Join(git.Common, excludeFile), pathname.Join(shown, excludeFile))
}

// push adds the rules of the ignore file name for the directory at. Shown is the name in the report
// of an unreadable file.
func (w *walker) push(
	ctx context.Context, rules *gitignore.Stack, at, name, shown string,
) (*gitignore.Stack, error) {
	content, err := env.ReadFile(ctx, w.e, name, maxIgnoreFile)
	switch {
	case err == nil:
		return rules.Push(at, gitignore.Parse(content)), nil
	case errors.Is(err, fs.ErrNotExist):
		return rules, nil
	case env.FatalError(ctx, err) != nil:
		return nil, env.FatalError(ctx, err)
	}
	if err := w.fn(Entry{Name: shown, Err: err}, nil); err != nil && !errors.Is(err, fs.SkipDir) {
		return nil, err
	}
	return rules, nil
}

// find returns the entry with a name, or nil.
func find(entries []fs.DirEntry, name string) fs.DirEntry {
	for _, d := range entries {
		if d.Name() == name {
			return d
		}
	}
	return nil
}
