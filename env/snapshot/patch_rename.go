package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"hash/maphash"
	"path"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// minSimilarity is the minimum share of equal lines in a renamed file, in percent.
	minSimilarity = 50
	// maxRenamePairs and maxRenameBytes bound the search for files that were renamed and edited.
	maxRenamePairs = 100_000
	maxRenameBytes = 64 << 20
)

// renames makes changes of deleted and added files, both sorted. Pairs become renamed files.
func (p *patchWriter) renames(ctx context.Context, deleted, added []string) ([]change, error) {
	deleted, added, changes, err := p.exactRenames(ctx, deleted, added)
	if err != nil {
		return nil, err
	}
	similar, err := p.similarRenames(ctx, deleted, added)
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool, 2*len(similar))
	for _, c := range similar {
		taken["a/"+c.from], taken["b/"+c.to] = true, true
	}
	changes = append(changes, similar...)
	for _, name := range deleted {
		if !taken["a/"+name] {
			changes = append(changes, change{from: name})
		}
	}
	for _, name := range added {
		if !taken["b/"+name] {
			changes = append(changes, change{to: name})
		}
	}
	return changes, nil
}

// exactRenames pairs files with the same content, preferably with the same base name, and returns
// the rest. It pairs no empty files, whose equality means nothing, and no symlinks: git apply
// refuses to make a directory in place of a renamed symlink.
func (p *patchWriter) exactRenames(
	ctx context.Context, deleted, added []string,
) (goneLeft, newLeft []string, renamed []change, err error) {
	type content struct {
		sha256 [sha256.Size]byte
		base   string // empty means any
	}
	sources := make(map[content][]string)
	for _, name := range deleted {
		if s := p.before.files[name]; s.size > 0 && s.mode != modeSymlink {
			for _, key := range []content{{s.sha256, path.Base(name)}, {s.sha256, ""}} {
				sources[key] = append(sources[key], name)
			}
		}
	}
	from := make(map[string]string) // by new name
	used := make(map[string]bool)
	for _, sameBase := range []bool{true, false} {
		for _, name := range added {
			if ctx.Err() != nil {
				return nil, nil, nil, env.ContextError(ctx)
			}
			s := p.after.files[name]
			if s.mode == modeSymlink || from[name] != "" {
				continue
			}
			key := content{sha256: s.sha256}
			if sameBase {
				key.base = path.Base(name)
			}
			left := sources[key]
			for len(left) > 0 && used[left[0]] {
				left = left[1:]
			}
			if len(left) > 0 {
				from[name], used[left[0]] = left[0], true
				left = left[1:]
			}
			sources[key] = left
		}
	}
	for _, name := range deleted {
		if !used[name] {
			goneLeft = append(goneLeft, name)
		}
	}
	for _, name := range added {
		if old := from[name]; old != "" {
			renamed = append(renamed, change{from: old, to: name, similarity: 100})
		} else {
			newLeft = append(newLeft, name)
		}
	}
	return goneLeft, newLeft, renamed, nil
}

// similarRenames pairs text files that share at least half of their lines, the most similar first.
func (p *patchWriter) similarRenames(
	ctx context.Context, deleted, added []string,
) ([]change, error) {
	if len(deleted)*len(added) > maxRenamePairs {
		return nil, nil
	}
	var size int64
	for _, name := range deleted {
		size += p.before.files[name].size
	}
	for _, name := range added {
		size += p.after.files[name].size
	}
	if size > maxRenameBytes || len(deleted) == 0 || len(added) == 0 {
		return nil, nil
	}
	seed := maphash.MakeSeed()
	olds, err := lineBags(p.before, deleted, seed)
	if err != nil {
		return nil, err
	}
	news, err := lineBags(p.after, added, seed)
	if err != nil {
		return nil, err
	}
	var candidates []change
	for i, from := range deleted {
		if ctx.Err() != nil {
			return nil, env.ContextError(ctx)
		}
		for j, to := range added {
			if s := similarity(olds[i], news[j]); s >= minSimilarity {
				candidates = append(candidates, change{from, to, s})
			}
		}
	}
	slices.SortFunc(candidates, func(x, y change) int {
		return cmp.Or(
			cmp.Compare(y.similarity, x.similarity),
			cmp.Compare(otherBase(x), otherBase(y)),
			cmp.Compare(x.from, y.from),
			cmp.Compare(x.to, y.to),
		)
	})
	usedFrom, usedTo := make(map[string]bool), make(map[string]bool)
	return slices.DeleteFunc(candidates, func(c change) bool {
		if usedFrom[c.from] || usedTo[c.to] {
			return true
		}
		usedFrom[c.from], usedTo[c.to] = true, true
		return false
	}), nil
}

func otherBase(c change) int {
	if path.Base(c.from) == path.Base(c.to) {
		return 0
	}
	return 1
}

// lineBag is a text file without order: the number of bytes in each distinct line, sorted by the
// hash of the line. It is empty for symlinks, empty files and binary files.
type lineBag struct {
	size  int64
	lines []lineWeight
}

type lineWeight struct {
	hash  uint64
	bytes int64
}

func lineBags(s *Snapshot, names []string, seed maphash.Seed) ([]lineBag, error) {
	bags := make([]lineBag, len(names))
	for i, name := range names {
		side := patchSide{s.files[name], nil}
		if side.mode == modeSymlink || side.size == 0 || side.size > maxTextDiff {
			continue
		}
		content := make([]byte, side.size)
		if _, err := s.open(name).ReadAt(content, 0); err != nil {
			return nil, noEOF(err)
		}
		if bytes.IndexByte(content, 0) >= 0 {
			continue
		}
		bags[i] = makeLineBag(content, seed)
	}
	return bags, nil
}

func makeLineBag(content []byte, seed maphash.Seed) lineBag {
	weights := make(map[uint64]int64)
	for text, i := splitLines(content), 0; i < text.len(); i++ {
		line := text.line(i)
		weights[maphash.Bytes(seed, bytes.TrimRight(line, "\r\n"))] += int64(len(line))
	}
	bag := lineBag{size: int64(len(content)), lines: make([]lineWeight, 0, len(weights))}
	for hash, n := range weights {
		bag.lines = append(bag.lines, lineWeight{hash, n})
	}
	slices.SortFunc(bag.lines, func(x, y lineWeight) int { return cmp.Compare(x.hash, y.hash) })
	return bag
}

// similarity returns the common share of the larger file, in percent.
func similarity(x, y lineBag) int {
	if x.size == 0 || y.size == 0 || 100*min(x.size, y.size) < minSimilarity*max(x.size, y.size) {
		return 0
	}
	var common int64
	for i, j := 0, 0; i < len(x.lines) && j < len(y.lines); {
		switch a, b := x.lines[i], y.lines[j]; {
		case a.hash < b.hash:
			i++
		case a.hash > b.hash:
			j++
		default:
			common += min(a.bytes, b.bytes)
			i, j = i+1, j+1
		}
	}
	return int(min(99, 100*common/max(x.size, y.size)))
}
