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

// A ChangeStatus tells what happened to a file.
type ChangeStatus string

// What can happen to a file; the letters are git's.
const (
	Added    ChangeStatus = "A"
	Modified ChangeStatus = "M"
	Deleted  ChangeStatus = "D"
	Renamed  ChangeStatus = "R"
)

// FileChange is what a patch does to one file.
type FileChange struct {
	Status ChangeStatus
	// Path is the name of the file, after the change if it still exists. From is the name before, of a
	// renamed file.
	Path, From string
	// Insertions and Deletions are numbers of lines; both are 0 for binary files and if only the mode
	// changed.
	Insertions, Deletions int
	// Binary says that the content is not shown as lines, because it is no text or too large.
	Binary bool
}

// PatchStats tells what is in a patch.
type PatchStats struct {
	// Files are the changes, sorted by path.
	Files []FileChange
	// Insertions and Deletions are the sums of those of the files.
	Insertions, Deletions int
	// Unreadable are the names of files and folders that could not be read in one of the snapshots,
	// sorted. The patch says nothing about them.
	Unreadable []string
}

// WritePatch writes the difference between two snapshots as a patch that git apply understands,
// with binary files, file modes, links and renames. It leads from exactly the files of before to
// exactly those of after. Names in it are relative to the root of the git repository that the
// folder was in when before was taken, which is how git apply reads them in any folder of it, or
// else to the folder itself; those in PatchStats are relative to the folder. If nothing differs,
// nothing is written. The same snapshots give the same bytes.
//
// A file that contains a NUL byte, or is larger than 8 MiB, is written as binary. A file is taken
// for renamed if at least half of it is what a deleted one was; of very many or very large files
// only those that did not change besides are found. Folders exist only through the files in them,
// as for git. Hashes in the patch are SHA-1, so that binary changes do not apply in a repository
// that uses SHA-256.
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

// change is a file that differs between the snapshots. A name is empty where there is no file.
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

// changes finds the files that differ, sorted by path.
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

// change writes one change and tells about it.
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
	if old.mode == 0 || now.mode == 0 || (old.mode == modeLink) == (now.mode == modeLink) {
		return fc, p.file(&fc, c, old, now)
	}
	// A link and a file have no content to compare: one goes, the other comes.
	if err := p.file(&fc, change{from: c.from}, old, patchSide{}); err != nil {
		return fc, err
	}
	return fc, p.file(&fc, change{to: c.to}, patchSide{}, now)
}

// patchSide is a file before or after a change. Where there is none, mode is 0.
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
