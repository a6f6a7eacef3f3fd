// Package snapshot records the state of a tree in an environment, compares two states, and writes
// their difference as a patch that git apply takes.
package snapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// Snapshot holds the state of a tree: of each file its content, whether it is executable, and of
// each link where it points; and the names of the folders. Names, sizes and hashes are in memory,
// about 200 bytes a file; contents are in a file of the host without a name, until Close. A
// Snapshot does not change; its methods and WritePatch may be called concurrently.
type Snapshot struct {
	// files by their names relative to the folder.
	files map[string]fileState
	// folders are the names of those that git does not ignore.
	folders map[string]bool
	// prefix is the name of the folder in its git repository, with a slash at its end; empty at the
	// root of one, and outside.
	prefix string
	// unreadable files and folders, which may or may not have changed.
	unreadable map[string]error
	// base holds the contents that it shares with this snapshot.
	base  *Snapshot
	spool *os.File
	size  int64
	taken time.Time
}

// A gitMode is the type of a file as git writes it.
type gitMode uint32

const (
	modeFile       gitMode = 0o100644
	modeExecutable gitMode = 0o100755
	modeLink       gitMode = 0o120000
)

// fileState is the state of one file or link. The content of a link is its target.
type fileState struct {
	mode   gitMode
	sha256 [sha256.Size]byte
	size   int64
	// offset of the content in the spool file; -1 if it is the content that base has under this name.
	offset int64
	// modTime is when the file was modified, in nanoseconds since 1970. It is no part of what is
	// compared.
	modTime int64
}

// Options are options of Take.
type Options struct {
	// Base is an earlier snapshot of the same folder to compare with. Files in it belong to the new
	// snapshot, even if git has come to ignore them since. Contents that did not change are not stored
	// again; Base must not be closed before the new snapshot is done with.
	Base *Snapshot
	// Include are names, relative to the folder, of files that belong to the snapshot though git
	// ignores them. Those that do not exist are left out.
	Include []string
	// Exclude, if set, leaves out what it returns true for, and what is below such a folder, as if git
	// ignored it. Names are relative to the folder. It is called from one goroutine at a time.
	Exclude func(name string, isDir bool) bool
	// Omit, if set, leaves out the names that it returns true for, and what is below them, even if git
	// tracks them, Include names them, or Base has them. Names are relative to the folder. It is
	// called from one goroutine at a time.
	Omit func(name string) bool
	// SpoolDir is the folder of the host where contents are stored; empty means os.TempDir.
	SpoolDir string
	// MaxBytes bounds the sum of the sizes of all files. Zero means DefaultMaxBytes, a negative number
	// no limit.
	MaxBytes int64
	// MaxFileBytes bounds the size of a file that has come, or has grown, since Base. One that is
	// larger, or does not fit into MaxBytes any more, is left out; Unreadable lists it. Zero means
	// DefaultMaxFileBytes, a negative number no limit. Without Base it means nothing.
	MaxFileBytes int64
	// MaxEntries bounds the number of files, links and folders. Zero means DefaultMaxEntries, a
	// negative number no limit.
	MaxEntries int
}

// Limits of a snapshot where Options has none.
const (
	// DefaultMaxBytes bounds the sum of the sizes of all files.
	DefaultMaxBytes = 16 << 30
	// DefaultMaxEntries bounds the number of files, symlinks and directories.
	DefaultMaxEntries = 1_000_000
	// DefaultMaxFileBytes bounds the size of a file that is new or has grown since Options.Base.
	DefaultMaxFileBytes = 1 << 30
)

// Take records the state of the tree below dir, which may be empty for the working directory: all
// files and links but those that git ignores, as Walk defines it. Git's index is read where there
// is one: what it tracks belongs to the snapshot, ignored or not. What else was ignored at first
// and is not any more when a second snapshot is taken, looks like a new file. Special files,
// owners, and permissions other than the owner's right to execute are not part of a snapshot,
// because git does not know them. For the same reason folders and times do not make a difference,
// though Pack keeps them.
//
// Files that may not be read do not fail the snapshot, nor does one that has become too large since
// opts.Base; Unreadable lists them. A tree that changes meanwhile gives each file in a state that
// it had at some time. More than opts allows is ErrTreeTooLarge.
//
// Contents come in one stream, or, of trees with thousands of files, a few; not in a round trip per
// file. The caller closes the snapshot.
func Take(ctx context.Context, e interface {
	env.FileReader
	env.Copier
}, dir string, opts Options,
) (_ *Snapshot, err error) {
	dir = cmp.Or(dir, ".")
	defer func() {
		if err != nil {
			err = fmt.Errorf("snapshot of %s: %w", dir, err)
		}
	}()
	s := &Snapshot{
		files: make(map[string]fileState), folders: make(map[string]bool),
		unreadable: make(map[string]error),
		base:       opts.Base, taken: time.Now(),
	}
	t := &snapshotTaker{
		e: e, dir: dir, s: s,
		maxBytes:   tartree.Limit(opts.MaxBytes, DefaultMaxBytes),
		maxFile:    tartree.Limit(opts.MaxFileBytes, DefaultMaxFileBytes),
		maxEntries: int(tartree.Limit(int64(opts.MaxEntries), DefaultMaxEntries)),
		wanted:     make(map[string]bool),
	}
	if err := t.list(ctx, opts); err != nil {
		return nil, err
	}
	s.spool, err = os.CreateTemp(opts.SpoolDir, "snapshot-*")
	if err != nil {
		return nil, err
	}
	// Where the system allows it, the file loses its name at once and cannot be left behind.
	_ = os.Remove(s.spool.Name())
	if err := t.readAll(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close removes the stored contents. The snapshot cannot be used afterwards.
func (s *Snapshot) Close() error {
	err := s.spool.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	if rerr := os.Remove(s.spool.Name()); err == nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = rerr
	}
	return err
}

// Unreadable returns the names of the files and folders that could not be read, or were too large,
// sorted, relative to the folder. A patch says nothing about them.
func (s *Snapshot) Unreadable() []string { return slices.Sorted(maps.Keys(s.unreadable)) }

// hides reports whether name, or a folder that it is in, could not be read.
func (s *Snapshot) hides(name string) bool {
	if len(s.unreadable) == 0 {
		return false
	}
	for ; name != "."; name = path.Dir(name) {
		if _, ok := s.unreadable[name]; ok {
			return true
		}
	}
	return false
}

// open returns the content of a file of the snapshot.
func (s *Snapshot) open(name string) *io.SectionReader {
	for s.files[name].offset < 0 {
		s = s.base
	}
	state := s.files[name]
	return io.NewSectionReader(s.spool, state.offset, state.size)
}

// validTreeName reports whether a name can be part of a patch. The environment is not trusted to
// give only such names.
func validTreeName(name string) bool {
	if strings.ContainsRune(name, 0) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || strings.EqualFold(part, gitrepo.DirName) {
			return false
		}
	}
	return true
}
