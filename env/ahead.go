package env

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
)

const (
	// aheadAtOnce is how many folders a walk lists in one request at most, and aheadFew how many while aheadMany entries wait
	// for the walk to come to them. This bounds the memory of a walk to what that many folders hold on each level.
	aheadAtOnce, aheadFew, aheadMany = 1000, 200, 100_000
)

// aheadFiles are the files that a walk needs from each folder.
var aheadFiles = []string{ignoreFile, gitDir, gitDir + "/HEAD", gitDir + "/" + excludeFile}

// ahead lists folders before a walk comes to them. When the walk needs one that is not listed, all others that are known
// and not listed are, too, the next ones first: it takes about as many requests as the tree has levels. Folders that
// are ignored are not listed.
type ahead struct {
	w     *walker
	trees TreeReader
	known *known
	// wanted, if set, tells of a folder whether the walk goes into it.
	wanted func(name string) bool
	// open are the folders in which the walk is, from root on.
	open []*branch
	held int // the entries that wait for the walk
}

// branch is a folder and what is known of the folders in it.
type branch struct {
	name    string
	outer   *gitignore.Stack // the rules of the folder around it
	listed  bool
	entries []fs.DirEntry
	err     error
	// looked says that inner, the rules in it, and below are known.
	looked bool
	inner  *gitignore.Stack
	below  []*branch // the folders in it to which the walk has not come
}

// newAhead returns what lists ahead for w; nil where that is not possible.
func newAhead(w *walker, wanted func(name string) bool) *ahead {
	trees, ok := w.place.(TreeReader)
	if !ok {
		return nil
	}
	return &ahead{w: w, trees: trees, wanted: wanted, known: &known{
		inner: w.place, files: make(map[string]FileContent), dirs: make(map[string]Folder),
	}}
}

// files are the files to read from folders.
func (a *ahead) files() []string {
	if a.w.opts.NoIgnore {
		return nil
	}
	return aheadFiles
}

// root lists the folder that is walked.
func (a *ahead) root(ctx context.Context) ([]fs.DirEntry, error) {
	a.open = []*branch{{}}
	folders, err := a.trees.ReadDirs(ctx, []string{a.w.root}, a.files())
	switch {
	case endsSearch(ctx, err):
		return nil, pathError("readdir", a.w.root, err)
	case err != nil:
		return a.w.place.ReadDir(ctx, a.w.root)
	}
	a.known.add(a.w.root, folders[0], a.files())
	return folders[0].Entries, folders[0].Err
}

// repositories learns where above the absolute folder dir there may be a repository.
func (a *ahead) repositories(ctx context.Context, dir string) error {
	var names []string
	for top := parentOf(dir); top != ""; top = parentOf(top) {
		git := join(top, gitDir)
		names = append(names, git, join(git, "HEAD"), join(git, excludeFile))
	}
	contents, err := a.trees.ReadFiles(ctx, names, maxIgnoreFile)
	for _, c := range contents {
		a.known.files[c.Name] = c
	}
	if !endsSearch(ctx, err) {
		return nil
	}
	return pathError("walk", a.w.root, err)
}

// outer lists the folder top and those on the way from there to the last element of below.
func (a *ahead) outer(ctx context.Context, top, below string) error {
	names := []string{top}
	elements := strings.Split(below, "/")
	for _, element := range elements[:len(elements)-1] {
		names = append(names, join(names[len(names)-1], element))
	}
	with := []string{ignoreFile}
	folders, err := a.trees.ReadDirs(ctx, names, with)
	for i, f := range folders {
		a.known.dirs[names[i]] = f
		a.known.add(names[i], f, with)
	}
	if !endsSearch(ctx, err) {
		return nil
	}
	return pathError("walk", a.w.root, err)
}

