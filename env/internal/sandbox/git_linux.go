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

	"github.com/sandboxagent/sandboxagent/env/internal/controlfile"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// maxRepositories bounds the repositories of linked working trees and of submodules that are
// protected.
const maxRepositories = 100

// protectDir makes the hooks and settings of the repository in dir, and those of this product,
// read-only, so that a command cannot have git outside run programs. The repository of a linked
// working tree becomes writable where it is elsewhere. With a policy of GitReadOnly the whole
// repository is read-only.
//
// A path that is, or leads over, a symlink goes to Unprotected: a mount on it would follow it to a
// path of the repository's choice.
func (p *Plan) protectDir(dir string) {
	for _, name := range []string{"sandboxagent.yaml", ".sandboxagent"} {
		if name := filepath.Join(dir, name); !p.opened(name) {
			p.protectExisting(name)
		}
	}
	git := filepath.Join(dir, ".git")
	if !exists(git) && exists(filepath.Join(dir, "HEAD")) && isDir(filepath.Join(dir, "objects")) &&
		isDir(filepath.Join(dir, "refs")) { // a bare repository
		git = dir
		p.lock(git)
		p.protectSettings(git)
	} else {
		p.protectRepository(git, true)
	}
	p.dropSymlinks(git)
}

// protectRepository protects the repository of a .git directory or file, if it exists, and those of
// its submodules. With open, a repository elsewhere becomes writable unless it is to be read-only.
func (p *Plan) protectRepository(git string, open bool) {
	dir := filepath.Dir(git)
	info, err := os.Lstat(git)
	switch {
	case err != nil:
	case info.IsDir():
		p.protectGitDir(git)
		p.protectSubmodules(dir, git)
	case info.Mode().IsRegular():
		p.ReadOnly = append(p.ReadOnly, git)
		gitDir, common, ok := linked(git)
		if !ok {
			gitDir, ok = submodule(git)
			common = gitDir
		}
		if !ok {
			return
		}
		if open && !p.policy.GitReadOnly {
			p.Write = outermost(append(p.Write, gitDir, common))
		}
		p.protectGitDir(common)
		p.protectSubmodules(dir, gitDir)
	}
}

// dropSymlinks moves the paths that are, or lead over, a symlink to Unprotected.
func (p *Plan) dropSymlinks(git string) {
	loose := func(name string) bool {
		real, err := filepath.EvalSymlinks(filepath.Dir(name))
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		info, lerr := os.Lstat(name)
		linked := err != nil || real != filepath.Dir(name) ||
			lerr == nil && info.Mode()&fs.ModeSymlink != 0
		if linked {
			p.leave(name)
		}
		return linked
	}
	loose(git)
	for _, names := range []*[]string{&p.ReadOnly, &p.Placeholders, &p.MustStayAbsent, &p.Pinned} {
		*names = slices.DeleteFunc(*names, loose)
	}
}

// leave adds a path to Unprotected.
func (p *Plan) leave(name string) {
	if !slices.Contains(p.Unprotected, name) {
		p.Unprotected = append(p.Unprotected, name)
	}
}

// opened reports whether the policy has name writable by that name.
func (p *Plan) opened(name string) bool { return slices.Contains(p.named, name) }

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
		case info.IsDir() && !p.policy.GitReadOnly:
			p.Write = outermost(append(p.Write, git))
		}
		p.WorkTree = tree
		p.protectRepository(git, true)
		p.dropSymlinks(git)
		return
	}
}

// protectGitDir protects a repository with those of its submodules: as a whole, or its hooks and
// settings, and its files by which git takes another repository for this one.
func (p *Plan) protectGitDir(git string) {
	known := func(dir string) bool { return Within(git, dir) }
	if !exists(filepath.Join(git, "HEAD")) || slices.Contains(p.locked(), git) ||
		slices.ContainsFunc(p.GitDirs, known) {
		return
	}
	if len(p.locks)+len(p.GitDirs) > maxRepositories {
		p.leave(git)
		return
	}
	if p.policy.GitReadOnly && !p.opened(git) {
		p.ReadOnly, p.GitDirs = append(p.ReadOnly, git), append(p.GitDirs, git)
		return
	}
	p.lock(git)
	p.protectSettings(git)
	if filepath.Base(git) == ".git" {
		// Without these git takes the working directory for a git directory if it has them.
		for _, name := range []string{"objects", "refs"} {
			if name := filepath.Join(git, name); isDir(name) && p.belowWritable(name) {
				p.Pinned = append(p.Pinned, name)
			}
		}
	}
	p.protectModules(git)
	trees, _ := filepath.Glob(
		filepath.Join(escape(git), "worktrees", "*"),
	) // the pattern is a good one
	for i, tree := range trees {
		if i == maxRepositories {
			p.leave(filepath.Join(git, "worktrees"))
			break
		}
		p.protectExisting(filepath.Join(tree, "gitdir"))
		p.protectFiles(tree, "commondir", "config.worktree")
		p.protectModules(tree)
	}
}

