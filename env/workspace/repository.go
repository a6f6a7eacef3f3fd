package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitindex"
)

const (
	// maxList is the size of the largest of git's lists that is read, such as that of packed
	// references, in bytes.
	maxList = 256 << 20
	// maxRefs is how many references that have a file of their own are read.
	maxRefs = 1_000_000
)

// repository is what of one repository goes along, but for its objects, which are read when they
// are sent. They come last so that all that the references need is there.
type repository struct {
	// name is the folder it is the top of, relative to the workspace; "." for that itself.
	name string
	git  gitFolders
	// borrows says that the repository may have its objects in others.
	borrows bool
	// elsewhere says that .git is a file that tells where the rest is.
	elsewhere bool
	format    repositoryFormat
	settings  []setting
	// rebasing says that a rebase, or git am, has not ended.
	rebasing bool
	files    []gitFile
	index    *gitindex.Index
	// shared is the index that index is the difference to, if any.
	shared *gitindex.Index
}

// gitFile is a file in the .git that goes along.
type gitFile struct {
	name    string
	content []byte
}

// openRepository reads what of a repository goes along.
func openRepository(
	name string, git gitFolders, elsewhere, borrows bool,
) (_ *repository, err error) {
	own, err := os.OpenRoot(git.own)
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }()
	common, err := os.OpenRoot(git.common)
	if err != nil {
		return nil, err
	}
	defer func() { _ = common.Close() }()

	if err := errors.Join(checkLinks(own), checkLinks(common)); err != nil {
		return nil, err
	}
	r := &repository{name: name, git: git, borrows: borrows, elsewhere: elsewhere}
	for _, step := range []func(own, common *os.Root) error{
		r.readConfig, r.readHead, r.readRefs,
		r.readIndex, r.readInfo, r.checkObjects,
	} {
		if err := step(own, common); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// checkLinks refuses a folder of git that has links to other places in it.
func checkLinks(root *os.Root) error {
	for _, name := range []string{
		partHead, "config", "index", "info", partObjects, "packed-refs",
		partRefs, "shallow",
	} {
		fi, err := root.Lstat(name)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its %s is a link that leads elsewhere: %w; use git worktree add to have a "+
				"second working tree", name, err)
		}
	}
	return nil
}

// file returns the content of a file that goes along; nil if there is none.
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

// errBare means that a repository has no working tree where one is looked for.
var errBare = errors.New("it is a bare repository, without a working tree here (core.bare)")

// readConfig makes the configuration.
func (r *repository) readConfig(own, common *os.Root) error {
	content, err := readFile(common, "config", maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	settings, err := parseConfig(content)
	if err != nil {
		return err
	}
	if r.format, err = readFormat(settings); err != nil {
		return err
	}
	if r.format.worktreeConfig {
		content, err := readFile(own, "config.worktree", maxSmall)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		more, err := parseConfig(content)
		if err != nil {
			return err
		}
		settings = append(settings, more...)
		if r.format, err = readFormat(settings); err != nil {
			return err
		}
	}
	if r.format.bare && r.git.own == r.git.common {
		return errBare
	}
	r.settings = settings
	r.add("config", formatConfig(sanitise(settings)))
	return nil
}

// readHead takes HEAD and, where they hold nothing but names of objects, the heads of operations in
// progress.
func (r *repository) readHead(own, _ *os.Root) error {
	head, err := readFile(own, partHead, maxSmall)
	if err != nil {
		return err
	}
	head, ok := cleanRef(head)
	if !ok {
		return errors.New("its HEAD cannot be understood")
	}
	r.add(partHead, head)
	for _, name := range []string{"rebase-merge", "rebase-apply"} {
		if _, err := own.Lstat(name); err == nil {
			r.rebasing = true
		}
	}
	for _, name := range []string{"ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"} {
		if content, err := readFile(own, name, maxSmall); err == nil {
			if names, ok := cleanObjects(content); ok {
				r.add(name, names)
			}
		}
	}
	return nil
}

// cleanRef returns the content of a reference as git writes it: the name of an object or of another
// reference.
func cleanRef(content []byte) ([]byte, bool) {
	text := strings.TrimRight(string(content), " \t\r\n")
	if to, ok := strings.CutPrefix(text, "ref:"); ok {
		to = strings.TrimLeft(to, " \t")
		return []byte("ref: " + to + "\n"), refPattern().MatchString(to)
	}
	return []byte(text + "\n"), objectPattern().MatchString(text)
}

// cleanObjects returns a list of names of objects, one a line.
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

// readRefs takes the references that all working trees share.
func (r *repository) readRefs(_, common *os.Root) error {
	packed, err := readFile(common, "packed-refs", maxList)
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
			return fmt.Errorf("it has more than %d references; run git pack-refs --all", maxRefs)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := readFile(common, name, maxSmall)
		if err != nil {
			return err
		}
		if content, ok := cleanRef(content); ok && refPattern().MatchString(name) {
			r.add(name, content)
		}
		return nil
	})
}

