package tartree

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// UnpackOptions are limits of an archive. With the zero value only the root limits it.
type UnpackOptions struct {
	// MaxEntries bounds the number of entries, including missing parent directories; zero means no
	// limit.
	MaxEntries int
	// MaxBytes bounds the sum of the sizes of all files; zero means no limit.
	MaxBytes int64
	// RefuseOutsideLinks refuses symlinks that lead out of the root, and entries below a symlink, so
	// that no symlink of the archive leads its reader out of the root. Without it Unpack makes any
	// symlink, but never writes through a symlink that leaves the root.
	RefuseOutsideLinks bool
	// Skip, if set, reports the clean names of the entries to leave out; they count for the limits.
	// Unpack calls it before it makes any part of an entry.
	Skip func(name string) bool
	// Hold, if set, reports the clean names of the files and symlinks to make after all others. Until
	// then they have their temporary names. In the end Unpack calls Keep with each name, and
	// leaves out those for which it returns false; after an error, all.
	Hold, Keep func(name string) bool
	// MaxHeld bounds the number of held files and symlinks.
	MaxHeld int
}

// TempPrefix starts the temporary names of files and symlinks. A killed program may leave one.
const TempPrefix = ".sandboxagent-tmp-"

// Unpack writes the tree in the tar stream r below root and reads r to its end.
//
// Unpack makes a file or symlink with a temporary name beside its own and renames it, so that it
// writes through no link, and the name has a part of a file at no time, even if the program is
// killed; on Windows it may be missing for a moment. Of two entries with one name the last wins.
// Existing directories stay and take the mode of their entry. A file in place of a directory is
// syscall.ENOTDIR, a directory in place of a file syscall.EISDIR. Directories get their modes and
// times at the end, so that read-only ones can be filled. A hard link becomes a copy of its target,
// which must be in the root.
//
// Names that leave the root, devices and FIFOs are an *EntryError, and so is any other error of one
// entry. A stream without end mark is io.ErrUnexpectedEOF. Entries before an error stay. After the
// end of ctx, Unpack returns when the current Read of r does.
func Unpack(ctx context.Context, root *os.Root, r io.Reader, opts UnpackOptions) (err error) {
	u := &unpacker{
		root: root,
		tr:   NewReader(ctx, r),
		opts: opts,
		dirs: make(map[string]dirState),
		held: make(map[string]string),
		buf:  make([]byte, 64<<10),
	}
	defer func() {
		if rerr := u.releaseHeld(err == nil); err == nil {
			err = rerr
		}
		u.closeParent()
		if ferr := u.finishDirs(); err == nil {
			err = ferr
		}
	}()
	for {
		h, err := u.tr.Next()
		if err == io.EOF { //nolint:errorlint // An error that wraps io.EOF is not the end.
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

type dirState struct {
	mode  fs.FileMode
	mtime time.Time
}

type unpacker struct {
	root    *os.Root
	tr      *Reader
	opts    UnpackOptions
	entries int
	bytes   int64
	dirs    map[string]dirState
	// held are the temporary names of the held files and symlinks, by name.
	held map[string]string
	// parent is the open parent directory of the previous entry, if it is not the root.
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
		return u.dir(in, name, h)
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

// openParent makes and opens the parent directory of an entry, and with RefuseOutsideLinks refuses
// symlinks in its path. The directory stays open for the next entry, so that the cost of an entry
// does not grow with its depth. The caller does not close it.
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

// enter opens the directory name, whose parent is in, and makes a missing one.
func (u *unpacker) enter(in *os.Root, name string) (*os.Root, error) {
	base := path.Base(name)
	fi, err := in.Lstat(base)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if u.opts.RefuseOutsideLinks {
			return nil, fmt.Errorf("%w: %q is a symlink", env.ErrEscapes, name)
		}
		// The symlink may lead out of its directory, but not out of the root.
		in, base = u.root, name
		fi, err = in.Stat(base)
	} else if errors.Is(err, fs.ErrNotExist) {
		if err := u.countEntry(); err != nil {
			return nil, err
		}
		if err := in.Mkdir(base, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return openDir(in, base)
	}
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	return openDir(in, base)
}

// countEntry counts one more file, symlink or directory.
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

// dir makes a writable directory and records its final mode and time.
func (u *unpacker) dir(in *os.Root, name string, h *tar.Header) error {
	base := path.Base(name)
	fi, err := in.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = in.Mkdir(base, 0o700)
	case err != nil:
	case fi.Mode()&fs.ModeSymlink != 0 && u.opts.RefuseOutsideLinks:
		err = fmt.Errorf("%w: a symlink has the name", env.ErrEscapes)
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
	u.dirs[name] = dirState{mode: permissions(h), mtime: h.ModTime}
	return nil
}

// finishDirs sets the modes and times of the directories, deepest first, since a mode may deny
// access to subdirectories.
func (u *unpacker) finishDirs() error {
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

// setTime sets a modification time. It ignores errors, such as of a time out of the file system's
// range.
func setTime(in *os.Root, name string, t time.Time) {
	_ = in.Chtimes(name, time.Time{}, t)
}

// file makes a regular file with size bytes of r.
func (u *unpacker) file(in *os.Root, name string, r io.Reader, size int64, h *tar.Header) error {
	if err := u.countBytes(size); err != nil {
		return err
	}
	return u.place(in, name, func(temporary string) error {
		f, err := in.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		// Hide ReaderFrom, so that the copy uses the given buffer.
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
		setTime(in, temporary, h.ModTime)
		return err
	})
}

// place calls create with a temporary name for the file or symlink name, and renames what it has
// made, or if name is held, keeps it for releaseHeld.
func (u *unpacker) place(in *os.Root, name string, create func(temporary string) error) error {
	base, temporary := path.Base(name), TempPrefix+rand.Text()
	held := u.opts.Hold != nil && u.opts.Hold(name)
	former, again := u.held[name]
	if held && !again && len(u.held) >= u.opts.MaxHeld {
		return fmt.Errorf("%w: more than %d files called %s", env.ErrTreeTooLarge, u.opts.MaxHeld, base)
	}
	if fi, err := in.Lstat(base); !held && err == nil && fi.IsDir() {
		return &fs.PathError{Op: "open", Path: base, Err: syscall.EISDIR}
	}
	err := create(temporary)
	switch {
	case err != nil:
	case !held:
		err = rename(in, temporary, base)
	case again:
		if err = in.Remove(former); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		_ = in.Remove(temporary)
		return nameTarget(err, temporary, base)
	}
	if held {
		u.held[name] = temporary
	}
	return nil
}

// nameTarget replaces a temporary name in an error by that of the file.
func nameTarget(err error, temporary, base string) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe) && path.Base(filepath.ToSlash(pe.Path)) == temporary:
		return &fs.PathError{Op: pe.Op, Path: base, Err: pe.Err}
	case errors.As(err, &le) && (le.Old == temporary || le.New == temporary):
		return &fs.PathError{Op: le.Op, Path: base, Err: le.Err}
	}
	return err
}

// releaseHeld gives the held files and symlinks their names, or removes them.
func (u *unpacker) releaseHeld(complete bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(u.held)) {
		in, err := u.openParent(path.Dir(name))
		if err == nil {
			if complete && u.opts.Keep(name) {
				err = rename(in, u.held[name], path.Base(name))
			}
			if rerr := in.Remove(u.held[name]); err == nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = rerr
			}
		}
		if err != nil {
			errs = append(errs, &EntryError{Name: name, Err: escapes(err)})
		}
	}
	return errors.Join(errs...)
}

// permissions returns the permission bits of an entry.
func permissions(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }

func (u *unpacker) symlink(in *os.Root, name, target string) error {
	if target == "" || strings.ContainsRune(target, 0) {
		return fmt.Errorf("%w: symlink to %q", ErrInvalidName, target)
	}
	if u.opts.RefuseOutsideLinks && !staysInside(name, target) {
		return fmt.Errorf("%w: symlink to %q", env.ErrEscapes, target)
	}
	return u.place(in, name, func(temporary string) error { return in.Symlink(target, temporary) })
}

// staysInside reports whether a symlink called name, reached through no other symlink, leads to a
// name in the root. It allows only leading "..": the name before another one may be a symlink to
// any directory.
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

// hardLink copies an earlier file.
func (u *unpacker) hardLink(in *os.Root, name string, h *tar.Header) error {
	old, err := cleanName(h.Linkname)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", h.Linkname, err)
	}
	if old == name {
		return fmt.Errorf("hard link to itself: %w", ErrInvalidName)
	}
	if temporary, ok := u.held[old]; ok {
		old = path.Join(path.Dir(old), temporary)
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
