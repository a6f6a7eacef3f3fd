package workspace

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

const (
	// maxDepth bounds chains of repositories that borrow objects; it is git's limit.
	maxDepth = 5
	// maxStores bounds the number of repositories that one borrows from.
	maxStores = 1000
)

// gitPacker writes the .git of repositories to a tar stream.
type gitPacker struct {
	w       *tar.Writer
	now     time.Time
	buf     []byte
	maxSize int64 // of all repositories; 0 is no limit
	size    int64
}

// pack writes the .git of one repository.
func (p *gitPacker) pack(ctx context.Context, r *repository) error {
	top := path.Join(r.name, gitrepo.DirName)
	for _, dir := range []string{
		"", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags",
	} {
		if err := p.header(tar.TypeDir, path.Join(top, dir)+"/", 0o755, 0); err != nil {
			return err
		}
	}
	for _, f := range r.files {
		if err := p.content(path.Join(top, f.name), 0o644, int64(len(f.content)),
			strings.NewReader(string(f.content))); err != nil {
			return err
		}
	}
	borrowed, foreign, err := findStores(r.store(), r.lenders)
	if err == nil && foreign != "" { // since the workspace was opened
		err = r.borrowsError(foreign)
	}
	if err != nil {
		return err
	}
	common, err := os.OpenRoot(r.git.Common)
	if err != nil {
		return err
	}
	defer func() { _ = common.Close() }()
	s := &objectSender{p: p, to: path.Join(top, gitrepo.Objects), sent: make(map[string]bool)}
	err = s.store(ctx, func() (*os.Root, error) { return common.OpenRoot(gitrepo.Objects) })
	for _, name := range borrowed {
		if err == nil {
			err = s.store(ctx, func() (*os.Root, error) { return os.OpenRoot(name) })
		}
	}
	return err
}

func (p *gitPacker) header(kind byte, name string, mode, size int64) error {
	return p.w.WriteHeader(&tar.Header{
		Typeflag: kind, Name: name, Mode: mode, Size: size,
		ModTime: p.now, Format: tar.FormatPAX,
	})
}

// content writes a file of size bytes.
func (p *gitPacker) content(name string, mode, size int64, r io.Reader) error {
	if p.maxSize > 0 && size > p.maxSize-p.size {
		return fmt.Errorf("%w: the git repositories have more than %d bytes",
			env.ErrTreeTooLarge, p.maxSize)
	}
	p.size += size
	if err := p.header(tar.TypeReg, name, mode, size); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.w}, struct{ io.Reader }{io.LimitReader(r, size)},
		p.buf)
	if err == nil && n != size {
		err = fmt.Errorf("%s: the file changed while it was read: %w", name, io.ErrUnexpectedEOF)
	}
	return err
}

// objectSender writes the objects of one repository, from its store and those it borrows from.
type objectSender struct {
	p    *gitPacker
	to   string
	sent map[string]bool
	// missed is true if a listed file was missing.
	missed bool
}

// errMissingStore means that the store of another repository does not exist.
var errMissingStore = errors.New("it borrows objects from another repository, which is missing")

// findStores returns the stores that the one with the absolute path name borrows objects from,
// directly or not, without itself. If one of them is in none of the directories lenders, it is
// returned as foreign: anybody can name any store in a list of alternates, and nothing in that
// store confirms it.
func findStores(name string, lenders []string) (stores []string, foreign string, err error) {
	found := map[string]bool{name: true}
	level := []string{name}
	for depth := 0; len(level) > 0; depth++ {
		var next []string
		for _, store := range level {
			others, err := readAlternates(store)
			if err != nil {
				return nil, "", err
			}
			for _, other := range others {
				real, err := filepath.EvalSymlinks(gitrepo.Resolve(store, other))
				switch {
				case err != nil:
					return nil, "", fmt.Errorf("%w: %w", errMissingStore, err)
				case found[real]:
					continue
				case !slices.ContainsFunc(lenders, func(d string) bool { return gitrepo.Contains(d, real) }):
					return nil, real, nil
				}
				found[real] = true
				next = append(next, real)
			}
		}
		if stores = append(stores, next...); depth > maxDepth || len(stores) > maxStores {
			return nil, "", errors.New("it borrows objects from too many repositories (run " +
				"git repack -a -d to copy them)")
		}
		level = next
	}
	return stores, "", nil
}