// list lists the folder name, to which the walk has come.
func (a *ahead) list(ctx context.Context, name string) ([]fs.DirEntry, error) {
	depth := strings.Count(name, "/") + 1
	for _, b := range a.open[depth:] {
		a.forget(b)
	}
	parent := a.open[depth-1]
	at := slices.IndexFunc(parent.below, func(b *branch) bool { return b.name == name })
	if at < 0 {
		a.open = append(a.open[:depth], &branch{name: name})
		return a.w.place.ReadDir(ctx, join(a.w.root, name))
	}
	for _, b := range parent.below[:at] {
		a.forget(b)
	}
	b := parent.below[at]
	parent.below = parent.below[at:]
	if !b.listed {
		if err := a.fetch(ctx); err != nil {
			return nil, pathError("readdir", join(a.w.root, name), err)
		}
	}
	parent.below = parent.below[1:]
	a.open = append(a.open[:depth], b)
	if !b.listed {
		return a.w.place.ReadDir(ctx, join(a.w.root, name))
	}
	entries := b.entries
	a.held -= len(entries)
	b.entries = nil
	return entries, b.err
}

// forget is told that the walk does not come to b, or not any more.
func (a *ahead) forget(b *branch) {
	a.held -= len(b.entries)
	for _, c := range b.below {
		a.forget(c)
	}
	b.entries, b.below = nil, nil
}

// rules returns the rules in the folder where the walk is, if they are known.
func (a *ahead) rules() (*gitignore.Stack, bool) {
	b := a.open[len(a.open)-1]
	return b.inner, b.looked
}

// enter is told what is in the folder where the walk is.
func (a *ahead) enter(entries []fs.DirEntry, rules *gitignore.Stack) {
	if b := a.open[len(a.open)-1]; !b.looked {
		b.looked, b.inner = true, rules
		b.below = a.branches(b.name, entries, rules)
	}
}

// branches returns the folders in the folder name that the walk is going to list.
func (a *ahead) branches(name string, entries []fs.DirEntry, rules *gitignore.Stack) (all []*branch) {
	depth := 1
	if name != "" {
		depth = strings.Count(name, "/") + 2
	}
	if depth == a.w.opts.MaxDepth {
		return nil
	}
	for _, d := range entries {
		if !d.IsDir() {
			continue
		}
		below := join(name, d.Name())
		if a.w.leavesOut(below, d, rules) || a.wanted != nil && !a.wanted(below) {
			continue
		}
		all = append(all, &branch{name: below, outer: rules})
	}
	return all
}

// fetch lists the next folders, of which the first is the one the walk needs.
func (a *ahead) fetch(ctx context.Context) error {
	most := aheadAtOnce
	if a.held > aheadMany {
		most = aheadFew
	}
	var next []*branch
	for i := len(a.open) - 1; i >= 0 && len(next) < most; i-- {
		next = gather(next, a.open[i].below, most)
	}
	names := make([]string, len(next))
	for i, b := range next {
		names[i] = join(a.w.root, b.name)
	}
	with := a.files()
	folders, err := a.trees.ReadDirs(ctx, names, with)
	if err != nil {
		if endsSearch(ctx, err) {
			return err
		}
		return nil // The walk finds out what it is.
	}
	for i, f := range folders {
		b := next[i]
		b.listed, b.entries, b.err = true, f.Entries, f.Err
		a.held += len(f.Entries)
		a.look(ctx, b, f, with)
	}
	return nil
}

// gather appends those of list, and of the folders below, that are not listed, until there are most.
func gather(to, list []*branch, most int) []*branch {
	for _, b := range list {
		switch {
		case len(to) == most:
			return to
		case b.listed:
			to = gather(to, b.below, most)
		default:
			to = append(to, b)
		}
	}
	return to
}

// look finds the folders in b, unless something more has to be read for that, or something is to be reported: then it
// waits for the walk.
func (a *ahead) look(ctx context.Context, b *branch, f Folder, with []string) {
	if f.Err != nil {
		return
	}
	rules := b.outer
	if !a.w.opts.NoIgnore {
		files := &known{files: make(map[string]FileContent)}
		files.add(join(a.w.root, b.name), f, with)
		w := *a.w
		w.e, w.fn = files, func(Entry, fs.DirEntry) error { return errUnknown }
		var err error
		if rules, err = w.innerRules(ctx, b.name, f.Entries, rules); err != nil {
			return
		}
	}
	b.looked, b.inner = true, rules
	b.below = a.branches(b.name, f.Entries, rules)
}

// isMissing tells whether err means that there is no such name.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotDir)
}
