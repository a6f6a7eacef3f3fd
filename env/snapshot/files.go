package snapshot

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// File describes a file or symlink in a snapshot.
type File struct {
	// Mode is 0o644, 0o755 or, for a symlink, fs.ModeSymlink with 0o777.
	Mode fs.FileMode
	// Size is the length of the content in bytes; the content of a symlink is its target.
	Size int64
	// SHA256 is the hash of the content.
	SHA256 [sha256.Size]byte
	// Private means that only the owner of the file has permissions.
	Private bool
}

// Files returns the sorted names of the files and symlinks, relative to the directory.
func (s *Snapshot) Files() []string { return slices.Sorted(maps.Keys(s.files)) }

// Len returns the number of files and symlinks.
func (s *Snapshot) Len() int { return len(s.files) }

// IsDir reports whether name is a directory that git does not ignore.
func (s *Snapshot) IsDir(name string) bool { return s.dirs[name] }

// Lookup returns the file or symlink called name, and whether the snapshot has it.
func (s *Snapshot) Lookup(name string) (File, bool) {
	state, ok := s.files[name]
	if !ok {
		return File{}, false
	}
	return File{
		Mode: state.mode.fileMode(), Size: state.size, SHA256: state.sha256, Private: state.private,
	}, true
}

// Content returns the content of a file, or the target of a symlink. A name that is not in the
// snapshot is fs.ErrNotExist.
func (s *Snapshot) Content(name string) (*io.SectionReader, error) {
	if _, ok := s.files[name]; !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return s.open(name), nil
}

// Differences returns the sorted names of the files and symlinks that differ between two snapshots,
// without those that either could not read.
func Differences(before, after *Snapshot) []string {
	var names []string
	for name, old := range before.files {
		now, ok := after.files[name]
		if (!ok || !old.same(now)) && !before.hides(name) && !after.hides(name) {
			names = append(names, name)
		}
	}
	for name := range after.files {
		if _, ok := before.files[name]; !ok && !before.hides(name) && !after.hides(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// same reports whether two files are equal for git.
func (f fileState) same(g fileState) bool {
	return f.mode == g.mode && f.size == g.size && f.sha256 == g.sha256
}

// Pack writes the tree to w in the form that CopyIn reads: directories, empty ones too, then files
// and symlinks, sorted by name. Files have the mode 0o644 or 0o755, or 0o600 or 0o700 if only their
// owner has permissions, and their modification time, directories the mode 0o755. It does not close
// w.
func (s *Snapshot) Pack(ctx context.Context, w *tar.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(s.dirs)) {
		if _, ok := s.files[name]; ok {
			continue // A file has replaced it while the snapshot was taken.
		}
		h := &tar.Header{
			Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: s.taken,
			Format: tar.FormatPAX,
		}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("pack %q: %w", name, err)
		}
	}
	return s.PackFiles(ctx, w, s.Files())
}

// PackFiles is Pack for the files and symlinks called names only, which the snapshot has.
func (s *Snapshot) PackFiles(ctx context.Context, w *tar.Writer, names []string) error {
	buf := make([]byte, contentBuffer)
	for _, name := range names {
		if ctx.Err() != nil {
			return fmt.Errorf("pack: %w", env.ContextError(ctx))
		}
		if err := s.packFile(w, name, buf); err != nil {
			return fmt.Errorf("pack %q: %w", name, err)
		}
	}
	return nil
}

func (s *Snapshot) packFile(w *tar.Writer, name string, buf []byte) error {
	state := s.files[name]
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: int64(state.mode.fileMode().Perm()), Size: state.size,
		ModTime: time.Unix(0, state.modTime), Format: tar.FormatPAX,
	}
	if state.private {
		h.Mode &^= 0o077
	}
	content := s.open(name)
	if state.mode == modeSymlink {
		target, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, string(target), 0
		return w.WriteHeader(h)
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	// Hide WriterTo and ReaderFrom, so that the copy uses the given buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{content}, buf)
	if err == nil && n != state.size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (m gitMode) fileMode() fs.FileMode {
	switch m {
	case modeSymlink:
		return fs.ModeSymlink | 0o777
	case modeExecutable:
		return 0o755
	default:
		return 0o644
	}
}
