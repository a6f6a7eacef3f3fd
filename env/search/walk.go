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

// Entry is a file or folder that Walk or Glob found.
type Entry struct {
	// Name is slash-separated and relative to the folder walked; never ".".
	Name string
	// Mode holds the type bits; the permission bits only where Size and ModTime are filled in.
	Mode fs.FileMode
	// Size in bytes and ModTime are those of the entry itself, for a link those of the link. Glob
	// always fills them in, Walk does if WalkOptions.Details is set.
	Size    int64
	ModTime time.Time
	// Err is why something of this entry could not be read: the listing of a folder, the content of an
	// ignore file, the details. Glob never returns such an entry.
	Err error
}

// WalkOptions are options of Walk.
type WalkOptions struct {
	// NoIgnore walks everything: files that .gitignore excludes, and folders named .git.
	NoIgnore bool
	// MaxDepth is how many levels are walked; 1 means only the entries of root itself, 0 everything.
	MaxDepth int
	// Details fills in Size, ModTime and the permission bits of each entry, which may cost a look at
	// each file.
	Details bool
}

// Walk calls fn for each file and folder below root, in the order of fs.WalkDir: by name within
// each folder, a folder before what is in it. Root itself, which may be empty for the working
// directory, is not reported. Links are reported but not followed, except for root. Hidden files
// are walked like others.
//
// Unless opts.NoIgnore is set, what git ignores is left out: the entries named .git, and what
// .gitignore files and git's info/exclude say, those in root and below and those of the folders
// above root up to the top of a repository. That is a folder with a .git that has a HEAD, or is a
// file that points elsewhere; it starts afresh. If root is itself ignored, only ignore files in it
// and below count. The folders above root are found by name, without resolving links; for a
// relative root that takes an e with a method Info.
//
// If fn returns fs.SkipDir for a folder, the folder is skipped, for something else the rest of its
// folder; fs.SkipAll ends the walk without an error, any other error ends it with that error.
//
// A folder that cannot be read is reported a second time, with Err, and the walk goes on; likewise
// an ignore file, which may stand above root and then has a name that starts with "..". What
// vanishes during the walk is left out. Walk returns an error if root cannot be read, if ctx ends,
// and if the environment is closed or gone.
func Walk(
	ctx context.Context, e env.FileReader, root string, opts WalkOptions, fn func(Entry) error,
) error {
	if w, ok := e.(Searcher); ok {
		return w.Walk(ctx, root, opts, fn)
	}
	return walk(ctx, e, root, opts, func(entry Entry, _ fs.DirEntry) error { return fn(entry) })
}

// walk is Walk without [Searcher]. It calls fn with the directory entry as well, which gives the
// details.
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
	// empty. Names in the rules are relative to that top.
	prefix string
	// git are the git directories of a repository whose top is root.
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

// entry reports one file, or one folder with what is in it. It returns fs.SkipDir if the rest of
// the folder around it is to be skipped.
func (w *walker) entry(
	ctx context.Context, name string, depth int, d fs.DirEntry, rules *gitignore.Stack,
) error {
	entry := Entry{Name: name, Mode: d.Type()}
	if w.opts.Details {
		switch err := entry.fill(d); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case env.IsFatal(ctx, err):
			return err
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
	case env.IsFatal(ctx, err):
		return err
	}
	entry.Err = err
	if err := w.fn(entry, d); !errors.Is(err, fs.SkipDir) {
		return err
	}
	return nil
}

// fill takes over the details of d.
func (e *Entry) fill(d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	e.Mode, e.Size, e.ModTime = info.Mode(), info.Size(), info.ModTime()
	return nil
}
