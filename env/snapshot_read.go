package env

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

const (
	// Names in one request for contents, and their bytes.
	batchNames = 10_000
	batchBytes = 1 << 20
	// contentBuffer is how much of a content is held in memory; a longer one goes through the spool file.
	contentBuffer = 256 << 10
	// maxTries is how often a file is read again that changed while it was read.
	maxTries = 3
)

// snapshotTaker fills one snapshot.
type snapshotTaker struct {
	e interface {
		FileReader
		Copier
	}
	dir        string
	s          *Snapshot
	maxBytes   int64
	maxEntries int
	// wanted are the names of the files to read.
	wanted map[string]bool
	bytes  int64
	buf    []byte
}

// list finds out which files belong to the snapshot.
func (t *snapshotTaker) list(ctx context.Context, opts SnapshotOptions) error {
	err := Walk(ctx, t.e, t.dir, WalkOptions{}, func(entry Entry) error {
		if entry.Err != nil && validTreeName(entry.Name) && entry.Mode.IsDir() {
			t.s.unreadable[entry.Name] = entry.Err
		} else if opts.Exclude != nil && opts.Exclude(entry.Name, entry.Mode.IsDir()) {
			if entry.Mode.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch entry.Mode.Type() {
		case 0, fs.ModeSymlink:
			return t.want(entry.Name)
		case fs.ModeDir:
			if validTreeName(entry.Name) {
				t.s.folders[entry.Name] = true
			}
			return t.checkEntries()
		}
		return nil
	})
	if err != nil {
		return err
	}
	more := slices.Clone(opts.Include)
	if opts.Base != nil {
		more = slices.AppendSeq(more, maps.Keys(opts.Base.files))
	}
	tracked, prefix, err := trackedFiles(ctx, t.e, t.dir)
	t.s.prefix = prefix
	if err != nil {
		return err
	}
	more = append(more, tracked...)
	more = slices.DeleteFunc(more, func(name string) bool { return t.wanted[name] || !validTreeName(name) })
	return t.wantExisting(ctx, more)
}

func (t *snapshotTaker) want(name string) error {
	if !validTreeName(name) || t.wanted[name] {
		return nil
	}
	t.wanted[name] = true
	return t.checkEntries()
}

func (t *snapshotTaker) checkEntries() error {
	if t.maxEntries > 0 && len(t.wanted)+len(t.s.folders) > t.maxEntries {
		return fmt.Errorf("%w: more than %d files and folders", ErrTreeTooLarge, t.maxEntries)
	}
	return nil
}

// wantExisting wants those of names that are files or links, reached without going through a link, which would make
// one file appear twice. It lists each folder once.
func (t *snapshotTaker) wantExisting(ctx context.Context, names []string) error {
	folders := make(map[string]map[string]fs.FileMode)
	kindOf := func(name string) (fs.FileMode, error) {
		dir := path.Dir(name)
		kinds, ok := folders[dir]
		if !ok {
			entries, err := t.e.ReadDir(ctx, join(t.dir, dir))
			if endsSearch(ctx, err) {
				return 0, err
			}
			if errors.Is(err, fs.ErrPermission) {
				t.s.unreadable[dir] = err
			}
			kinds = make(map[string]fs.FileMode, len(entries))
			for _, d := range entries {
				kinds[d.Name()] = d.Type()
			}
			folders[dir] = kinds
		}
		kind, ok := kinds[path.Base(name)]
		if !ok {
			kind = fs.ModeIrregular
		}
		return kind, nil
	}
	slices.Sort(names)
	for _, name := range names {
		kind, err := fs.ModeDir, error(nil)
		for i, c := range name + "/" {
			if c == '/' && kind.IsDir() && err == nil {
				kind, err = kindOf(name[:i])
			} else if c == '/' {
				kind = fs.ModeIrregular
			}
		}
		if err == nil && (kind == 0 || kind == fs.ModeSymlink) {
			err = t.want(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readAll reads all wanted files, in batches that any transport can bear.
func (t *snapshotTaker) readAll(ctx context.Context) error {
	t.buf = make([]byte, contentBuffer)
	names := slices.Sorted(maps.Keys(t.wanted))
	for len(names) > 0 {
		n, size := 0, 0
		for n < len(names) && n < batchNames && size < batchBytes {
			size += len(names[n])
			n++
		}
		if err := t.read(ctx, names[:n]); err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}

// read reads the files called names. One that has vanished, may not be read, or changed while it was read, ends the
// stream; it is found by going on with what is missing, and if nothing came at all, by halving.
func (t *snapshotTaker) read(ctx context.Context, names []string) error {
	for tries := 0; len(names) > 0; {
		err := t.stream(ctx, names)
		if err == nil {
			return nil
		}
		changed := errors.Is(err, tartree.ErrReplaced) || errors.Is(err, tartree.ErrShrunk)
		unread := changed || errors.Is(err, fs.ErrPermission)
		if ctx.Err() != nil || !unread && !vanished(err) {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			_, ok := t.s.files[name]
			return ok
		})
		switch {
		case len(missing) < len(names):
		case len(names) > 1:
			half := len(names) / 2
			if err := t.read(ctx, names[:half]); err != nil {
				return err
			}
			missing = names[half:]
		case changed && tries < maxTries:
			tries++
		default:
			if unread {
				t.s.unreadable[names[0]] = err
			}
			return nil
		}
		names = missing
	}
	return nil
}

// vanished reports whether err came from a name that does not stand for a file in the tree any more: it is gone, or a file
// or a link that leads out has taken the place of a folder that it was in.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotDir) || errors.Is(err, ErrEscapes)
}

// stream reads files from one stream.
func (t *snapshotTaker) stream(ctx context.Context, names []string) (err error) {
	archive, err := t.e.CopyOut(ctx, t.dir, names...)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := archive.Close(); err == nil {
			err = cerr
		}
	}()
	r := tartree.NewReader(ctx, archive)
	for {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // A failure that wraps io.EOF is no end.
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(h.Name, "./")
		if !t.wanted[name] {
			continue // It became a folder meanwhile.
		}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
			mode := modeFile
			if h.Mode&0o100 != 0 {
				mode = modeExecutable
			}
			err = t.store(name, fileState{mode: mode, size: h.Size, modTime: h.ModTime.UnixNano()}, r)
		case tar.TypeSymlink:
			link := fileState{mode: modeLink, size: int64(len(h.Linkname)), modTime: h.ModTime.UnixNano()}
			err = t.store(name, link, strings.NewReader(h.Linkname))
		case tar.TypeDir:
		default:
			err = fmt.Errorf("%q: unexpected type %q in the stream of the environment", name, h.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

// store records one file with as many bytes of r as state says, and fills in the rest of state.
func (t *snapshotTaker) store(name string, state fileState, r io.Reader) error {
	size := state.size
	if t.maxBytes > 0 && size > t.maxBytes-t.bytes {
		return fmt.Errorf("%w: more than %d bytes", ErrTreeTooLarge, t.maxBytes)
	}
	t.bytes += size
	s := t.s
	hash := sha256.New()
	state.offset = s.size
	small := size <= contentBuffer
	if small {
		if _, err := io.ReadFull(r, t.buf[:size]); err != nil {
			return noEOF(err)
		}
		hash.Write(t.buf[:size])
	} else {
		spooled := io.MultiWriter(hash, io.NewOffsetWriter(s.spool, s.size))
		n, err := io.CopyBuffer(struct{ io.Writer }{spooled}, io.LimitReader(r, size), t.buf)
		if err == nil && n != size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	hash.Sum(state.sha256[:0])
	if s.base != nil {
		if old, ok := s.base.files[name]; ok && old.sha256 == state.sha256 && old.size == size {
			state.offset = -1 // What was spooled is overwritten by the next content.
		}
	}
	if state.offset >= 0 {
		if small {
			if _, err := io.Copy(io.NewOffsetWriter(s.spool, s.size), bytes.NewReader(t.buf[:size])); err != nil {
				return err
			}
		}
		s.size += size
	}
	s.files[name] = state
	return nil
}

// noEOF turns the end of a stream into an error where more was promised.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
