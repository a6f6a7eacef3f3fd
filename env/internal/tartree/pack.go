package tartree

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/sandboxagent/sandboxagent/env"
)

// headSize is the length of the start of a file that is read before its header is written. A file
// that fits is packed with the size read, even if it changes meanwhile.
const headSize = 64 << 10

// PackOptions are options of Pack.
type PackOptions struct {
	// Names are slash-separated names relative to the root, of files or of directories with their
	// trees. None means the whole root. A name that leaves the root is env.ErrEscapes, a missing one
	// fs.ErrNotExist.
	Names []string
	// Skip, if set, reports the names to leave out, with the trees of directories. Pack does not call
	// it for Names.
	Skip func(name string) bool
}

// Pack writes the tree below root to w as a tar stream. A directory precedes its entries, which are
// in lexical order; the same tree gives the same bytes. Symlinks are packed as symlinks whatever
// their targets. FIFOs, sockets and devices are left out, and so is a file that vanishes while its
// directory is packed. A file that grows is cut to its former size; a large file that shrinks is
// ErrShrunk. After an error the stream has no end mark, so that no reader takes it for complete.
// After the end of ctx, Pack returns when the current Write of w does.
func Pack(ctx context.Context, w io.Writer, root *os.Root, opts PackOptions) error {
	p := newPacker(ctx, w)
	p.skip = opts.Skip
	if len(opts.Names) == 0 {
		opts.Names = []string{"."}
	}
	names := make([]string, 0, len(opts.Names))
	for _, name := range opts.Names {
		clean, err := cleanName(name)
		if err != nil {
			return fmt.Errorf("pack: %w", &fs.PathError{Op: "open", Path: name, Err: err})
		}
		names = append(names, clean)
	}
	slices.SortFunc(names, compareNames)
	var dir string // the last packed directory
	for i, name := range names {
		if i > 0 && (name == names[i-1] || dir == "." || dir != "" && strings.HasPrefix(name, dir+"/")) {
			continue
		}
		isDir, err := p.named(root, name)
		if err != nil {
			return fmt.Errorf("pack: %w", escapes(err))
		}
		if isDir {
			dir = name
		}
	}
	if err := p.tw.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

// PackFile writes the open regular file f to w as a tar stream with one entry, called name.
func PackFile(ctx context.Context, w io.Writer, f *os.File, name string) error {
	p := newPacker(ctx, w)
	clean, err := cleanName(name)
	if err != nil {
		return fmt.Errorf("pack: %w", &fs.PathError{Op: "open", Path: name, Err: err})
	}
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("pack: %w", &fs.PathError{Op: "open", Path: f.Name(), Err: ErrSpecial})
	}
	if err := p.content(f, fi, clean); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if err := p.tw.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

// compareNames orders names as a walk visits them: by their elements, so that "a/b" precedes "a-b".
func compareNames(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "/"), strings.Split(b, "/"), cmp.Compare[string])
}

type packer struct {
	check func() error
	skip  func(name string) bool // nil skips nothing
	tw    *tar.Writer
	buf   []byte
}

func newPacker(ctx context.Context, w io.Writer) *packer {
	return &packer{
		check: func() error { return env.ContextError(ctx) },
		tw:    tar.NewWriter(w),
		buf:   make([]byte, headSize),
	}
}

// named packs one of PackOptions.Names, which must exist, and reports whether it is a directory.
func (p *packer) named(root *os.Root, name string) (isDir bool, err error) {
	if name == "." {
		return true, p.dir(root, "")
	}
	fi, err := root.Lstat(name)
	if err != nil {
		return false, err
	}
	return fi.IsDir(), relabel(p.entry(root, name, fi, name), name, name)
}

// dir packs the entries of root, with prefix before each name.
func (p *packer) dir(root *os.Root, prefix string) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := p.check(); err != nil {
			return err
		}
		full := path.Join(prefix, name)
		if p.skip != nil && p.skip(full) {
			continue
		}
		fi, err := root.Lstat(name)
		if err == nil {
			err = p.entry(root, name, fi, full)
		}
		if err != nil && !vanished(root, name, err) {
			return relabel(err, name, full)
		}
	}
	return nil
}

// relabel replaces the name relative to a directory in an error by the full name.
func relabel(err error, local, full string) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && (pe.Path == local || pe.Path == ".") {
		return &fs.PathError{Op: pe.Op, Path: full, Err: pe.Err}
	}
	return err
}

// vanished reports whether err is of a file that no longer exists.
func vanished(root *os.Root, name string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = root.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// entry packs one file, symlink or directory with its tree. Local is its name in root, full its
// name in the archive.
func (p *packer) entry(root *os.Root, local string, fi fs.FileInfo, full string) error {
	switch {
	case fi.IsDir():
		return p.subdir(root, local, fi, full)
	case fi.Mode().IsRegular():
		return p.file(root, local, full)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(local)
		if errors.Is(err, syscall.EINVAL) { // another file has replaced the symlink
			err = &fs.PathError{Op: "readlink", Path: full, Err: ErrReplaced}
		}
		if err != nil {
			return err
		}
		return p.header(fi, full, target)
	default:
		return nil
	}
}

func (p *packer) subdir(root *os.Root, local string, fi fs.FileInfo, full string) error {
	sub, err := openDir(root, local)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	now, err := sub.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(fi, now) {
		return &fs.PathError{Op: "open", Path: full, Err: ErrReplaced}
	}
	if err := p.header(fi, full, ""); err != nil {
		return err
	}
	return p.dir(sub, full)
}

func (p *packer) file(root *os.Root, local, full string) error {
	f, err := root.OpenFile(local, readFlags, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		// A symlink or a socket has replaced the file.
		err = &fs.PathError{Op: "open", Path: full, Err: ErrReplaced}
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !now.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: full, Err: ErrReplaced}
	}
	return p.content(f, now, full)
}

// content packs an open regular file.
func (p *packer) content(f *os.File, fi fs.FileInfo, full string) error {
	n, err := io.ReadFull(f, p.buf)
	size := int64(n)
	switch {
	case err == nil:
		size = max(size, fi.Size())
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	if err := p.header(sized{fi, size}, full, ""); err != nil {
		return err
	}
	if _, err := p.tw.Write(p.buf[:n]); err != nil {
		return err
	}
	_, err = io.CopyN(p.tw, contextReader{p.check, f}, size-int64(n))
	if errors.Is(err, io.EOF) {
		err = &fs.PathError{Op: "read", Path: full, Err: ErrShrunk}
	}
	return err
}

// sized is a FileInfo with the packed size.
type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

// header writes the header of an entry.
func (p *packer) header(fi fs.FileInfo, full, target string) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     full,
		Mode:     int64(fi.Mode().Perm()),
		ModTime:  fi.ModTime(),
		// Other formats cut times to the second, so that builds would take stale outputs for fresh.
		Format: tar.FormatPAX,
	}
	if fi.Mode()&fs.ModeSetuid != 0 {
		h.Mode |= 0o4000
	}
	if fi.Mode()&fs.ModeSetgid != 0 {
		h.Mode |= 0o2000
	}
	if fi.Mode()&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case fi.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case target != "":
		h.Typeflag = tar.TypeSymlink
		h.Linkname = target
	default:
		h.Size = fi.Size()
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("%q: %w", full, err)
	}
	return nil
}
