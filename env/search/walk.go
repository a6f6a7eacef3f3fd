package search

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

// Entry is a file or directory that Walk or Glob found.
type Entry struct {
	// Name is slash-separated and relative to the root of the search; never ".".
	Name string
	// Mode has the type bits; the permission bits only if Size and ModTime are set.
	Mode fs.FileMode
	// Size in bytes and ModTime are those of the entry itself, not of the target of a symlink. Glob
	// always sets them, Walk if WalkOptions.Details is set.
	Size    int64
	ModTime time.Time
	// Stamp, unless it is zero, is equal as long as neither the content nor the mode of the file of
	// this name changes, so far as the change times of the system show: a program that has mapped the
	// file into its memory may write for a while without a new one. It is zero for a file that was
	// changed less than two seconds ago, on systems other than Linux, and without details.
	Stamp uint64
	// Err is the error of listing a directory, reading an ignore file, or reading the details. Glob
	// never returns such an entry.
	Err error
}

// WalkOptions are options of Walk.
type WalkOptions struct {
	// NoIgnore includes files that .gitignore excludes, and directories named .git.
	NoIgnore bool
	// MaxDepth bounds the levels of the walk: 1 means only the entries of root itself, 0 all.
	MaxDepth int
	// Details sets Size, ModTime, Stamp and the permission bits of each entry, which may cost a system
	// call per file.
	Details bool
}

// Walk calls fn for each file and directory below root, in the order of fs.WalkDir: by name within
// each directory, a directory before its entries. An empty root means the working directory; it is
// not reported itself. Symlinks are reported but not followed, except root. Hidden files are
// included.
//
// Unless opts.NoIgnore is set, Walk leaves out the files that git ignores: entries named .git, and
// those that .gitignore files and git's info/exclude exclude. It reads them in root and below, and
// in the directories above root up to the top of a repository, which is a directory with a .git
// that has a HEAD, or is a file that points to a git directory. The top of another repository
// starts without rules. If root itself is ignored, only ignore files in it and below count. The
// directories above root are those in its path, with symlinks not resolved; for a relative root e
// needs a method Info.
//
// If fn returns fs.SkipDir for a directory, Walk skips the directory, for a file the rest of its
// directory; fs.SkipAll ends the walk without an error, any other error ends it with that error.
//
// Walk reports an unreadable directory a second time, with Err, and continues; likewise an ignore
// file, whose name starts with ".." if it is above root. It leaves out files that vanish meanwhile.
// It returns an error if root cannot be read, if ctx ends, and if the environment is closed or
// gone.
func Walk(
	ctx context.Context, e env.FileReader, root string, opts WalkOptions, fn func(Entry) error,
) error {
	if w, ok := e.(Searcher); ok {
		return w.Walk(ctx, root, opts, fn)
	}
	return walk(ctx, e, root, opts, func(entry Entry, _ fs.DirEntry) error { return fn(entry) })
}

// walk is Walk without [Searcher]. It passes the directory entry to fn too, for the details.
func walk(ctx context.Context, e env.FileReader, root string, opts WalkOptions, fn walkFunc) error {
	w := &walker{e: e, root: cmp.Or(root, "."), opts: opts, fn: fn}
	entries, err := e.ReadDir(ctx, w.root)
	if err != nil {
		return err
	}
	var rules *gitignore.Stack
	if !opts.NoIgnore {
		rules, err = w.outerRules(ctx, entries)
	}
	if err == nil {
		err = w.dir(ctx, "", 1, entries, rules)
	}
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

type walkFunc func(Entry, fs.DirEntry) error

// walker is one walk. Names are relative to root; "" is root itself.
type walker struct {
	e    env.FileReader
	root string
	opts WalkOptions
	fn   walkFunc
	// prefix is the name of root relative to the top of its repository, with a trailing slash, or
	// empty. The rules have names relative to that top.
	prefix string
	// git are the git directories if root is the top of a repository.
	git *gitrepo.Dirs
}

// dir reports the entries of the directory name. Outer are the rules of its parent.
func (w *walker) dir(
	ctx context.Context, name string, depth int, entries []fs.DirEntry, outer *gitignore.Stack,
) error {
	rules := outer
	if !w.opts.NoIgnore {
		var err error
		if rules, err = w.innerRules(ctx, name, entries, outer); err != nil {
			return err
		}
	}
	for _, d := range entries {
		if ctx.Err() != nil {
			return &fs.PathError{Op: "walk", Path: w.root, Err: env.ContextError(ctx)}
		}
		below := pathname.Join(name, d.Name())
		if w.ignores(below, d, rules) {
			continue
		}
		err := w.entry(ctx, below, depth, d, rules)
		if errors.Is(err, fs.SkipDir) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ignores reports whether the rules of its directory exclude the entry d, called name.
func (w *walker) ignores(name string, d fs.DirEntry, rules *gitignore.Stack) bool {
	return !w.opts.NoIgnore && (d.Name() == gitrepo.DirName || rules.Ignored(w.prefix+name, d.IsDir()))
}

// entry reports one file, or one directory with its tree. It returns fs.SkipDir to skip the rest of
// the parent directory.
func (w *walker) entry(
	ctx context.Context, name string, depth int, d fs.DirEntry, rules *gitignore.Stack,
) error {
	entry := Entry{Name: name, Mode: d.Type()}
	if w.opts.Details {
		switch err := entry.fill(d); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case env.FatalError(ctx, err) != nil:
			return env.FatalError(ctx, err)
		default:
			entry.Err = err
		}
	}
	err := w.fn(entry, d)
	if !d.IsDir() {
		return err
	}
	if errors.Is(err, fs.SkipDir) {
		return nil
	}
	if err != nil || depth == w.opts.MaxDepth {
		return err
	}
	entries, err := w.e.ReadDir(ctx, pathname.Join(w.root, name))
	switch {
	case err == nil:
		return w.dir(ctx, name, depth+1, entries, rules)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case env.FatalError(ctx, err) != nil:
		return env.FatalError(ctx, err)
	}
	entry.Err = err
	if err := w.fn(entry, d); !errors.Is(err, fs.SkipDir) {
		return err
	}
	return nil
}

// fill sets the details.
func (e *Entry) fill(d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	e.Mode, e.Size, e.ModTime = info.Mode(), info.Size(), info.ModTime()
	e.Stamp = stamp(info)
	return nil
}
