package snapshot

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// A ChangeStatus is the kind of a change, as a letter of git.
type ChangeStatus string

// The kinds of changes.
const (
	Added    ChangeStatus = "A"
	Modified ChangeStatus = "M"
	Deleted  ChangeStatus = "D"
	Renamed  ChangeStatus = "R"
)

// FileChange is the change of one file in a patch.
type FileChange struct {
	Status ChangeStatus
	// Path is the name of the file, of a renamed one the new name; From is its old name.
	Path, From string
	// Insertions and Deletions are numbers of lines; both are 0 for binary files and if only the mode
	// changed.
	Insertions, Deletions int
	// Binary is true for a file with a NUL byte or of more than 8 MiB, which the patch has as binary.
	Binary bool
}

// PatchStats is a summary of a patch.
type PatchStats struct {
	// Files are the changes, sorted by path.
	Files []FileChange
	// Insertions and Deletions are the sums of those of the files.
	Insertions, Deletions int
	// Unreadable are the sorted names of files and directories that one of the snapshots could not
	// read. The patch leaves them out.
	Unreadable []string
}

// WritePatch writes the difference between two snapshots as a patch for git apply, with binary
// files, file modes, symlinks and renames. Applied to exactly the files of before it makes exactly
// those of after. Names in it are relative to the top of the git repository that the directory was
// in when before was taken, as git apply reads them in any directory of it, else to the directory;
// names in PatchStats are relative to the directory. The patch of equal snapshots is empty. The
// same snapshots give the same bytes.
//
// A file with a NUL byte, or of more than 8 MiB, is written as binary. A new file that shares at
// least half of its lines with a deleted one counts as renamed; among very many or very large files
// only those with equal content do. As in git, directories exist only through their files. Hashes
// in the patch are SHA-1, so that binary changes do not apply in a repository that uses SHA-256.
func WritePatch(ctx context.Context, w io.Writer, before, after *Snapshot) (PatchStats, error) {
	p := &patchWriter{w: bufio.NewWriter(w), before: before, after: after}
	stats, err := p.write(ctx)
	if err == nil {
		err = p.w.Flush()
	}
	if err != nil {
		return stats, fmt.Errorf("write patch: %w", err)
	}
	return stats, nil
}

// patchWriter writes one patch.
type patchWriter struct {
	w             *bufio.Writer
	before, after *Snapshot
}

// change is a file that differs between the snapshots. Of an added file from is empty, of a deleted
// one to.
type change struct {
	from, to   string
	similarity int // of a renamed file, in percent
}

func (c change) path() string {
	if c.to != "" {
		return c.to
	}
	return c.from
}

func (p *patchWriter) write(ctx context.Context) (PatchStats, error) {
	var stats PatchStats
	stats.Unreadable = append(p.before.Unreadable(), p.after.Unreadable()...)
	slices.Sort(stats.Unreadable)
	stats.Unreadable = slices.Compact(stats.Unreadable)

	changes, err := p.changes(ctx)
	if err != nil {
		return stats, err
	}
	for _, c := range changes {
		if ctx.Err() != nil {
			return stats, env.ContextError(ctx)
		}
		fc, err := p.change(c)
		if err != nil {
			return stats, fmt.Errorf("%q: %w", c.path(), err)
		}
		stats.Files = append(stats.Files, fc)
		stats.Insertions += fc.Insertions
		stats.Deletions += fc.Deletions
	}
	return stats, nil
}

// changes returns the files that differ, sorted by path.
func (p *patchWriter) changes(ctx context.Context) ([]change, error) {
	var changed []change
	var deleted, added []string
	for name, old := range p.before.files {
		if p.before.hides(name) || p.after.hides(name) {
			continue
		}
		now, ok := p.after.files[name]
		switch {
		case !ok:
			deleted = append(deleted, name)
		case !now.same(old):
			changed = append(changed, change{from: name, to: name})
		}
	}
	for name := range p.after.files {
		if _, ok := p.before.files[name]; !ok && !p.before.hides(name) && !p.after.hides(name) {
			added = append(added, name)
		}
	}
	slices.Sort(deleted)
	slices.Sort(added)
	moved, err := p.renames(ctx, deleted, added)
	if err != nil {
		return nil, err
	}
	changed = append(changed, moved...)
	slices.SortFunc(changed, func(a, b change) int { return strings.Compare(a.path(), b.path()) })
	return changed, nil
}

// change writes one change and returns its summary.
func (p *patchWriter) change(c change) (FileChange, error) {
	old, now := p.side(p.before, c.from), p.side(p.after, c.to)
	fc := FileChange{Status: Modified, Path: c.path()}
	switch {
	case old.mode == 0:
		fc.Status = Added
	case now.mode == 0:
		fc.Status = Deleted
	case c.from != c.to:
		fc.Status, fc.From = Renamed, c.from
	}
	if old.mode == 0 || now.mode == 0 || (old.mode == modeSymlink) == (now.mode == modeSymlink) {
		return fc, p.file(&fc, c, old, now)
	}
	// A symlink and a file have no content to compare: delete one and add the other.
	if err := p.file(&fc, change{from: c.from}, old, patchSide{}); err != nil {
		return fc, err
	}
	return fc, p.file(&fc, change{to: c.to}, patchSide{}, now)
}

// patchSide is a file before or after a change. The mode of a missing one is 0.
type patchSide struct {
	fileState
	open func() *io.SectionReader
}

func (p *patchWriter) side(s *Snapshot, name string) patchSide {
	if name == "" {
		return patchSide{}
	}
	return patchSide{s.files[name], func() *io.SectionReader { return s.open(name) }}
}
