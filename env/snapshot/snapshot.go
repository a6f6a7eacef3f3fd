// Package snapshot records the state of a directory in an environment ([Take]), and writes the
// difference between two such snapshots as a patch for git apply ([WritePatch]).
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
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// Snapshot is the recorded state of a tree: the content of each file and whether it is executable,
// the target of each symlink, and the names of the directories. Names, sizes and hashes take about
// 200 bytes of memory per file; contents are in an unlinked file of the host until Close. A
// Snapshot is immutable; its methods and WritePatch may be called concurrently.
type Snapshot struct {
	// files by their names relative to the directory.
	files map[string]fileState
	// dirs are the names of the directories that git does not ignore.
	dirs map[string]bool
	// prefix is the name of the directory in its git repository, with a trailing slash; empty at the
	// top of one, and outside.
	prefix string
	// unreadable are the files and directories whose changes are unknown.
	unreadable map[string]error
	// base has the contents that both snapshots share.
	base  *Snapshot
	spool *os.File
	named bool // the spool has a name, which Close removes
	size  int64
	taken time.Time

	mu sync.Mutex // guards stamps
	// stamps are those of files that had the content and mode of the snapshot when last read.
	stamps map[string]uint64
}

// A gitMode is the mode of a file in git.
type gitMode uint32

const (
	modeFile       gitMode = 0o100644
	modeExecutable gitMode = 0o100755
	modeSymlink    gitMode = 0o120000
)

// fileState is the state of one file or symlink. The content of a symlink is its target.
type fileState struct {
	mode   gitMode
	sha256 [sha256.Size]byte
	size   int64
	// offset of the content in the spool file; -1 if base has it under the same name.
	offset int64
	// private means that its group and others have no permission. Comparisons ignore it, as git does.
	private bool
	// modTime is the modification time in nanoseconds since 1970. Comparisons ignore it.
	modTime int64
}

// Options are options of Take.
type Options struct {
	// Base is an earlier snapshot of the same directory. Its files belong to the new snapshot, even if
	// git ignores them now. The new snapshot shares unchanged contents with it, so that the caller
	// closes Base last.
	Base *Snapshot
	// TrustTimes takes a file from Base without reading it, if the times in the environment say that
	// it is unchanged since a snapshot found it so: see search.Entry.Stamp.
	TrustTimes bool
	// Include are names, relative to the directory, of files that belong to the snapshot though git
	// ignores them. Missing ones are left out.
	Include []string
	// Exclude, if set, reports the names to leave out as if git ignored them, with the trees of
	// directories. Names are relative to the directory. Calls are not concurrent.
	Exclude func(name string, isDir bool) bool
	// Omit, if set, reports the names to leave out even if git tracks them, Include names them, or
	// Base has them, with the trees of directories. Names are relative to the directory. Calls are not
	// concurrent.
	Omit func(name string) bool
	// SpoolDir is the directory of the host that stores file contents; the default is os.TempDir.
	SpoolDir string
	// MaxBytes bounds the sum of the sizes of all files. Zero means DefaultMaxBytes, a negative number
	// no limit.
	MaxBytes int64
	// MaxFileBytes bounds the size of a file that is new or has grown since Base. A larger one, or one
	// that exceeds MaxBytes, is left out; Unreadable lists it. Zero means DefaultMaxFileBytes, a
	// negative number no limit. It has no effect without Base.
	MaxFileBytes int64
	// MaxEntries bounds the number of files, symlinks and directories. Zero means DefaultMaxEntries, a
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

// Take records the state of the tree below dir; empty means the working directory. It records all
// files and symlinks but those that git ignores, see search.Walk, and those that git tracks,
// ignored or not. An untracked file that git ignores at first and no longer at a second snapshot
// counts as new. As in git, special files, owners, and permissions other than the owner's right to
// execute are not part of a snapshot; directories and times are, for Pack, but comparisons ignore
// them.
//
// A file without read permission does not fail the snapshot, nor does one that is too large since
// opts.Base; Unreadable lists them. If the tree changes meanwhile, each file has a state that it
// had at some time. A tree beyond the limits of opts is env.ErrTreeTooLarge.
//
// Contents arrive in one stream, or in a few for trees of thousands of files, never in a round trip
// per file. The caller closes the snapshot.
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
		files: make(map[string]fileState), dirs: make(map[string]bool),
		unreadable: make(map[string]error), stamps: make(map[string]uint64),
		base: opts.Base, taken: time.Now(),
	}
	t := &taker{
		e: e, dir: dir, s: s,
		maxBytes:   tartree.Limit(opts.MaxBytes, DefaultMaxBytes),
		maxFile:    tartree.Limit(opts.MaxFileBytes, DefaultMaxFileBytes),
		maxEntries: int(tartree.Limit(int64(opts.MaxEntries), DefaultMaxEntries)),
		wanted:     make(map[string]details),
	}
	if err := t.list(ctx, opts); err != nil {
		return nil, err
	}
	s.spool, s.named, err = newSpool(opts.SpoolDir)
	if err != nil {
		return nil, err
	}
	if opts.TrustTimes {
		t.takeOver()
	}
	if err := t.readAll(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close removes the stored contents.
func (s *Snapshot) Close() error {
	err := s.spool.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	if s.named {
		if rerr := os.Remove(s.spool.Name()); err == nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = rerr
		}
	}
	return err
}

// namedSpool creates a file with a name, and removes that where the system allows it for an open
// file.
func namedSpool(dir string) (f *os.File, named bool, err error) {
	f, err = os.CreateTemp(dir, "snapshot-*")
	if err != nil {
		return nil, false, err
	}
	return f, os.Remove(f.Name()) != nil, nil
}

// Unreadable returns the sorted names of the files and directories that could not be read, or were
// too large, relative to the directory. Patches leave them out.
func (s *Snapshot) Unreadable() []string { return slices.Sorted(maps.Keys(s.unreadable)) }

// hides reports whether name, or a directory above it, could not be read.
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

// open returns the content of a file in the snapshot.
func (s *Snapshot) open(name string) *io.SectionReader {
	for s.files[name].offset < 0 {
		s = s.base
	}
	state := s.files[name]
	return io.NewSectionReader(s.spool, state.offset, state.size)
}

// validTreeName reports whether a name can be part of a patch. The environment, which returns it,
// is not trusted.
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
