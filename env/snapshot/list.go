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

// listAtOnce is how many folders are listed at the same time.
const listAtOnce = 16

// list finds out which files belong to the snapshot.
func (t *snapshotTaker) list(ctx context.Context, opts Options) error {
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
	err := search.Walk(ctx, t.e, t.dir, search.WalkOptions{}, func(entry search.Entry) error {
		if leftOut(entry) {
			if entry.Mode.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch entry.Mode.Type() {
		case 0, fs.ModeSymlink:
			return t.want(entry.Name)
		case fs.ModeDir:
			if validTreeName(entry.Name) {
				t.s.folders[entry.Name] = true
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
		return t.wanted[name] || !validTreeName(name) || opts.omits(name)
	})
	return t.wantExisting(ctx, more)
}

// omits tells whether Omit leaves out name, or a folder that it is in.
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

func (t *snapshotTaker) want(name string) error {
	if !validTreeName(name) || t.wanted[name] {
		return nil
	}
	t.wanted[name] = true
	return t.checkEntries()
}

func (t *snapshotTaker) checkEntries() error {
	if t.maxEntries > 0 && len(t.wanted)+len(t.s.folders) > t.maxEntries {
		return fmt.Errorf("%w: more than %d files and folders", env.ErrTreeTooLarge, t.maxEntries)
	}
	return nil
}

// sought is a file that may exist.
type sought struct {
	// folder is one that is certainly in the tree; the rest of the name is not known yet.
	folder, rest string
}

// wantExisting wants those of names that are files or links, reached without going through a link,
// which would make one file appear twice. It lists each folder that may hold some at most once,
// several at a time, and none above those that the walk has found.
func (t *snapshotTaker) wantExisting(ctx context.Context, names []string) error {
	var open []sought
	for _, name := range names {
		folder := path.Dir(name)
		for folder != "." && !t.s.folders[folder] {
			folder = path.Dir(folder)
		}
		open = append(open, sought{folder, strings.TrimPrefix(name, strings.TrimPrefix(folder+"/",
			"./"))})
	}
	folders := make(map[string]map[string]fs.FileMode)
	for len(open) > 0 {
		var unlisted []string
		for _, s := range open {
			if _, ok := folders[s.folder]; !ok {
				folders[s.folder] = nil
				unlisted = append(unlisted, s.folder)
			}
		}
		if err := t.listFolders(ctx, unlisted, folders); err != nil {
			return err
		}
		var deeper []sought
		for _, s := range open {
			first, rest, below := strings.Cut(s.rest, "/")
			kind, ok := folders[s.folder][first]
			switch {
			case !ok:
			case below && kind.IsDir():
				deeper = append(deeper, sought{pathname.Join(s.folder, first), rest})
			case !below && (kind == 0 || kind == fs.ModeSymlink):
				if err := t.want(pathname.Join(s.folder, first)); err != nil {
					return err
				}
			}
		}
		open = deeper
	}
	return nil
}

// listFolders fills in what is in the folders called names. One that is not there any more is
// empty.
func (t *snapshotTaker) listFolders(
	ctx context.Context, names []string, folders map[string]map[string]fs.FileMode,
) error {
	var mu sync.Mutex
	var ends error
	next := func() (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(names) == 0 || ends != nil {
			return "", false
		}
		name := names[0]
		names = names[1:]
		return name, true
	}
	work := func() {
		for name, ok := next(); ok; name, ok = next() {
			entries, err := t.e.ReadDir(ctx, pathname.Join(t.dir, name))
			kinds := make(map[string]fs.FileMode, len(entries))
			for _, d := range entries {
				kinds[d.Name()] = d.Type()
			}
			mu.Lock()
			folders[name] = kinds
			if errors.Is(err, fs.ErrPermission) {
				t.s.unreadable[name] = err
			}
			if ends == nil && env.IsFatal(ctx, err) {
				ends = err
			}
			mu.Unlock()
		}
	}
	var wg sync.WaitGroup
	for range min(listAtOnce, len(names)) {
		wg.Go(work)
	}
	wg.Wait()
	return ends
}
