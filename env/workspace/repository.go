package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

const (
	// maxList bounds the size of git's lists, such as packed-refs, in bytes.
	maxList = 256 << 20
	// maxRefs bounds the number of loose references.
	maxRefs = 1_000_000
)

// repository is the uploaded part of one repository, except its objects. Those are read last, when
// they are sent, so that all objects of the recorded references are among them.
type repository struct {
	// name is the top of its working tree, relative to the workspace; "." for the workspace itself.
	name string
	git  gitrepo.Dirs
	// lenders are the directories with the stores that the repository may borrow objects from.
	lenders []string
	// foreign is another store that it borrows from; if it is not empty, the repository is not
	// uploaded.
	foreign  string
	format   repositoryFormat
	settings []gitrepo.Setting
	// rebasing is true during a rebase or git am.
	rebasing bool
	files    []gitFile
	index    *gitrepo.Index
	// shared is the index that index is a difference to, if any.
	shared *gitrepo.Index
}

// gitFile is a file of the uploaded .git.
type gitFile struct {
	name    string
	content []byte
}

// openRepository reads the uploaded part of a repository.
func openRepository(
	name string, git gitrepo.Dirs, lenders []string,
) (_ *repository, err error) {
	private, err := os.OpenRoot(git.Private)
	if err != nil {
		return nil, err
	}
	defer func() { _ = private.Close() }()
	common, err := os.OpenRoot(git.Common)
	if err != nil {
		return nil, err
	}
	defer func() { _ = common.Close() }()

	if err := errors.Join(refuseSymlinks(private), refuseSymlinks(common)); err != nil {
		return nil, err
	}
	r := &repository{name: name, git: git, lenders: lenders}
	for _, step := range []func(private, common *os.Root) error{
		r.readConfig, r.readHead, r.readRefs, r.readIndex, r.readInfo, r.findForeign,
	} {
		if err := step(private, common); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// refuseSymlinks refuses a git directory with symlinks out of it.
func refuseSymlinks(root *os.Root) error {
	for _, name := range []string{
		gitrepo.Head, "config", "index", "info", gitrepo.Objects, "packed-refs", gitrepo.Refs, "shallow",
	} {
		fi, err := root.Lstat(name)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its %s is a symlink that leads out of it: %w (use git worktree add to make "+
				"a second working tree)", name, err)
		}
	}
	return nil
}

// file returns the content of an uploaded file, or nil.
func (r *repository) file(name string) []byte {
	for _, f := range r.files {
		if f.name == name {
			return f.content
		}
	}
	return nil
}

func (r *repository) add(name string, content []byte) {
	r.files = append(r.files, gitFile{name, content})
}

// errBare means that a repository with a .git directory is configured as bare.
var errBare = errors.New("it is a bare repository, without a working tree (core.bare)")

// readConfig reads the configuration and adds the sanitised one.
func (r *repository) readConfig(private, common *os.Root) error {
	content, err := gitrepo.ReadFile(common, "config", maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	settings, err := gitrepo.ParseConfig(content)
	if err != nil {
		return err
	}
	if r.format, err = readFormat(settings); err != nil {
		return err
	}
	if r.format.worktreeConfig {
		content, err := gitrepo.ReadFile(private, "config.worktree", maxSmall)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		more, err := gitrepo.ParseConfig(content)
		if err != nil {
			return err
		}
		settings = append(settings, more...)
		if r.format, err = readFormat(settings); err != nil {
			return err
		}
	}
	if r.format.bare && r.git.Private == r.git.Common {
		return errBare
	}
	r.settings = settings
	r.add("config", gitrepo.FormatConfig(sanitise(settings)))
	return nil
}

// readHead adds HEAD and, if they contain only object IDs, the heads of operations in progress.
func (r *repository) readHead(private, _ *os.Root) error {
	head, err := gitrepo.ReadFile(private, gitrepo.Head, maxSmall)
	if err != nil {
		return err
	}
	head, ok := cleanRef(head)
	if !ok {
		return errors.New("its HEAD is malformed")
	}
	r.add(gitrepo.Head, head)
	for _, name := range []string{"rebase-merge", "rebase-apply"} {
		if _, err := private.Lstat(name); err == nil {
			r.rebasing = true
		}
	}
	for _, name := range []string{"ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"} {
		if content, err := gitrepo.ReadFile(private, name, maxSmall); err == nil {
			if names, ok := cleanObjects(content); ok {
				r.add(name, names)
			}
		}
	}
	return nil
}

// cleanRef returns the content of a reference as git writes it: an object ID or the name of another
// reference.
func cleanRef(content []byte) ([]byte, bool) {
	text := strings.TrimRight(string(content), " \t\r\n")
	if to, ok := strings.CutPrefix(text, "ref:"); ok {
		to = strings.TrimLeft(to, " \t")
		return []byte("ref: " + to + "\n"), refPattern().MatchString(to)
	}
	return []byte(text + "\n"), objectPattern().MatchString(text)
}

// cleanObjects returns a list of object IDs, one per line.
func cleanObjects(content []byte) ([]byte, bool) {
	var out []byte
	for line := range bytes.Lines(content) {
		line = bytes.TrimRight(line, "\r\n")
		if !objectPattern().Match(line) {
			return nil, false
		}
		out = append(append(out, line...), '\n')
	}
	return out, true
}

// readRefs adds the references that all working trees share.
func (r *repository) readRefs(_, common *os.Root) error {
	packed, err := gitrepo.ReadFile(common, "packed-refs", maxList)
	switch {
	case err == nil:
		r.add("packed-refs", cleanPackedRefs(packed))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	n := 0
	return fs.WalkDir(common.FS(), "refs", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name {
		case "refs/bisect", "refs/worktree", "refs/rewritten":
			return fs.SkipDir // They belong to one working tree.
		}
		if n++; n > maxRefs {
			return fmt.Errorf("it has more than %d references (run git pack-refs --all)", maxRefs)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := gitrepo.ReadFile(common, name, maxSmall)
		if err != nil {
			return err
		}
		if content, ok := cleanRef(content); ok && refPattern().MatchString(name) {
			r.add(name, content)
		}
		return nil
	})
}

// cleanPackedRefs returns the valid lines: references, and the peeled objects of tags among them.
func cleanPackedRefs(content []byte) []byte {
	var out []byte
	kept := false
	for line := range bytes.Lines(content) {
		text := strings.TrimRight(string(line), "\r\n")
		object, name, _ := strings.Cut(text, " ")
		peeled, isPeeled := strings.CutPrefix(text, "^")
		switch {
		case strings.HasPrefix(text, "# pack-refs with:") && len(out) == 0:
		case isPeeled && kept && objectPattern().MatchString(peeled):
		case objectPattern().MatchString(object) && refPattern().MatchString(name):
			kept = true
		default:
			kept = false
			continue
		}
		out = append(append(out, text...), '\n')
	}
	return out
}

// readIndex adds the index.
func (r *repository) readIndex(private, _ *os.Root) error {
	index, err := r.addIndex(private, "index")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.index = index
	if index.Shared != "" {
		r.shared, err = r.addIndex(private, "sharedindex."+index.Shared)
	}
	return err
}

func (r *repository) addIndex(private *os.Root, name string) (*gitrepo.Index, error) {
	content, err := gitrepo.ReadFile(private, name, gitrepo.MaxIndexSize)
	if err != nil {
		return nil, err
	}
	index, err := gitrepo.ParseIndex(content)
	if err == nil {
		content, err = index.Portable(content)
	}
	if err != nil {
		return nil, fmt.Errorf("its %s: %w (run git read-tree HEAD to rebuild it)", name, err)
	}
	r.add(name, content)
	return index, nil
}

// readInfo adds the files of info that git reads, and shallow.
func (r *repository) readInfo(private, common *os.Root) error {
	for _, f := range []struct {
		in   *os.Root
		name string
	}{
		{common, "info/exclude"},
		{common, "info/attributes"},
		{private, "info/sparse-checkout"},
		{common, "shallow"},
	} {
		content, err := gitrepo.ReadFile(f.in, f.name, maxList)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if f.name == "shallow" {
			var ok bool
			if content, ok = cleanObjects(content); !ok {
				return errors.New("its file shallow is malformed")
			}
		}
		r.add(f.name, content)
	}
	return nil
}

// store returns the path of the repository's own objects.
func (r *repository) store() string { return filepath.Join(r.git.Common, gitrepo.Objects) }

// findForeign sets foreign.
func (r *repository) findForeign(_, _ *os.Root) (err error) {
	_, r.foreign, err = findStores(r.store(), r.lenders)
	return err
}

// borrowsError is the error for a store that the repository may not borrow from.
func (r *repository) borrowsError(foreign string) error {
	return fmt.Errorf("it borrows objects from %s, which is not its own (to copy them, run "+
		"git repack -a -d in it and remove %s)", foreign,
		filepath.Join(r.store(), "info", "alternates"))
}

// tracked returns the tracked files, relative to the workspace.
func (r *repository) tracked() []string {
	var names []string
	for _, index := range []*gitrepo.Index{r.index, r.shared} {
		if index != nil {
			names = append(names, index.Files...)
		}
	}
	return r.inWorkspace(names)
}

// addModes adds to modes whether tracked files are executable, if only the index records that.
func (r *repository) addModes(modes map[string]bool) {
	if !r.format.noFileMode {
		return
	}
	for _, index := range []*gitrepo.Index{r.shared, r.index} {
		if index == nil {
			continue
		}
		for _, name := range r.inWorkspace(index.Files) {
			modes[name] = false
		}
		for _, name := range r.inWorkspace(index.Executables) {
			modes[name] = true
		}
	}
}

// submodules returns the directories of submodules, relative to the workspace.
func (r *repository) submodules() []string {
	if r.index == nil {
		return nil
	}
	return r.inWorkspace(r.index.Submodules)
}

// inWorkspace returns the names relative to the workspace.
func (r *repository) inWorkspace(names []string) []string {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = path.Join(r.name, name)
	}
	return names
}
