// Package gitrepo recognizes and reads git repositories by their files, without running git: in an
// environment git may be missing, and its configuration could make it run programs.
package gitrepo

import (
	"context"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

// DirName is the name of a git directory, or of the file that points to one, in a working tree.
const DirName = ".git"

// FilePrefix starts the content of a .git that is a file.
const FilePrefix = "gitdir: "

// maxPointer bounds the size of a file that points to a git directory, in bytes.
const maxPointer = 1 << 20

// Dirs are the git directories of one working tree.
type Dirs struct {
	// Private has the files of this working tree alone, such as its index. Common has the files that
	// all working trees of the repository share. Most repositories have one directory for both.
	Private, Common string
	// Linked is true if .git is a file that points to the directories.
	Linked bool
}

// Find returns the git directories of the working tree whose top is the directory top; nil if top
// is not the top of one. An empty .git directory, or a .git file that points nowhere, is not
// a repository.
func Find(ctx context.Context, e env.FileReader, top string) (*Dirs, error) {
	git := pathname.Join(top, DirName)
	_, err := e.Stat(ctx, pathname.Join(git, Head))
	if err == nil {
		return &Dirs{Private: git, Common: git}, nil
	}
	if fatal := env.FatalError(ctx, err); fatal != nil {
		return nil, fatal
	}
	private, err := readPointer(ctx, e, top, git, FilePrefix)
	if err != nil || private == "" {
		return nil, err
	}
	common, err := readPointer(ctx, e, private, pathname.Join(private, CommonDir), "")
	if err != nil {
		return nil, err
	}
	if common == "" {
		common = private
	}
	return &Dirs{Private: private, Common: common, Linked: true}, nil
}

// FindAbove returns the nearest parent directory of the clean absolute dir that is the top of a
// working tree, with its git directories; nil ones if none is.
func FindAbove(ctx context.Context, e env.FileReader, dir string) (string, *Dirs, error) {
	for top := pathname.Parent(dir); top != ""; top = pathname.Parent(top) {
		if git, err := Find(ctx, e, top); err != nil || git != nil {
			return top, git, err
		}
	}
	return "", nil, nil
}

// readPointer returns the path in the file name, resolved against dir, after a prefix; empty if the
// file does not exist or has no path.
func readPointer(ctx context.Context, e env.FileReader, dir, name, prefix string) (string, error) {
	content, err := env.ReadFile(ctx, e, name, maxPointer)
	if fatal := env.FatalError(ctx, err); fatal != nil {
		return "", fatal
	}
	to, ok := strings.CutPrefix(strings.TrimRight(string(content), "\r\n"), prefix)
	if err != nil || !ok || to == "" {
		return "", nil //nolint:nilerror // An unreadable pointer leads nowhere.
	}
	if strings.HasPrefix(to, "/") || pathname.HasDrive(to) {
		return to, nil
	}
	return path.Join(dir, to), nil
}
