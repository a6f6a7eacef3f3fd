package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// maxModules bounds the repositories of submodules that are protected.
const maxModules = 100

// protectDir makes the hooks and settings of the repository in dir, and those of this product,
// read-only, so that a command cannot have git outside run programs. The repository of a linked
// working tree becomes writable where it is elsewhere.
//
// A path that is, or leads over, a symlink goes to Unprotected: a mount on it would follow it to a
// path of the repository's choice.
func (p *Plan) protectDir(dir string) {
	p.protectExisting(filepath.Join(dir, "sandboxagent.yaml"))
	p.protectExisting(filepath.Join(dir, ".sandboxagent"))
	p.protectRepository(filepath.Join(dir, ".git"))
}

// protectRepository protects the repository of a .git directory or file, if it exists.
func (p *Plan) protectRepository(git string) {
	info, err := os.Lstat(git)
	switch {
	case err != nil:
	case info.IsDir():
		p.protectGitDir(git)
		p.ReadOnly = append(p.ReadOnly, p.modules(git)...)
	case info.Mode().IsRegular():
		p.ReadOnly = append(p.ReadOnly, git)
		if gitDir, common, ok := linked(git); ok {
			p.Write = outermost(append(p.Write, gitDir, common))
			p.protectGitDir(common)
			p.protectExisting(filepath.Join(gitDir, "config.worktree"))
			p.protectExisting(filepath.Join(gitDir, "gitdir"))
			p.protectExisting(filepath.Join(gitDir, "commondir"))
		} else if gitDir, ok := submodule(git); ok {
			p.Write = outermost(append(p.Write, gitDir))
			p.protectGitDir(gitDir)
			p.ReadOnly = append(p.ReadOnly, p.modules(gitDir)...)
		}
	}
	loose := func(name string) bool {
		real, err := filepath.EvalSymlinks(filepath.Dir(name))
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		info, lerr := os.Lstat(name)
		linked := err != nil || real != filepath.Dir(name) ||
			lerr == nil && info.Mode()&fs.ModeSymlink != 0
		if linked && !slices.Contains(p.Unprotected, name) {
			p.Unprotected = append(p.Unprotected, name)
		}
		return linked
	}
	loose(git)
	p.ReadOnly = slices.DeleteFunc(p.ReadOnly, loose)
	p.Placeholders = slices.DeleteFunc(p.Placeholders, loose)
	p.MustStayAbsent = slices.DeleteFunc(p.MustStayAbsent, loose)
}

// protectEnclosing makes the repository usable if dir is only a part of its working tree. The rest
// of that tree stays read-only.
func (p *Plan) protectEnclosing(dir string, homes []string) {
	outer := slices.Concat(homes, systemDirs)
	for tree := dir; !slices.Contains(outer, tree); tree = filepath.Dir(tree) {
		git := filepath.Join(tree, ".git")
		info, err := os.Lstat(git)
		switch {
		case tree == filepath.Dir(tree):
			return
		case err != nil:
			continue
		case tree == dir || info.IsDir() && !exists(filepath.Join(git, "HEAD")):
			return
		case info.IsDir():
			p.Write = outermost(append(p.Write, git))
		}
		p.WorkTree = tree
		p.protectRepository(git)
		return
	}
}

// protectGitDir protects a repository.
func (p *Plan) protectGitDir(git string) {
	if !exists(filepath.Join(git, "HEAD")) {
		return
	}
	p.lock(git)
	trees, _ := filepath.Glob(
		filepath.Join(escape(git), "worktrees", "*"),
	) // the pattern is a good one
	for _, tree := range trees[:min(len(trees), maxModules)] {
		for _, name := range []string{"commondir", "gitdir", "config.worktree"} {
			p.protectExisting(filepath.Join(tree, name))
		}
	}
	for _, name := range []string{"hooks", "config", "config.worktree", "commondir"} {
		switch name := filepath.Join(git, name); {
		case exists(name):
			p.protectExisting(name)
		case filepath.Base(name) == "commondir": // git would obey even an empty one
			p.MustStayAbsent = append(p.MustStayAbsent, name)
		case filepath.Base(name) == "config.worktree" && !worktreeConfig(git):
		default:
			p.Placeholders = append(p.Placeholders, name)
		}
	}
}

// worktreeConfig reports whether git may read per-worktree settings.
func worktreeConfig(git string) bool {
	data, err := os.ReadFile(filepath.Join(git, "config"))
	return err == nil && bytes.Contains(bytes.ToLower(data), []byte("worktreeconfig"))
}

// escape returns a pattern that matches name alone.
func escape(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// Tidy removes the directory for temporary files and the placeholders, after the helper has ended
// or failed to start. It also removes each of MustStayAbsent that a command has created, and
// returns an error about it.
func (p *Plan) Tidy() (err error) {
	if p.OwnTemp != "" {
		err = os.RemoveAll(p.OwnTemp)
	}
	for _, name := range p.MustStayAbsent {
		if removed, failed := p.remove(name, false); removed || failed != nil {
			err = errors.Join(
				err,
				fmt.Errorf(
					"a command has created %s, with which git outside would run its programs; removed", name,
				),
				failed,
			)
		}
	}
	if p.lastUser() {
		for _, name := range p.Placeholders {
			_, _ = p.remove(name, true) // a directory that is not empty stays
		}
	}
	p.unlock()
	p.OwnTemp, p.Placeholders, p.MustStayAbsent = "", nil, nil // others may need these names now
	return err
}

// protectExisting makes name read-only if it exists.
func (p *Plan) protectExisting(name string) {
	if exists(name) {
		p.ReadOnly = append(p.ReadOnly, name)
	}
}

// modules returns the paths to protect in the repositories of submodules.
func (p *Plan) modules(git string) (names []string) {
	found := 0
	_ = filepath.WalkDir(
		filepath.Join(git, "modules"),
		func(name string, d fs.DirEntry, err error) error {
			switch {
			case found >= maxModules:
				return fs.SkipAll
			case err != nil || !d.IsDir():
				return nil // it may be missing
			}
			if !exists(filepath.Join(name, "HEAD")) || !exists(filepath.Join(name, "objects")) {
				return nil
			}
			found++
			for _, part := range []string{"hooks", "config"} {
				if part := filepath.Join(name, part); exists(part) {
					names = append(names, part)
				}
			}
			if !exists(filepath.Join(name, "modules")) {
				return fs.SkipDir
			}
			return nil
		},
	)
	return names
}

// linked returns the git directory of a linked working tree, and the one that it shares, from its
// .git file, if the repository refers back to the working tree.
func linked(file string) (gitDir, common string, ok bool) {
	dirs, err := gitrepo.FindHost(filepath.Dir(file))
	return dirs.Private, dirs.Common, err == nil && dirs.Private != dirs.Common
}

// submodule returns the git directory of a submodule from its .git file, if the repository refers
// back to the working tree, or is in it.
func submodule(file string) (gitDir string, ok bool) {
	dirs, err := gitrepo.FindHost(filepath.Dir(file))
	return dirs.Private, err == nil && dirs.Private == dirs.Common
}
