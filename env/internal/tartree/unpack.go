package tartree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// UnpackOptions are limits on what an archive may do. The zero value has none but the root.
type UnpackOptions struct {
	// MaxEntries bounds the number of entries, including folders that entries need without naming
	// them; zero means no limit.
	MaxEntries int
	// MaxBytes bounds the sum of the sizes of all files; zero means no limit.
	MaxBytes int64
	// RefuseOutsideLinks refuses symbolic links that point out of the root, and entries that pass
	// through a symbolic link. Then no link that the archive brought leads its reader out of the root.
	// Without it links are made as they are, though nothing is ever written through one that leaves
	// the root.
	RefuseOutsideLinks bool
	// Skip, if set, leaves out the entries whose clean name it returns true for, though they count for
	// the limits. It is asked before anything is made of an entry.
	Skip func(name string) bool
}

// Unpack writes the tree in the tar stream r below root and reads r to its end.
//
// A file or link that exists is removed and made anew, so that nothing is written through a link;
// of two entries with one name the last wins. Existing folders stay and take the mode of their
// entry. A file where a folder is needed is syscall.ENOTDIR, a folder where a file is needed
// syscall.EISDIR. Folders get their modes and times at the end, so that read-only folders can be
// filled. A hard link becomes a copy of the file that it names, which must be in the root.
//
// Names that leave the root, devices and pipes are an *EntryError, and so is everything else that
// goes wrong with one entry. A stream without the end mark of an archive is io.ErrUnexpectedEOF.
// Entries before an error stay. The end of ctx is noticed when a Read of r returns.
func Unpack(ctx context.Context, root *os.Root, r io.Reader, opts UnpackOptions) (err error) {
	u := &unpacker{
		root: root,
		tr:   NewReader(ctx, r),
		opts: opts,
		dirs: make(map[string]folderState),
		buf:  make([]byte, 64<<10),
	}
	defer func() {
		u.closeParent()
		if ferr := u.finishFolders(); err == nil {
			err = ferr
		}
	}()
	for {
		h, err := u.tr.Next()
		if err == io.EOF { //nolint:errorlint // A failure that wraps io.EOF is no end.
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		if err := u.entry(h); err != nil {
			return &EntryError{Name: h.Name, Err: escapes(err)}
		}
	}
}

type folderState struct {
	mode  fs.FileMode
	mtime time.Time
}

type unpacker struct {
	root    *os.Root
	tr      *Reader
	opts    UnpackOptions
	entries int
	bytes   int64
	dirs    map[string]folderState
	// parent is the folder of the entry before, still open, if it is not the root.
	parent     *os.Root
	parentName string
	buf        []byte
}

func (u *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := u.countEntry(); err != nil {
		return err
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return ErrInvalidName
		}
		return nil
	}
	if u.opts.Skip != nil && u.opts.Skip(name) {
		return u.countBytes(h.Size)
	}
	in, err := u.openParent(path.Dir(name))
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(in, name, h)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, '\x00':
		if strings.HasSuffix(h.Name, "/") {
			return ErrInvalidName
		}
		return u.file(in, name, u.tr, h.Size, h)
	case tar.TypeSymlink:
		return u.symlink(in, name, h.Linkname)
	case tar.TypeLink:
		return u.hardLink(in, name, h)
	default:
		return ErrSpecial
	}
}

// openParent makes and opens the folder that an entry is in, and with RefuseOutsideLinks checks
// that no part of it is a link. It stays open for the next entry, so that the cost of a tree does
// not grow with its depth. The caller does not close it.
func (u *unpacker) openParent(dir string) (*os.Root, error) {
	if dir == "." {
		return u.root, nil
	}
	if u.parent != nil && dir == u.parentName {
		return u.parent, nil
	}
	u.closeParent()
	cur := u.root
	for i, c := range dir + "/" {
		if c != '/' {
			continue
		}
		next, err := u.enter(cur, dir[:i])
		if cur != u.root {
			_ = cur.Close()
		}
		if err != nil {
			return nil, err
		}
		cur = next
	}
	u.parent, u.parentName = cur, dir
	return cur, nil
}

func (u *unpacker) closeParent() {
	if u.parent != nil {
		_ = u.parent.Close()
		u.parent = nil
	}
}

// enter opens the folder called name, which is in the folder in, and makes it if it is missing.
func (u *unpacker) enter(in *os.Root, name string) (*os.Root, error) {
	base := path.Base(name)
	fi, err := in.Lstat(base)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if u.opts.RefuseOutsideLinks {
			return nil, fmt.Errorf("%w: %q is a symbolic link", env.ErrEscapes, name)
		}
		// The link may lead out of its folder, but not out of the root.
		in, base = u.root, name
		fi, err = in.Stat(base)
	} else if errors.Is(err, fs.ErrNotExist) {
		if err := u.countEntry(); err != nil {
			return nil, err
		}
		if err := in.Mkdir(base, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return openFolder(in, base)
	}
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	return openFolder(in, base)
}

// countEntry counts one more file, link or folder to make.
func (u *unpacker) countEntry() error {
	if u.entries++; u.opts.MaxEntries > 0 && u.entries > u.opts.MaxEntries {
		return fmt.Errorf("%w: more than %d entries", env.ErrTreeTooLarge, u.opts.MaxEntries)
	}
	return nil
}

