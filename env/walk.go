package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
)

// Entry is a file or folder that Walk or Glob found.
type Entry struct {
	// Name is slash-separated and relative to the folder walked; never ".".
	Name string
	// Mode holds the type bits; the permission bits only where Size and ModTime are filled in.
	Mode fs.FileMode
	// Size in bytes and ModTime are those of the entry itself, for a link those of the link. Glob always fills them in,
	// Walk does if WalkOptions.Details is set.
	Size    int64
	ModTime time.Time
	// Err is why something of this entry could not be read: the listing of a folder, the content of an ignore file,
	// the details. Glob never returns such an entry.
	Err error
}

// WalkOptions are options of Walk.
type WalkOptions struct {
	// NoIgnore walks everything: files that .gitignore excludes, and folders named .git.
	NoIgnore bool
	// MaxDepth is how many levels are walked; 1 means only the entries of root itself, 0 everything.
	MaxDepth int
	// Details fills in Size, ModTime and the permission bits of each entry, which may cost a look at each file.
	Details bool
}

// Walker is implemented by environments that can walk a tree where it is. Callers use [Walk], which means the same for every
// environment.
type Walker interface {
	Walk(ctx context.Context, root string, opts WalkOptions, fn func(Entry) error) error
}

// UnreadableError comes with the results of a search that is complete but for files or folders that could not be read.
// It is the outcome of Glob and Grep where a part of the tree is closed to the user, not a failure of the search.
type UnreadableError struct {
	// Count is how many files and folders could not be read.
	Count int
	// First is the first of the errors.
	First error
}

func (e *UnreadableError) Error() string {
	if e.Count == 1 {
		return e.First.Error()
	}
	return fmt.Sprintf("%v (and %d more could not be read)", e.First, e.Count-1)
}

// Unwrap returns the first error.
func (e *UnreadableError) Unwrap() error { return e.First }

// Walk calls fn for each file and folder below root, in the order of fs.WalkDir: by name within each folder, a folder
// before what is in it. Root itself, which may be empty for the working directory, is not reported. Links are reported
// but not followed, except for root. Hidden files are walked like others.
//
// Unless opts.NoIgnore is set, what git ignores is left out: the entries named .git, and what .gitignore files and git's
// info/exclude say, those in root and below and those of the folders above root up to the top of a repository. That is a
// folder with a .git that has a HEAD, or is a file that points elsewhere; it starts afresh. If root is itself ignored, only
// ignore files in it and below count. The folders above root are found by name, without resolving links; for a relative
// root that takes an e with a method Info.
//
// If fn returns fs.SkipDir for a folder, the folder is skipped, for something else the rest of its folder; fs.SkipAll
// ends the walk without an error, any other error ends it with that error.
//
// A folder that cannot be read is reported a second time, with Err, and the walk goes on; likewise an ignore file, which
// may stand above root and then has a name that starts with "..". What vanishes during the walk is left out. Walk
// returns an error if root cannot be read, if ctx ends, and if the environment is closed or gone.
func Walk(ctx context.Context, e FileReader, root string, opts WalkOptions, fn func(Entry) error) error {
	if w, ok := e.(Walker); ok {
		return w.Walk(ctx, root, opts, fn)
	}
	return walk(ctx, e, root, opts, func(entry Entry, _ fs.DirEntry) error { return fn(entry) })
}

// walk is Walk without [Walker]. It calls fn with the directory entry as well, which gives the details.
func walk(ctx context.Context, e FileReader, root string, opts WalkOptions, fn walkFunc) error {
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
	e    FileReader
	root string
	opts WalkOptions
	fn   walkFunc
	// prefix is the name of root relative to the top of its repository, with a trailing slash, or
	// empty. Names in the rules are relative to that top.
	prefix string
	// git are the git directories of a repository whose top is root.
	git *gitDirs
}

// dir reports the entries of the directory name. Outer are the rules of its parent.
func (w *walker) dir(ctx context.Context, name string, depth int, entries []fs.DirEntry, outer *gitignore.Stack) error {
	rules := outer
	if !w.opts.NoIgnore {
		var err error
		if rules, err = w.innerRules(ctx, name, entries, outer); err != nil {
			return err
		}
	}
	for _, d := range entries {
		if ctx.Err() != nil {
			return &fs.PathError{Op: "walk", Path: w.root, Err: ended(ctx)}
		}
		below := join(name, d.Name())
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
	return !w.opts.NoIgnore && (d.Name() == gitDir || rules.Ignored(w.prefix+name, d.IsDir()))
}

// entry reports one file, or one folder with what is in it. It returns fs.SkipDir if the rest of the folder around it
// is to be skipped.
func (w *walker) entry(ctx context.Context, name string, depth int, d fs.DirEntry, rules *gitignore.Stack) error {
	entry := Entry{Name: name, Mode: d.Type()}
	if w.opts.Details {
		switch err := entry.fill(d); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case endsSearch(ctx, err):
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
	entries, err := w.e.ReadDir(ctx, join(w.root, name))
	switch {
	case err == nil:
		return w.dir(ctx, name, depth+1, entries, rules)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case endsSearch(ctx, err):
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

// endsSearch tells whether after err there is no point in going on, in contrast to one file that cannot be read.
func endsSearch(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, fs.ErrClosed) || errors.Is(err, ErrGone) || errors.Is(err, ErrUnknownOutcome))
}

// join makes a name from a folder and a name below it. It keeps "..", which path.Join resolves as if there were no links.
func join(dir, name string) string {
	if dir == "" || dir == "." {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}
