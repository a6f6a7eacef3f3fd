package env

import (
	"context"
	"path"
	"strings"
)

// gitDirs are where git keeps what belongs to one working tree, and what all of one repository share. For most
// repositories it is the same folder.
type gitDirs struct {
	own, common string
	// linked says that they are not in the working tree, where there is a file instead that tells where they are.
	linked bool
}

// findGit finds the folders of the repository whose topmost folder is top; nil if it is none. A folder .git
// in which there is nothing of git, and a file of that name that does not point anywhere, make no repository.
func findGit(ctx context.Context, e FileReader, top string) (*gitDirs, error) {
	git := join(top, gitDir)
	_, err := e.Stat(ctx, join(git, "HEAD"))
	if err == nil {
		return &gitDirs{own: git, common: git}, nil
	}
	if endsSearch(ctx, err) {
		return nil, err
	}
	own, err := readPointer(ctx, e, top, git, "gitdir: ")
	if err != nil || own == "" {
		return nil, err
	}
	common, err := readPointer(ctx, e, own, join(own, "commondir"), "")
	if err != nil {
		return nil, err
	}
	if common == "" {
		common = own
	}
	return &gitDirs{own: own, common: common, linked: true}, nil
}

// readPointer returns what the file name, which is relative to dir, points to after a prefix. It is empty if there is no
// such file.
func readPointer(ctx context.Context, e FileReader, dir, name, prefix string) (string, error) {
	content, err := ReadFile(ctx, e, name, maxIgnoreFile)
	if endsSearch(ctx, err) {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimRight(string(content), "\r\n"), prefix)
	if err != nil || !ok || to == "" {
		return "", nil //nolint:nilerror // What cannot be read leads nowhere.
	}
	if strings.HasPrefix(to, "/") || hasDrive(to) {
		return to, nil
	}
	return path.Join(dir, to), nil
}
