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
)

const (
	// maxDepth is how far a repository may borrow from one that borrows itself; it is git's own limit.
	maxDepth = 5
	// maxStores is from how many repositories one may borrow.
	maxStores = 1000
)

// gitPacker writes the .git of repositories to a tar stream.
type gitPacker struct {
	w       *tar.Writer
	now     time.Time
	buf     []byte
	maxSize int64 // of all; 0 is no limit
	size    int64
}

// pack writes one repository.
func (p *gitPacker) pack(ctx context.Context, r *repository) error {
	top := path.Join(r.name, gitName)
	for _, dir := range []string{"", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"} {
		if err := p.header(tar.TypeDir, path.Join(top, dir)+"/", 0o755, 0); err != nil {
			return err
		}
	}
	for _, f := range r.files {
		if err := p.content(path.Join(top, f.name), 0o644, int64(len(f.content)), strings.NewReader(string(f.content))); err != nil {
			return err
		}
	}
	s := &objectSender{p: p, to: path.Join(top, "objects"), sent: make(map[string]bool), stores: make(map[string]bool)}
	common, err := os.OpenRoot(r.git.common)
	if err != nil {
		return err
	}
	defer func() { _ = common.Close() }()
	store, err := common.OpenRoot("objects")
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return s.store(ctx, store, filepath.Join(r.git.common, "objects"), r.borrows, 0)
}

func (p *gitPacker) header(kind byte, name string, mode, size int64) error {
	return p.w.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: size, ModTime: p.now, Format: tar.FormatPAX})
}

// content writes a file.
func (p *gitPacker) content(name string, mode, size int64, r io.Reader) error {
	if p.maxSize > 0 && size > p.maxSize-p.size {
		return fmt.Errorf("%w: the git repositories have more than %d bytes", env.ErrTreeTooLarge, p.maxSize)
	}
	p.size += size
	if err := p.header(tar.TypeReg, name, mode, size); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.w}, struct{ io.Reader }{io.LimitReader(r, size)}, p.buf)
	if err == nil && n != size {
		err = fmt.Errorf("%s: the file changed while it was read: %w", name, io.ErrUnexpectedEOF)
	}
	return err
}

// objectSender writes the objects of one repository, from its own store and from those that it borrows from.
type objectSender struct {
	p      *gitPacker
	to     string
	sent   map[string]bool
	stores map[string]bool
}

// store writes the objects in one store, which has an absolute name.
func (s *objectSender) store(ctx context.Context, store *os.Root, name string, borrows bool, depth int) error {
	s.stores[name] = true
	if depth > maxDepth || len(s.stores) > maxStores {
		return errors.New("it borrows objects from too many repositories; run git repack -a -d to have them all in it")
	}
	alternates, err := readFile(store, "info/alternates", maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.objects(ctx, store); err != nil {
		return err
	}
	others, err := parseAlternates(alternates)
	if err != nil {
		return err
	}
	if len(others) > 0 && !borrows {
		return errBorrows
	}
	for _, other := range others {
		if err := s.borrowed(ctx, resolve(name, other), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// errBorrows means that a repository inside the workspace has objects elsewhere, which it may not lead to.
var errBorrows = errors.New("it borrows objects from another repository")

func (s *objectSender) borrowed(ctx context.Context, name string, depth int) error {
	real, err := filepath.EvalSymlinks(name)
	if err == nil && s.stores[real] {
		return nil
	}
	var store *os.Root
	if err == nil {
		store, err = os.OpenRoot(real)
	}
	if err != nil {
		return fmt.Errorf("it borrows objects from another repository, which is missing: %w", err)
	}
	defer func() { _ = store.Close() }()
	return s.store(ctx, store, real, true, depth)
}

// parseAlternates reads the list of stores to borrow from.
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
				return nil, fmt.Errorf("it borrows objects from %s, which cannot be understood", name)
			}
			name = plain
		}
		names = append(names, name)
	}
	return names, nil
}

// objects writes the loose objects and the packs of a store.
func (s *objectSender) objects(ctx context.Context, store *os.Root) error {
	folders, err := readDir(store, ".")
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if len(folder) != 2 || !isHex(folder) {
			continue
		}
		names, err := readDir(store, folder)
		if err != nil {
			return err
		}
		for _, name := range names {
			if objectPattern().MatchString(folder + name) {
				if err := s.file(ctx, store, folder+"/"+name); err != nil {
					return err
				}
			}
		}
	}
	names, err := readDir(store, "pack")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		number, ok := strings.CutPrefix(name, "pack-")
		number, ext, _ := strings.Cut(number, ".")
		if !ok || !isHex(number) || !slices.Contains(names, "pack-"+number+".idx") {
			continue // Git does not see a pack without its index.
		}
		switch ext {
		case "idx", "pack":
			err = s.file(ctx, store, "pack/"+name)
		case "promisor":
			// That it is there says that what lacks is no damage; what it holds is for people.
			if !s.sent["pack/"+name] {
				s.sent["pack/"+name] = true
				err = s.p.content(path.Join(s.to, "pack", name), 0o444, 0, strings.NewReader(""))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// file writes one file of a store, unless one of that name came from another: it has the same content.
func (s *objectSender) file(ctx context.Context, store *os.Root, name string) error {
	if s.sent[name] {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f, size, err := openFile(store, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s.sent[name] = true
	return s.p.content(path.Join(s.to, name), 0o444, size, f)
}

// readDir returns the names in a folder, sorted. Something in the folder is named, since opening a pipe would wait.
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