// countBytes counts the content of one more file.
func (u *unpacker) countBytes(size int64) error {
	if size < 0 {
		return tar.ErrHeader
	}
	if u.opts.MaxBytes > 0 && size > u.opts.MaxBytes-u.bytes {
		return fmt.Errorf("%w: more than %d bytes", env.ErrTreeTooLarge, u.opts.MaxBytes)
	}
	u.bytes += size
	return nil
}

// folder makes a folder that can be filled and remembers what it shall look like in the end.
func (u *unpacker) folder(in *os.Root, name string, h *tar.Header) error {
	base := path.Base(name)
	fi, err := in.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = in.Mkdir(base, 0o700)
	case err != nil:
	case fi.Mode()&fs.ModeSymlink != 0 && u.opts.RefuseOutsideLinks:
		err = fmt.Errorf("%w: a symbolic link is there already", env.ErrEscapes)
	default:
		if fi.Mode()&fs.ModeSymlink != 0 {
			fi, err = u.root.Stat(name)
		}
		if err == nil && !fi.IsDir() {
			err = &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
		}
		if err == nil && fi.Mode().Perm()&0o700 != 0o700 {
			err = u.root.Chmod(name, fi.Mode().Perm()|0o700)
		}
	}
	if err != nil {
		return err
	}
	u.dirs[name] = folderState{mode: permissions(h), mtime: h.ModTime}
	return nil
}

// finishFolders gives the folders their modes and times, deepest first, because a mode may take
// away the right to go deeper.
func (u *unpacker) finishFolders() error {
	names := slices.Sorted(maps.Keys(u.dirs))
	slices.Reverse(names)
	var errs []error
	for _, name := range names {
		d := u.dirs[name]
		setTime(u.root, name, d.mtime)
		if err := u.root.Chmod(name, d.mode); err != nil {
			errs = append(errs, &EntryError{Name: name, Err: escapes(err)})
		}
	}
	return errors.Join(errs...)
}

// setTime sets a modification time. A time that the file system cannot hold is no reason to refuse
// a file.
func setTime(in *os.Root, name string, t time.Time) {
	_ = in.Chtimes(name, time.Time{}, t)
}

// file makes a regular file with size bytes of r.
func (u *unpacker) file(in *os.Root, name string, r io.Reader, size int64, h *tar.Header) error {
	if err := u.countBytes(size); err != nil {
		return err
	}
	base := path.Base(name)
	var f *os.File
	err := replace(in, base, func() (err error) {
		f, err = in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	// Without the other methods of f the copy uses the given buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, r, u.buf)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if cerr := f.Chmod(permissions(h)); err == nil {
		err = cerr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = in.Remove(base)
		return err
	}
	setTime(in, base, h.ModTime)
	return nil
}

// permissions are the mode bits of an entry that are kept.
func permissions(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }

// replace removes the file or link called base in a folder, if there is one, and calls create,
// which must fail with fs.ErrExist if somebody was faster.
func replace(in *os.Root, base string, create func() error) error {
	var err error
	for range 3 {
		fi, lerr := in.Lstat(base)
		switch {
		case lerr == nil && fi.IsDir():
			return &fs.PathError{Op: "open", Path: base, Err: syscall.EISDIR}
		case lerr == nil:
			err = in.Remove(base)
		case errors.Is(lerr, fs.ErrNotExist):
			err = nil
		default:
			return lerr
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = create()
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

func (u *unpacker) symlink(in *os.Root, name, target string) error {
	if target == "" || strings.ContainsRune(target, 0) {
		return fmt.Errorf("%w: link to %q", ErrInvalidName, target)
	}
	if u.opts.RefuseOutsideLinks && !staysInside(name, target) {
		return fmt.Errorf("%w: link to %q", env.ErrEscapes, target)
	}
	base := path.Base(name)
	return replace(in, base, func() error { return in.Symlink(target, base) })
}

// staysInside reports whether a link called name, in a folder that is reached without links, leads
// to a name in the root. After a name, a ".." may be anywhere, because the name may be a link; so
// only leading ones are allowed.
func staysInside(name, target string) bool {
	if path.IsAbs(target) {
		return false
	}
	depth := strings.Count(name, "/")
	var below []string
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; len(below) > 0 || depth < 0 {
				return false
			}
		default:
			below = append(below, part)
		}
	}
	return len(below) == 0 || validHere(strings.Join(below, "/"))
}

// hardLink makes a copy of an earlier file.
func (u *unpacker) hardLink(in *os.Root, name string, h *tar.Header) error {
	old, err := cleanName(h.Linkname)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", h.Linkname, err)
	}
	if old == name {
		return fmt.Errorf("hard link to itself: %w", ErrInvalidName)
	}
	fi, err := u.root.Lstat(old)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("hard link to %q: %w", h.Linkname, ErrSpecial)
	}
	f, err := u.root.OpenFile(old, readFlags, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(fi, now) {
		return &fs.PathError{Op: "open", Path: old, Err: ErrReplaced}
	}
	copied := *h
	copied.Mode = int64(now.Mode().Perm())
	copied.ModTime = now.ModTime()
	return u.file(in, name, io.LimitReader(f, now.Size()), now.Size(), &copied)
}
