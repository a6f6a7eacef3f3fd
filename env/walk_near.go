package env

import (
	"context"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
)

// siblingsAhead is how many folders of one folder are listed beside the walk at a time.
const siblingsAhead = 8

// near lists the next folders of a folder while the walk is in the first, on each level of the tree.
type near struct {
	work sync.WaitGroup
	// wanted, if set, tells of a folder whether the walk goes into it.
	wanted func(name string) bool
}

// siblings are the folders in one folder, parent, to which the walk has not come.
type siblings struct {
	w       *walker
	parent  string
	entries []fs.DirEntry // those of parent that come after listed
	rules   *gitignore.Stack
	listed  []*listing
}

// listing is a folder that is listed once, by whoever comes first.
type listing struct {
	name    string
	once    sync.Once
	entries []fs.DirEntry
	err     error
}

// list returns what is in the folder name.
func (s *siblings) list(ctx context.Context, name string) ([]fs.DirEntry, error) {
	for len(s.listed) > 0 && s.listed[0].name != name {
		s.listed = s.listed[1:] // The walk has left it out.
	}
	if len(s.listed) == 0 {
		s.start(ctx, name)
	}
	if len(s.listed) == 0 {
		return s.w.e.ReadDir(ctx, join(s.w.root, name))
	}
	l := s.listed[0]
	s.listed = s.listed[1:]
	s.read(ctx, l)
	entries := l.entries
	l.entries = nil // They need not stay in memory with those that follow.
	return entries, l.err
}

// start begins to list those after name.
func (s *siblings) start(ctx context.Context, name string) {
	for len(s.entries) > 0 && len(s.listed) <= siblingsAhead {
		d := s.entries[0]
		s.entries = s.entries[1:]
		if below := join(s.parent, d.Name()); below == name || len(s.listed) > 0 && s.wants(below, d) {
			s.listed = append(s.listed, &listing{name: below})
		}
	}
	if len(s.listed) < 2 {
		return
	}
	next := s.listed[1:]
	s.w.near.work.Go(func() {
		for _, l := range next {
			s.read(ctx, l)
		}
	})
}

// wants tells whether d, called name, is a folder into which the walk goes.
func (s *siblings) wants(name string, d fs.DirEntry) bool {
	return d.IsDir() && !s.w.leavesOut(name, d, s.rules) && (s.w.near.wanted == nil || s.w.near.wanted(name))
}

// read lists l, unless that is done; while somebody else does it, it waits.
func (s *siblings) read(ctx context.Context, l *listing) {
	l.once.Do(func() { l.entries, l.err = s.w.e.ReadDir(ctx, join(s.w.root, l.name)) })
}
