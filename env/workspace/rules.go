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
)

const ignoreFile = ".gitignore"

// ignoreRules are what git on the host ignores, as far as looking at the environment, or at the
// host through the eyes of an environment, does not tell: rules of the user, rules that stand in
// folders above the workspace, and those that git keeps for linked working trees and submodules.
// They give way to the rules that stand in the workspace, as these were when it was recorded.
type ignoreRules struct {
	// prefix is the name of the workspace in its repository, with a slash at its end; empty at the
	// top.
	prefix string
	// stacks are the rules in force in folders that have some of their own, by name.
	stacks map[string]*gitignore.Stack
	// needed says that there are rules that would be missed.
	needed bool
}

// HostRules returns a function that tells what git on the host ignores in the folder dir because of
// rules that looking at its files does not tell: those of the user, and those that git keeps for
// linked working trees and submodules. It is meant for env.SnapshotOptions.Exclude, where an
// environment works in dir itself, and gives nil if there are no such rules.
func HostRules(
	ctx context.Context, dir string,
) (excluded func(name string, isDir bool) bool, err error) {
	w, host, err := find(dir, Options{})
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

// excluded tells whether something is ignored whose folder is not.
func (r *ignoreRules) excluded(name string, isDir bool) bool {
	return r.in(path.Dir(name)).Ignored(r.prefix+name, isDir)
}

// in returns the rules in force in a folder.
func (r *ignoreRules) in(dir string) *gitignore.Stack {
	for ; dir != "."; dir = path.Dir(dir) {
		if s, ok := r.stacks[dir]; ok {
			return s
		}
	}
	return r.stacks["."]
}

// makeRules puts rules together: outer ones, those of the repositories in the workspace, and those
// of the ignore files in the folders with the given names.
func (w *Workspace) makeRules(
	outer *gitignore.Stack, prefix string, folders []string,
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
		folders = append(folders, repo.name)
	}
	slices.Sort(folders)
	// Each folder after those that it is in; the topmost has a name that is not the least.
	folders = append([]string{"."}, slices.DeleteFunc(folders,
		func(dir string) bool { return dir == "." })...)
	for _, dir := range slices.Compact(folders) {
		at := strings.TrimSuffix(prefix, "/")
		if dir != "." {
			at = prefix + dir
		}
		stack := r.in(dir)
		if repo := tops[dir]; repo != nil {
			global := pushRules(nil, at, w.globalRules(repo.settings))
			stack = pushRules(global, at, repo.file("info/exclude"))
			r.needed = r.needed || global != nil || stack != nil && repo.elsewhere
		}
		content, err := readFile(root, filepath.FromSlash(path.Join(dir, ignoreFile)), maxSmall)
		if err == nil {
			stack = pushRules(stack, at, content)
		}
		r.stacks[dir] = stack
	}
	return r, nil
}

// pushRules adds the rules of a folder to those above it.
func pushRules(rules *gitignore.Stack, at string, content []byte) *gitignore.Stack {
	return rules.Push(at, gitignore.Parse(content))
}

// outerRules reads the rules above a folder that is inside the repository whose top is given. If
// the folder is ignored itself, they do not count.
func (w *Workspace) outerRules(
	top string, git gitFolders,
) (rules *gitignore.Stack, prefix string, err error) {
	dir := w.dir
	rel, err := filepath.Rel(top, dir)
	if err != nil {
		return nil, "", err
	}
	below := filepath.ToSlash(rel)
	// As for Walk, a file that cannot be read has no rules.
	config, _ := readHostFile(filepath.Join(git.common, "config"))
	settings, _ := parseConfig([]byte(config))
	rules = pushRules(rules, "", w.globalRules(settings))
	if exclude, err := readHostFile(filepath.Join(git.common, "info", "exclude")); err == nil {
		rules = pushRules(rules, "", []byte(exclude))
	}
	at := ""
	for part := range strings.SplitSeq(below, "/") {
		content, err := readHostFile(filepath.Join(top, filepath.FromSlash(at), ignoreFile))
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
