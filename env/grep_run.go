package env

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/grep"
)

const (
	// grepAhead is how many files are searched, or wait for that, while what comes before them is not delivered.
	grepAhead = 128
	// grepPiece is how many bytes of matches are collected before they are delivered.
	grepPiece = 16 << 10
	// maxGrepWorkers is how many files are searched at once.
	maxGrepWorkers = 8
)

// grepper is one search.
type grepper struct {
	e          FileReader
	fn         func(GrepMatch) error
	mode       GrepMode
	perFile    int // how many matches of one file are delivered; 0 if there is no limit
	after      int
	filter     filter
	exclude    filter   // what matches is left out, if it is not empty
	types      []filter // all files pass if there are none
	searcher   func() *grep.Searcher
	left       int       // how many matches to deliver, less than 0 if there is no limit
	last       GrepMatch // the last one that was delivered
	stats      GrepStats
	unreadable unreadable
}

// found is a file, and what is in it.
type found struct {
	name string
	// matches come piece by piece until they are closed; then the rest is known.
	matches chan []GrepMatch
	binary  bool
	// unread is why it could not be read to its end.
	unread error
	// opened says that it was searched, if not to its end.
	opened bool
}

// folder searches what is below root, several files at once, and delivers what is found in the order of the walk.
func (g *grepper) folder(ctx context.Context, root string, opts WalkOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	order, jobs := make(chan *found, grepAhead), make(chan *found, grepAhead)
	send := func(to chan<- *found, f *found) error {
		select {
		case to <- f:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for range min(runtime.GOMAXPROCS(0), maxGrepWorkers) {
		work.Go(func() {
			s := g.searcher()
			for f := range jobs {
				g.search(ctx, s, f)
			}
		})
	}
	var walked error
	work.Go(func() {
		defer close(order)
		defer close(jobs)
		walked = Walk(ctx, g.e, root, opts, func(entry Entry) error {
			switch {
			case entry.Err != nil:
				f := &found{unread: entry.Err, matches: make(chan []GrepMatch)}
				close(f.matches)
				return send(order, f)
			case entry.Mode.IsDir() && !g.filter.mayMatchBelow(entry.Name):
				return fs.SkipDir
			case !entry.Mode.IsRegular() || !g.wants(entry.Name):
				return nil
			}
			f := &found{name: join(root, entry.Name), matches: make(chan []GrepMatch, 1)}
			if err := send(order, f); err != nil {
				return err
			}
			return send(jobs, f)
		})
	})
	for f := range order {
		if err := g.deliver(ctx, f); err != nil {
			return err
		}
	}
	return walked
}

// wants reports whether a file is one of those to search.
func (g *grepper) wants(name string) bool {
	return g.filter.match(name) && (g.exclude.glob == nil || !g.exclude.match(name)) &&
		(len(g.types) == 0 || slices.ContainsFunc(g.types, func(f filter) bool { return f.match(name) }))
}

// one searches one file that was named.
func (g *grepper) one(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	f := &found{name: name, matches: make(chan []GrepMatch, 1)}
	work.Go(func() { g.search(ctx, g.searcher(), f) })
	if err := g.pass(ctx, f); err != nil {
		return err
	}
	return f.unread
}

// deliver delivers what is in a file once it is its turn.
func (g *grepper) deliver(ctx context.Context, f *found) error {
	if err := g.pass(ctx, f); err != nil {
		return err
	}
	switch {
	case endsSearch(ctx, f.unread):
		return f.unread
	case f.unread != nil && !errors.Is(f.unread, fs.ErrNotExist):
		g.unreadable.add(f.unread)
	}
	return nil
}

// pass gives the matches in a file to fn.
func (g *grepper) pass(ctx context.Context, f *found) error {
	counted := false
	for piece := range f.matches {
		if !counted {
			g.stats.Files++
			counted = true
		}
		for _, m := range piece {
			if err := g.match(ctx, m); err != nil {
				return err
			}
		}
	}
	switch {
	case f.binary:
		g.stats.SkippedBinary++
	case f.opened && !counted:
		g.stats.Files++
	}
	return nil
}

func (g *grepper) match(ctx context.Context, m GrepMatch) error {
	switch {
	case ctx.Err() != nil:
		return &fs.PathError{Op: "grep", Path: m.Name, Err: ended(ctx)}
	case m.Context && (g.left != 0 || m.Name == g.last.Name && m.Line <= g.last.Line+g.after):
		return g.fn(m)
	case m.Context: // before one that is not delivered
		return nil
	case g.left == 0:
		g.stats.Truncated = true
		return fs.SkipAll
	case g.left > 0:
		g.left--
	}
	g.stats.Matches += max(1, m.Count)
	g.last = GrepMatch{Name: m.Name, Line: m.Line}
	return g.fn(m)
}

// errEnough ends the search of a file.
var errEnough = errors.New("enough")

// search searches one file.
func (g *grepper) search(ctx context.Context, s *grep.Searcher, f *found) {
	defer close(f.matches)
	file, err := g.e.Open(ctx, f.name)
	if err != nil {
		f.unread = err
		return
	}
	defer func() { _ = file.Close() }() // It was only read.
	f.opened = true
	var piece []GrepMatch
	size := 0
	flush := func() error {
		if len(piece) == 0 {
			return nil
		}
		select {
		case f.matches <- piece:
			piece, size = nil, 0
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	matches := 0
	err = s.Search(ctx, file, func(l grep.Line) error {
		if l.Match {
			if g.perFile > 0 && matches == g.perFile {
				return errEnough
			}
			matches++
		}
		switch g.mode {
		case GrepFiles:
			return errEnough
		case GrepCounts:
			return nil
		}
		piece = append(piece, GrepMatch{Name: f.name, Line: l.Number, Text: string(l.Text), LineCut: l.Cut, Context: !l.Match})
		if size += len(l.Text) + 64; size < grepPiece {
			return nil
		}
		return flush()
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	switch {
	case matches == 0:
	case g.mode == GrepFiles:
		piece = []GrepMatch{{Name: f.name}}
	case g.mode == GrepCounts:
		piece = []GrepMatch{{Name: f.name, Count: matches}}
	}
	if flushed := flush(); err == nil {
		err = flushed
	}
	switch {
	case errors.Is(err, grep.ErrBinary):
		f.binary = true
	case err != nil && ctx.Err() != nil:
		f.unread = &fs.PathError{Op: "grep", Path: f.name, Err: ended(ctx)}
	case err != nil:
		f.unread = pathError("read", f.name, err)
	}
}
