package snapshot

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

const (
	// Names in one request for contents, and their bytes.
	batchNames = 10_000
	batchBytes = 1 << 20
	// contentBuffer is how much of a content is held in memory; a longer one goes through the spool
	// file.
	contentBuffer = 256 << 10
	// maxTries is how often a file is read again that changed while it was read.
	maxTries = 3
	// maxLarge is how many files are left out for their size before the snapshot is given up.
	maxLarge = 1000
)

// snapshotTaker fills one snapshot.
type snapshotTaker struct {
	e interface {
		env.FileReader
		env.Copier
	}
	dir        string
	s          *Snapshot
	maxBytes   int64
	maxFile    int64
	maxEntries int
	// wanted are the names of the files to read.
	wanted map[string]bool
	bytes  int64
	// large counts the files that were left out for their size.
	large int
	buf   []byte
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

// read reads the files called names. One that has vanished, may not be read, or changed while it
// was read, ends the stream; it is found by going on with what is missing, and if nothing came at
// all, by halving.
func (t *snapshotTaker) read(ctx context.Context, names []string) error {
	for tries := 0; len(names) > 0; {
		err := t.stream(ctx, names)
		if err == nil {
			return nil
		}
		changed := errors.Is(err, tartree.ErrReplaced) || errors.Is(err, tartree.ErrShrunk)
		unread := changed || errors.Is(err, fs.ErrPermission) || errors.Is(err, errLeftOut)
		if ctx.Err() != nil || !unread && !vanished(err) {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			_, ok := t.s.files[name]
			return ok || t.s.unreadable[name] != nil
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

// vanished reports whether err came from a name that does not stand for a file in the tree any
// more: it is gone, or a file or a link that leads out has taken the place of a folder that it was
// in.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, env.ErrNotDir) || errors.Is(err,
		env.ErrEscapes)
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
	if err := t.checkSize(name, size); err != nil {
		return err
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
		spooled := io.MultiWriter(hash, spoolWriter{s.spool, io.NewOffsetWriter(s.spool, s.size)})
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
			if _, err := (spoolWriter{s.spool, io.NewOffsetWriter(s.spool,
				s.size)}).Write(t.buf[:size]); err != nil {
				return err
			}
		}
		s.size += size
	}
	s.files[name] = state
	return nil
}

// errLeftOut means that a file is left out for its size. What follows it in the stream is asked for
// anew.
var errLeftOut = errors.New("the file is left out")

// checkSize tells whether a file of size bytes can be stored.
func (t *snapshotTaker) checkSize(name string, size int64) error {
	tooMuch := t.maxBytes > 0 && size > t.maxBytes-t.bytes
	if t.s.base == nil {
		if tooMuch {
			return fmt.Errorf("%w: more than %d bytes, with %q", env.ErrTreeTooLarge, t.maxBytes, name)
		}
		return nil
	}
	if !tooMuch && (t.maxFile == 0 || size <= max(t.maxFile, t.s.base.files[name].size)) {
		return nil
	}
	if t.large++; t.large > maxLarge {
		return fmt.Errorf("%w: more than %d large files, with %q", env.ErrTreeTooLarge, maxLarge, name)
	}
	t.s.unreadable[name] = fmt.Errorf("%w: %q has %d bytes", env.ErrTreeTooLarge, name, size)
	return errLeftOut
}

// spoolWriter writes to the spool file and says where that is if there is no room for it.
type spoolWriter struct {
	spool *os.File
	w     io.Writer
}

func (w spoolWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		err = fmt.Errorf("store contents in %s, for which another folder may be set as TMPDIR: %w",
			filepath.Dir(w.spool.Name()), err)
	}
	return n, err
}

// noEOF turns the end of a stream into an error where more was promised.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
