package env

import (
	"bytes"
	"context"
	"io/fs"
	"time"
)

// Folder is one folder that a TreeReader has listed.
type Folder struct {
	// Entries are what ReadDir gives, and Err is its error.
	Entries []fs.DirEntry
	Err     error
	// Files are the files in the folder that were asked for, in the order of their names. One with neither Data nor an
	// error was not read: it may be there, but is not a small one. They count only without Err.
	Files []FileContent
}

// TreeReader is implemented by environments where a round trip costs more than what it brings. [Walk] lists with it the folders
// of one level of a tree at once, and [Glob] finds with it what links lead to. Entries of ReadDirs have their details at hand.
// Both methods return an error, and nothing else, if ctx ends and if the environment is closed or gone.
type TreeReader interface {
	MultiReader
	// ReadDirs lists the folders called names, in the same order, and reads those of the files called with in each of them
	// that are small. A name in with may have slashes.
	ReadDirs(ctx context.Context, names, with []string) ([]Folder, error)
	// AreFiles tells for each of names whether it is a regular file or a link that leads to one.
	AreFiles(ctx context.Context, names []string) ([]bool, error)
}

// known is a FileReader of what has been read already.
type known struct {
	// inner has the rest; if it is nil, that is errUnknown.
	inner FileReader
	files map[string]FileContent
	dirs  map[string]Folder
}

// errUnknown means that something has not been read yet. It ends a search, as endsSearch has it.
var errUnknown = fs.ErrClosed

// add adds what has been read in the folder dir.
func (k *known) add(dir string, f Folder, with []string) {
	if f.Err != nil {
		return
	}
	for i, c := range f.Files {
		if c.Data != nil || c.Err != nil {
			k.files[join(dir, with[i])] = c
		}
	}
}

// Open implements FileReader.
func (k *known) Open(ctx context.Context, name string) (fs.File, error) {
	c, ok := k.files[name]
	switch {
	case ok && c.Err != nil:
		return nil, c.Err
	case ok:
		return newKnownFile(name, c.Data), nil
	case k.inner == nil:
		return nil, errUnknown
	}
	return k.inner.Open(ctx, name)
}

// Stat implements FileReader. A file may be there and be closed to reading, so that only success, and that there is no such
// name, is known.
func (k *known) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	c, ok := k.files[name]
	switch {
	case ok && c.Err == nil:
		return newKnownFile(name, c.Data), nil
	case ok && isMissing(c.Err):
		return nil, c.Err
	case k.inner == nil:
		return nil, errUnknown
	}
	return k.inner.Stat(ctx, name)
}

// ReadDir implements FileReader.
func (k *known) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	f, ok := k.dirs[name]
	switch {
	case ok:
		return f.Entries, f.Err
	case k.inner == nil:
		return nil, errUnknown
	}
	return k.inner.ReadDir(ctx, name)
}

// knownFile is a file whose content is in memory.
type knownFile struct {
	*bytes.Reader
	name string
}

func newKnownFile(name string, data []byte) knownFile {
	return knownFile{Reader: bytes.NewReader(data), name: name}
}

func (f knownFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f knownFile) Close() error               { return nil }
func (f knownFile) Name() string               { return f.name }
func (f knownFile) Mode() fs.FileMode          { return 0o444 }
func (f knownFile) ModTime() time.Time         { return time.Time{} }
func (f knownFile) IsDir() bool                { return false }
func (f knownFile) Sys() any                   { return nil }
