package workspace

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

const ignoreFile = ".gitignore"

// ignoreRules are the ignore rules of git on the host. An environment lacks some of them: rules of
// the user, in directories above the workspace, and in the git directories of linked working trees
// and submodules. Those have a lower precedence than the ignore files in the workspace, so the
// latter are included, as recorded.
type ignoreRules struct {
	// prefix is the name of the workspace in its repository, with a trailing slash; empty at the top.
	prefix string
	// stacks are the rules in force in each directory that adds some, by name.
	stacks map[string]*gitignore.Stack
	// needed is true if an environment lacks some of the rules.
	needed bool
}

// HostRules returns a function that reports the names that git on the host ignores in the directory
// dir by rules outside of it: those of the user, and those in the git directories of linked working
// trees and submodules. It is for snapshot.Options.Exclude, where an environment works in dir
// itself; nil means no such rules.
func HostRules(
	ctx context.Context, dir string,
) (excluded func(name string, isDir bool) bool, err error) {
	w, host, err := newWorkspace(dir, Options{})
	if err == nil {
		err = w.findRepositories(ctx, host)
	}
	if err != nil {
		return nil, fmt.Errorf("ignore rules of %s: %w", dir, err)
	}
	if !w.rules.needed {
		return nil, nil
	}
	return w.rules.excluded, nil
}

// excluded reports whether a name is ignored whose directory is not.
func (r *ignoreRules) excluded(name string, isDir bool) bool {
	return r.in(path.Dir(name)).Ignored(r.prefix+name, isDir)
}

// in returns the rules in force in a directory.
func (r *ignoreRules) in(dir string) *gitignore.Stack {
	for ; dir != "."; dir = path.Dir(dir) {
		if s, ok := r.stacks[dir]; ok {
			return s
		}
	}
	return r.stacks["."]
}

// makeRules combines the outer rules, those of the repositories in the workspace, and those of the
// ignore files in dirs.
func (w *Workspace) makeRules(
	outer *gitignore.Stack, prefix string, dirs []string,
) (*ignoreRules, error) {
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	r := &ignoreRules{
		prefix: prefix, stacks: map[string]*gitignore.Stack{".": outer},
		needed: outer != nil,
	}
	tops := make(map[string]*repository)
	for _, repo := range w.repos {
		tops[repo.name] = repo
		dirs = append(dirs, repo.name)
	}
	// Sort each directory after its parents; "." does not sort first.
	slices.Sort(dirs)
	dirs = append([]string{"."}, slices.DeleteFunc(dirs,
		func(dir string) bool { return dir == "." })...)
	for _, dir := range slices.Compact(dirs) {
		at := strings.TrimSuffix(prefix, "/")
		if dir != "." {
			at = prefix + dir
		}
		stack := r.in(dir)
		if repo := tops[dir]; repo != nil {
			global := pushRules(nil, at, w.globalRules(repo.settings))
			stack = pushRules(global, at, repo.file("info/exclude"))
			r.needed = r.needed || global != nil ||
				stack != nil && (repo.git.Linked || repo.foreign != "")
		}
		content, err := gitrepo.ReadFile(root, filepath.FromSlash(path.Join(dir, ignoreFile)), maxSmall)
		if err == nil {
			stack = pushRules(stack, at, content)
		}
		r.stacks[dir] = stack
	}
	return r, nil
}

// pushRules adds the content of the ignore file of the directory at.
func pushRules(rules *gitignore.Stack, at string, content []byte) *gitignore.Stack {
	return rules.Push(at, gitignore.Parse(content))
}

// outerRules reads the rules above the workspace, which is in the repository with the given top. If
// they ignore the workspace itself, it returns none.
func (w *Workspace) outerRules(
	top string, git gitrepo.Dirs,
) (rules *gitignore.Stack, prefix string, err error) {
	rel, err := filepath.Rel(top, w.dir)
	if err != nil {
		return nil, "", err
	}
	below := filepath.ToSlash(rel)
	rules = w.repositoryRules(git)
	at := ""
	for part := range strings.SplitSeq(below, "/") {
		content, err := gitrepo.ReadHostFile(filepath.Join(top, filepath.FromSlash(at), ignoreFile))
		if err == nil {
			rules = pushRules(rules, at, []byte(content))
		}
		at = path.Join(at, part)
		if rules.Ignored(at, true) {
			return nil, below + "/", nil
		}
	}
	return rules, below + "/", nil
}

// repositoryRules returns the rules of the user and of a repository, without those of ignore files.
// As in search.Walk, an unreadable file has no rules.
func (w *Workspace) repositoryRules(git gitrepo.Dirs) *gitignore.Stack {
	config, _ := gitrepo.ReadHostFile(filepath.Join(git.Common, "config"))
	settings, _ := gitrepo.ParseConfig([]byte(config))
	rules := pushRules(nil, "", w.globalRules(settings))
	exclude, _ := gitrepo.ReadHostFile(filepath.Join(git.Common, "info", "exclude"))
	return pushRules(rules, "", []byte(exclude))
}