// readAlternates returns the list of alternates of a store.
func readAlternates(store string) ([]string, error) {
	root, err := os.OpenRoot(store)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissingStore, err)
	}
	defer func() { _ = root.Close() }()
	content, err := gitrepo.ReadFile(root, "info/alternates", maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return parseAlternates(content)
}

// parseAlternates reads a list of stores to borrow from.
func parseAlternates(content []byte) ([]string, error) {
	var names []string
	for name := range strings.Lines(string(content)) {
		name = strings.TrimRight(name, "\r\n")
		if name == "" || name[0] == '#' {
			continue
		}
		if name[0] == '"' {
			plain, err := strconv.Unquote(name)
			if err != nil {
				return nil, fmt.Errorf("it borrows objects from %s, which is malformed", name)
			}
			name = plain
		}
		names = append(names, name)
	}
	return names, nil
}

// store writes the objects in a store.
func (s *objectSender) store(ctx context.Context, open func() (*os.Root, error)) error {
	store, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return s.objects(ctx, store)
}

// maxPasses bounds the number of listings of a store while git moves objects.
const maxPasses = 10

// objects writes the loose objects and the packs of a store. Git removes a file only after it has
// moved the objects to another one, so a new listing finds the objects of a missing file.
func (s *objectSender) objects(ctx context.Context, store *os.Root) error {
	for range maxPasses {
		s.missed = false
		if err := s.loose(ctx, store); err != nil {
			return err
		}
		if err := s.packs(ctx, store); err != nil {
			return err
		}
		if !s.missed {
			return nil
		}
	}
	return errors.New("git changed it meanwhile (try again)")
}

// vanished reports whether err is of a missing file, and records that in s.missed.
func (s *objectSender) vanished(err error) bool {
	gone := errors.Is(err, fs.ErrNotExist)
	s.missed = s.missed || gone
	return gone
}

func (s *objectSender) loose(ctx context.Context, store *os.Root) error {
	dirs, err := readDir(store, ".")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if len(dir) != 2 || !isHex(dir) {
			continue
		}
		names, err := readDir(store, dir)
		if s.vanished(err) {
			continue
		}
		if err != nil {
			return unreadable(err)
		}
		for _, name := range names {
			if objectPattern().MatchString(dir + name) {
				if err := s.send(ctx, store, dir+"/"+name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *objectSender) packs(ctx context.Context, store *os.Root) error {
	names, err := readDir(store, "pack")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unreadable(err)
	}
	for _, name := range names {
		base, ok := strings.CutSuffix(name, ".idx")
		number, ok2 := strings.CutPrefix(base, "pack-")
		if !ok || !ok2 || !isHex(number) {
			continue // Git ignores a pack without its index.
		}
		base = "pack/" + base
		if promisor := base + ".promisor"; slices.Contains(names, path.Base(promisor)) &&
			!s.sent[promisor] {
			// Its existence means that missing objects are not damage; git ignores its content.
			s.sent[promisor] = true
			if err := s.p.content(path.Join(s.to, promisor), 0o444, 0, strings.NewReader("")); err != nil {
				return err
			}
		}
		if err := s.send(ctx, store, base+".pack", base+".idx"); err != nil {
			return err
		}
	}
	return nil
}

// send writes files of a store that belong together; none if one is missing. It skips files that
// were sent from another store, which have the same content.
func (s *objectSender) send(ctx context.Context, store *os.Root, names ...string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	type opened struct {
		name string
		file *os.File
		size int64
	}
	var files []opened
	defer func() {
		for _, f := range files {
			_ = f.file.Close()
		}
	}()
	for _, name := range names {
		if s.sent[name] {
			continue
		}
		f, size, err := gitrepo.OpenFile(store, name)
		if s.vanished(err) {
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		files = append(files, opened{name, f, size})
	}
	for _, f := range files {
		s.sent[f.name] = true
		if err := s.p.content(path.Join(s.to, f.name), 0o444, f.size, f.file); err != nil {
			return err
		}
	}
	return nil
}

// unreadable is the error for an object that cannot be read.
func unreadable(err error) error {
	return fmt.Errorf("read its objects: %w (make them readable, or repair them with git fsck)", err)
}

// readDir returns the sorted names in a directory. It opens "name/." since opening a FIFO would
// wait.
func readDir(root *os.Root, name string) ([]string, error) {
	f, err := root.Open(name + "/.")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdef") == ""
}
