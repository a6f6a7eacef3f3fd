package snapshot

import (
	"context"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

// trackedFiles returns the names, relative to dir, of the files and links that git tracks below
// dir, and the name of dir in its repository, with a slash at its end unless it is empty. There are
// no names where there is no repository, and where its index cannot be read or understood: then
// only ignore files count.
func trackedFiles(
	ctx context.Context, e env.FileReader, dir string,
) (names []string, prefix string, err error) {
	top := pathname.Absolute(e, dir)
	below := ""
	for strings.Contains(top, "/") {
		git, err := gitrepo.Find(ctx, e, top)
		if err != nil {
			return nil, "", err
		}
		if git != nil {
			index, err := env.ReadFile(ctx, e, pathname.Join(git.Private, "index"), gitrepo.MaxIndexSize)
			if env.IsFatal(ctx, err) {
				return nil, "", err
			}
			return indexNames(index, below), below, nil
		}
		if top == "/" {
			break
		}
		top, below = path.Dir(top), path.Base(top)+"/"+below
	}
	return nil, "", nil
}

// indexNames returns the names of the files and links in an index that are below a folder, relative
// to it.
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