// cleanPackedRefs returns the lines that are references, and the objects that tags among them stand
// for.
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

// readIndex takes the index.
func (r *repository) readIndex(own, _ *os.Root) error {
	index, err := r.takeIndex(own, "index")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.index = index
	if index.Shared != "" {
		r.shared, err = r.takeIndex(own, "sharedindex."+index.Shared)
	}
	return err
}

func (r *repository) takeIndex(own *os.Root, name string) (*gitindex.Index, error) {
	content, err := readFile(own, name, gitindex.MaxSize)
	if err != nil {
		return nil, err
	}
	index, err := gitindex.Parse(content)
	if err == nil {
		content, err = index.Portable(content)
	}
	if err != nil {
		return nil, fmt.Errorf("its %s: %w; run git read-tree HEAD to make it anew", name, err)
	}
	r.add(name, content)
	return index, nil
}

// readInfo takes the lists that git keeps beside.
func (r *repository) readInfo(own, common *os.Root) error {
	for _, f := range []struct {
		in   *os.Root
		name string
	}{{common, "info/exclude"}, {common, "info/attributes"}, {own, "info/sparse-checkout"}, {
		common,
		"shallow",
	}} {
		content, err := readFile(f.in, f.name, maxList)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if f.name == "shallow" {
			var ok bool
			if content, ok = cleanObjects(content); !ok {
				return errors.New("its file shallow cannot be understood")
			}
		}
		r.add(f.name, content)
	}
	return nil
}

// checkObjects refuses a repository that borrows objects and may not.
func (r *repository) checkObjects(_, common *os.Root) error {
	if r.borrows {
		return nil
	}
	alternates, err := readFile(common, "objects/info/alternates", maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(bytes.TrimSpace(alternates)) > 0 {
		err = errBorrows
	}
	return err
}

// tracked returns the names of the files that git tracks in the repository, relative to the
// workspace.
func (r *repository) tracked() []string {
	var names []string
	for _, index := range []*gitindex.Index{r.index, r.shared} {
		if index != nil {
			names = append(names, index.Files...)
		}
	}
	return r.placed(names)
}

// executables adds to modes whether the files that git tracks are executable, if only the index
// says that.
func (r *repository) executables(modes map[string]bool) {
	if !r.format.noFileMode {
		return
	}
	for _, index := range []*gitindex.Index{r.shared, r.index} {
		if index == nil {
			continue
		}
		for _, name := range r.placed(index.Files) {
			modes[name] = false
		}
		for _, name := range r.placed(index.Executables) {
			modes[name] = true
		}
	}
}

// submodules returns the names of the folders of submodules, relative to the workspace.
func (r *repository) submodules() []string {
	if r.index == nil {
		return nil
	}
	return r.placed(r.index.Submodules)
}

func (r *repository) placed(names []string) []string {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = path.Join(r.name, name)
	}
	return names
}
