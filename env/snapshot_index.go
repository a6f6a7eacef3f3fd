package env

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitindex"
)

// trackedFiles returns the names, relative to dir, of the files and links that git tracks below dir, and the name of dir
// in its repository, with a slash at its end unless it is empty. There are no names where there is no repository, and
// where its index cannot be read or understood: then only ignore files count.
func trackedFiles(ctx context.Context, e FileReader, dir string) (names []string, prefix string, err error) {
	top := (&walker{e: e, root: dir}).absolute()
	below := ""
	for strings.Contains(top, "/") {
		index, err := readIndex(ctx, e, top)
		if endsSearch(ctx, err) {
			return nil, "", err
		}
		if err == nil {
			return indexNames(index, below), below, nil
		}
		if _, err := e.Stat(ctx, join(top, gitDir)); err == nil || endsSearch(ctx, err) {
			return nil, below, err
		}
		if top == "/" {
			break
		}
		top, below = path.Dir(top), path.Base(top)+"/"+below
	}
	return nil, "", nil
}

// readIndex reads the index of the repository whose topmost folder is top. In a linked worktree .git is a file that
// tells where the rest is.
func readIndex(ctx context.Context, e FileReader, top string) ([]byte, error) {
	git := join(top, gitDir)
	pointer, err := ReadFile(ctx, e, git, maxIgnoreFile)
	switch {
	case err == nil:
		to, ok := strings.CutPrefix(strings.TrimRight(string(pointer), "\r\n"), "gitdir: ")
		if !ok {
			return nil, errors.New("not a git file")
		}
		git = to
		if !strings.HasPrefix(to, "/") && !hasDrive(to) {
			git = path.Join(top, to)
		}
	case !errors.Is(err, ErrIsDir):
		return nil, err
	}
	return ReadFile(ctx, e, join(git, "index"), gitindex.MaxSize)
}

// indexNames returns the names of the files and links in an index that are below a folder, relative to it.
func indexNames(index []byte, below string) []string {
	x, err := gitindex.Parse(index)
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