// protectSettings protects the hooks and settings in a git directory.
func (p *Plan) protectSettings(git string) {
	p.protectFiles(git, "hooks", "config", "config.worktree", "commondir")
}

// protectFiles makes files in a git directory read-only. Missing ones get placeholders, except
// commondir, of which git would obey an empty one too.
func (p *Plan) protectFiles(git string, names ...string) {
	for _, name := range names {
		full := filepath.Join(git, name)
		switch {
		case exists(full):
			p.protectExisting(full)
		case name == "commondir":
			p.MustStayAbsent = append(p.MustStayAbsent, full)
		default:
			p.Placeholders = append(p.Placeholders, full)
		}
	}
}

// protectControlFiles makes the control files at the top of dir read-only. One that is, or leads
// over, a symlink is left out, like one that the policy opens by its name.
func (p *Plan) protectControlFiles(dir string) {
	for _, f := range controlfile.All {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		real, err := filepath.EvalSymlinks(name)
		if err == nil && real == name && !f.ReportOnly && !p.opened(name) {
			p.ReadOnly = append(p.ReadOnly, name)
		}
	}
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

// protectModules protects the repositories in the directory modules of a git directory.
func (p *Plan) protectModules(git string) {
	_ = filepath.WalkDir(
		filepath.Join(git, "modules"),
		func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil // it may be missing
			}
			if !exists(filepath.Join(name, "HEAD")) || !exists(filepath.Join(name, "objects")) {
				return nil
			}
			if len(p.locks)+len(p.GitDirs) > maxRepositories {
				p.leave(name)
				return fs.SkipAll
			}
			p.protectGitDir(name)
			return fs.SkipDir
		},
	)
}

// protectSubmodules protects the submodules in a working tree, by its git directory: git status
// outside enters them. The directory of a missing one is read-only if the repository is.
func (p *Plan) protectSubmodules(tree, git string) {
	for _, name := range submodules(filepath.Join(git, "index")) {
		dir := filepath.Join(tree, filepath.FromSlash(name))
		real, err := filepath.EvalSymlinks(dir)
		switch p.submodules++; {
		case !fs.ValidPath(name) || name == "." || err != nil: // it cannot be entered
		case p.submodules > maxRepositories || real != dir:
			p.leave(filepath.Join(dir, ".git"))
		case exists(filepath.Join(dir, ".git")):
			p.protectRepository(filepath.Join(dir, ".git"), false)
		case p.policy.GitReadOnly && isEmptyDir(dir):
			p.ReadOnly = append(p.ReadOnly, dir)
		}
	}
}

// submodules returns the submodules in an index file.
func submodules(file string) []string {
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > gitrepo.MaxIndexSize {
		return nil
	}
	data, err := os.ReadFile(file)
	// The mode of a submodule, and an index that is a difference to another one, are rare, and parsing
	// an index takes longer than reading it.
	if err != nil || !bytes.Contains(data, []byte{0, 0, 0o160000 >> 8, 0}) &&
		!bytes.Contains(data, []byte("link")) {
		return nil
	}
	index, err := gitrepo.ParseIndex(data)
	if err != nil {
		return nil
	}
	if index.Shared != "" && !strings.Contains(filepath.Base(file), index.Shared) {
		shared := filepath.Join(filepath.Dir(file), "sharedindex."+index.Shared)
		return append(index.Submodules, submodules(shared)...)
	}
	return index.Submodules
}

// isEmptyDir reports whether name is an empty directory.
func isEmptyDir(name string) bool {
	entries, err := os.ReadDir(name)
	return err == nil && len(entries) == 0
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
