package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// maxConcurrentLists bounds the number of concurrent calls of ReadDir.
const maxConcurrentLists = 16

// list adds the files of the snapshot to t.wanted: those that the walk finds, and those of the rest
// that exist, ignored or not.
func (t *taker) list(ctx context.Context, opts Options) error {
	leftOut := func(entry search.Entry) bool {
		if opts.Omit != nil && opts.Omit(entry.Name) {
			return true
		}
		if entry.Err != nil && validTreeName(entry.Name) && entry.Mode.IsDir() {
			t.s.unreadable[entry.Name] = entry.Err
			return false
		}
		return opts.Exclude != nil && opts.Exclude(entry.Name, entry.Mode.IsDir())
	}
	detailed := search.WalkOptions{Details: true}
	err := search.Walk(ctx, t.e, t.dir, detailed, func(entry search.Entry) error {
		if leftOut(entry) {
			if entry.Mode.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch entry.Mode.Type() {
		case 0, fs.ModeSymlink:
			return t.want(entry.Name, details{entry.Stamp, entry.ModTime.UnixNano()})
		case fs.ModeDir:
			if validTreeName(entry.Name) {
				t.s.dirs[entry.Name] = true
			}
			return t.checkEntries()
		}
		return nil
	})
	if err != nil {
		return err
	}
	more := slices.Clone(opts.Include)
	if opts.Base != nil {
		more = slices.AppendSeq(more, maps.Keys(opts.Base.files))
	}
	tracked, prefix, err := trackedFiles(ctx, t.e, t.dir)
	t.s.prefix = prefix
	if err != nil {
		return err
	}
	more = append(more, tracked...)
	more = slices.DeleteFunc(more, func(name string) bool {
		_, wanted := t.wanted[name]
		return wanted || !validTreeName(name) || opts.omits(name)
	})
	return t.wantExisting(ctx, more)
}

// omits reports whether Omit leaves out name, or a directory above it.
func (o *Options) omits(name string) bool {
	if o.Omit == nil {
		return false
	}
	for ; name != "."; name = path.Dir(name) {
		if o.Omit(name) {
			return true
		}
	}
	return false
}

// details are those of a wanted file that the walk has found, else zero.
type details struct {
	stamp   uint64
	modTime int64
}

func (t *taker) want(name string, d details) error {
	if _, ok := t.wanted[name]; ok || !validTreeName(name) {
		return nil
	}
	t.wanted[name] = d
	return t.checkEntries()
}

func (t *taker) checkEntries() error {
	if t.maxEntries > 0 && len(t.wanted)+len(t.s.dirs) > t.maxEntries {
		return fmt.Errorf("%w: more than %d files and directories", env.ErrTreeTooLarge, t.maxEntries)
	}
	return nil
}

// candidate is a file that may exist: its name below a directory that exists.
type candidate struct{ dir, rest string }

// wantExisting adds to t.wanted those of names that are files or symlinks and not below a symlink,
// which would make one file appear twice. It lists each of their directories at most once,
// concurrently, and starts from the directories that the walk has found.
func (t *taker) wantExisting(ctx context.Context, names []string) error {
	var open []candidate
	for _, name := range names {
		dir := path.Dir(name)
		for dir != "." && !t.s.dirs[dir] {
			dir = path.Dir(dir)
		}
		rest := strings.TrimPrefix(name, strings.TrimPrefix(dir+"/", "./"))
		open = append(open, candidate{dir, rest})
	}
	lists := make(map[string]map[string]fs.FileMode)
	for len(open) > 0 {
		var unlisted []string
		for _, c := range open {
			if _, ok := lists[c.dir]; !ok {
				lists[c.dir] = nil
				unlisted = append(unlisted, c.dir)
			}
		}
		if err := t.listDirs(ctx, unlisted, lists); err != nil {
			return err
		}
		var deeper []candidate
		for _, c := range open {
			first, rest, below := strings.Cut(c.rest, "/")
			kind, ok := lists[c.dir][first]
			switch {
			case !ok:
			case below && kind.IsDir():
				deeper = append(deeper, candidate{pathname.Join(c.dir, first), rest})
			case !below && (kind == 0 || kind == fs.ModeSymlink):
				if err := t.want(pathname.Join(c.dir, first), details{}); err != nil {
					return err
				}
			}
		}
		open = deeper
	}
	return nil
}

// listDirs lists the directories called names; a missing one is empty.
func (t *taker) listDirs(
	ctx context.Context, names []string, lists map[string]map[string]fs.FileMode,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards failed, lists and unreadable
	var failed error
	var all sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentLists)
	for _, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			entries, err := t.e.ReadDir(ctx, pathname.Join(t.dir, name))
			kinds := make(map[string]fs.FileMode, len(entries))
			for _, d := range entries {
				kinds[d.Name()] = d.Type()
			}
			mu.Lock()
			defer mu.Unlock()
			lists[name] = kinds
			if errors.Is(err, fs.ErrPermission) {
				t.s.unreadable[name] = err
			}
			if fatal := env.FatalError(ctx, err); failed == nil && fatal != nil {
				failed = fatal
				cancel()
			}
		})
	}
	all.Wait()
	return failed
}
