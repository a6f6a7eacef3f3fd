package snapshot

import (
	"context"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

// trackedFiles returns the names, relative to dir, of the files and symlinks that git tracks below
// dir, and the name of dir in its repository, with a trailing slash unless it is empty. It returns
// no names outside of a repository, and if the index is unreadable or malformed.
func trackedFiles(
	ctx context.Context, e env.FileReader, dir string,
) (names []string, prefix string, err error) {
	abs := pathname.Absolute(e, dir)
	if abs == "" {
		return nil, "", nil
	}
	top := abs
	git, err := gitrepo.Find(ctx, e, top)
	if err == nil && git == nil {
		top, git, err = gitrepo.FindAbove(ctx, e, abs)
	}
	if err != nil || git == nil {
		return nil, "", err
	}
	if top != abs {
		prefix = strings.TrimPrefix(strings.TrimPrefix(abs, top), "/") + "/"
	}
	index, err := env.ReadFile(ctx, e, pathname.Join(git.Private, "index"), gitrepo.MaxIndexSize)
	if fatal := env.FatalError(ctx, err); fatal != nil {
		return nil, "", fatal
	}
	return indexNames(index, prefix), prefix, nil
}

// indexNames returns the names of the files and symlinks in an index that are below a directory,
// relative to it.
func indexNames(index []byte, below string) []string {
	x, err := gitrepo.ParseIndex(index)
	if err != nil {
		return nil
	}
	names := x.Files[:0]
	for _, name := range x.Files {
		if name, ok := strings.CutPrefix(name, below); ok {
			names = append(names, name)
		}
	}
	return names
}
