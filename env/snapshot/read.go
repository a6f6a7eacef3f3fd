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
	// batchNames and batchBytes bound the names in one call of CopyOut.
	batchNames = 10_000
	batchBytes = 1 << 20
	// contentBuffer bounds the part of a content that is held in memory.
	contentBuffer = 256 << 10
	// maxTries bounds the attempts to read a file that changes meanwhile.
	maxTries = 3
	// maxLarge bounds the number of files that are left out for their size.
	maxLarge = 1000
)

// taker fills one snapshot.
type taker struct {
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
	wanted map[string]details
	bytes  int64
	// large counts the files that were left out for their size.
	large int
	buf   []byte
}

// takeOver takes the wanted files from the base that are unchanged by their stamps.
func (t *taker) takeOver() {
	base := t.s.base
	if base == nil {
		return
	}
	base.mu.Lock()
	defer base.mu.Unlock()
	for name, d := range t.wanted {
		if d.stamp == 0 || base.stamps[name] != d.stamp {
			continue
		}
		state := base.files[name]
		state.offset, state.modTime = -1, d.modTime
		t.s.files[name] = state
		t.bytes += state.size
		delete(t.wanted, name)
	}
}

// readAll reads all wanted files, in batches whose names fit into one request of any transport.
func (t *taker) readAll(ctx context.Context) error {
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

// read reads the files called names. A file that has vanished, changed or is not readable ends a
// stream, which does not name it: read then requests the files that have not arrived, or, if none
// has, each half of them.
func (t *taker) read(ctx context.Context, names []string) error {
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

// vanished reports whether err is of a name that no longer exists in the tree: it was removed, or a
// file or an escaping symlink has replaced a directory above it.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, env.ErrNotDir) ||
		errors.Is(err, env.ErrEscapes)
}

// stream reads files from one stream.
func (t *taker) stream(ctx context.Context, names []string) (err error) {
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
		if err == io.EOF { //nolint:errorlint // An error that wraps io.EOF is not the end.
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(h.Name, "./")
		if _, ok := t.wanted[name]; !ok {
			continue // It is below a directory that has replaced a file.
		}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
			mode := modeFile
			if h.Mode&0o100 != 0 {
				mode = modeExecutable
			}
			err = t.store(name, fileState{
				mode: mode, size: h.Size, private: h.Mode&0o077 == 0, modTime: h.ModTime.UnixNano(),
			}, r)
		case tar.TypeSymlink:
			link := fileState{mode: modeSymlink, size: int64(len(h.Linkname)), modTime: h.ModTime.UnixNano()}
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

// store records one file, whose content are the next state.size bytes of r.
func (t *taker) store(name string, state fileState, r io.Reader) error {
	size := state.size
	if err := t.checkSize(name, size); err != nil {
		return err
	}
	t.bytes += size
	s := t.s
	hash := sha256.New()
	state.offset = s.size
	spooled := spoolWriter{s.spool, io.NewOffsetWriter(s.spool, s.size)}
	small := size <= contentBuffer
	if small {
		if _, err := io.ReadFull(r, t.buf[:size]); err != nil {
			return noEOF(err)
		}
		hash.Write(t.buf[:size])
	} else {
		both := io.MultiWriter(hash, spooled)
		n, err := io.CopyBuffer(struct{ io.Writer }{both}, io.LimitReader(r, size), t.buf)
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
			state.offset = -1 // The next content overwrites this one.
			if old.mode == state.mode && old.private == state.private {
				s.base.keepStamp(name, t.wanted[name].stamp)
			}
		}
	}
	if state.offset >= 0 {
		if small {
			if _, err := spooled.Write(t.buf[:size]); err != nil {
				return err
			}
		}
		s.size += size
	}
	s.files[name] = state
	s.keepStamp(name, t.wanted[name].stamp)
	return nil
}

// keepStamp remembers the stamp of a file that was read after it, and had the state of s.
func (s *Snapshot) keepStamp(name string, stamp uint64) {
	if stamp == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamps[name] = stamp
}

// errLeftOut means that a file is left out for its size. It ends the stream, and read requests the
// rest again.
var errLeftOut = errors.New("the file is left out")

// checkSize reports why a file of size bytes cannot be stored.
func (t *taker) checkSize(name string, size int64) error {
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

// spoolWriter writes to the spool file, with a hint in its errors.
type spoolWriter struct {
	spool *os.File
	w     io.Writer
}

func (w spoolWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		err = fmt.Errorf("store contents in %s: %w (set TMPDIR to another directory)",
			filepath.Dir(w.spool.Name()), err)
	}
	return n, err
}

// noEOF makes a premature end of a stream an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
