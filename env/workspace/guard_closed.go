package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// closedDir is a directory that cannot be listed, or an entry that cannot be described.
type closedDir struct {
	mode fs.FileMode
	// enterable: git may find a repository in it.
	enterable bool
}

// unlock gives their owner the right to list and to enter directories from which commands took it.
// It returns the directories that are still closed; opened reports whether it gave a right back.
func (g *Guard) unlock(ctx context.Context) (closed map[string]closedDir, opened bool, err error) {
	tried := make(map[string]bool)
	for {
		closed, err = g.findClosed(ctx)
		if err != nil || g.before == nil {
			return closed, opened, err
		}
		var dirs []string
		for name, c := range closed {
			if tried[name] || g.before.closed[name] == c {
				continue
			}
			if tried[name] = true; !c.mode.IsDir() {
				name = path.Dir(name)
			}
			dirs = append(dirs, name)
		}
		if len(dirs) == 0 {
			return closed, opened, nil
		}
		g.allow(ctx, "u+rx", dirs...) // there may be others in them
		opened = true
	}
}

// findClosed returns the closed directories in the working directory, and the entries that cannot
// be described, by name.
func (g *Guard) findClosed(ctx context.Context) (map[string]closedDir, error) {
	closed := make(map[string]closedDir)
	add := func(name string, mode fs.FileMode) error {
		_, err := g.e.Lstat(ctx, path.Join(name, gitrepo.DirName))
		closed[name] = closedDir{mode, !errors.Is(err, fs.ErrPermission)}
		return env.FatalError(ctx, err)
	}
	err := search.Walk(ctx, g.e, "", search.WalkOptions{NoIgnore: true, Details: true},
		func(e search.Entry) error {
			if errors.Is(e.Err, fs.ErrPermission) {
				return add(e.Name, e.Mode)
			}
			return nil
		})
	if errors.Is(err, fs.ErrPermission) { // of the working directory itself
		err = add(".", fs.ModeDir)
	}
	return closed, err
}

// newlyClosed returns an error if git may find repositories in directories that commands closed.
func (s *guardState) newlyClosed(now *guardState) error {
	for _, name := range slices.Sorted(maps.Keys(now.closed)) {
		if c := now.closed[name]; c.enterable && s.closed[name] != c {
			return fmt.Errorf("the directory %q cannot be listed (look for repositories in it)", name)
		}
	}
	return nil
}

// allow adds rights of the owner to directories, and to those above them in the working directory.
func (g *Guard) allow(ctx context.Context, rights string, dirs ...string) {
	for some := range slices.Chunk(dirs, guardedAtOnce) {
		var names []string
		for _, dir := range some {
			for name := dir; name != "." && !path.IsAbs(name); name = path.Dir(name) {
				names = append(names, operand(name))
			}
			if path.IsAbs(dir) {
				names = append(names, dir)
			}
		}
		slices.Sort(names) // those above first
		argv := append([]string{"chmod", rights, "."}, slices.Compact(names)...)
		_, _ = g.e.Exec(ctx, env.Command{Argv: argv}) // the next use reports a failure
	}
}

// lstat describes several entries of a directory at once. Missing and unreadable ones are left out.
func (g *Guard) lstat(
	ctx context.Context, dir string, names ...string,
) (map[string]fs.FileInfo, error) {
	infos, errs := make([]fs.FileInfo, len(names)), make([]error, len(names))
	denied := func(err error) bool { return errors.Is(err, fs.ErrPermission) }
	describe := func() {
		var wg sync.WaitGroup
		for i, name := range names {
			wg.Go(func() { infos[i], errs[i] = g.e.Lstat(ctx, path.Join(dir, name)) })
		}
		wg.Wait()
	}
	if describe(); g.before != nil && slices.ContainsFunc(errs, denied) {
		g.allow(ctx, "u+rx", dir)
		describe()
	}
	found := make(map[string]fs.FileInfo)
	for i, name := range names {
		if fatal := env.FatalError(ctx, errs[i]); fatal != nil {
			return nil, fatal
		}
		if errs[i] == nil {
			found[name] = infos[i]
		}
	}
	return found, nil
}

// isReal reports whether a name leads over no symlink to a directory in the working directory.
func (g *Guard) isReal(ctx context.Context, name string) bool {
	ok := fs.ValidPath(name)
	for ; ok && name != "."; name = path.Dir(name) {
		info, err := g.e.Lstat(ctx, name)
		ok = err == nil && info.IsDir()
	}
	return ok
}
