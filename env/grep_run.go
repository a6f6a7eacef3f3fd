package env

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/grep"
)

const (
	// grepBatch is how many files are searched by one worker, one after the other.
	grepBatch = 32
	// grepAhead is how many batches are searched, or wait for that, while what comes before them is not delivered.
	grepAhead = 64
	// grepPiece is how many bytes of results are collected before they are delivered, and grepPieces how many pieces of a batch may
	// wait for that.
	grepPiece, grepPieces = 16 << 10, 4
	// maxGrepWorkers is how many batches are searched at once.
	maxGrepWorkers = 8
)

// regularOpener is implemented by environments that open with less effort what ReadDir has just told to be a regular file. It waits
// for no other file either, and opens none.
type regularOpener interface {
	// OpenRegular returns the file and its size in bytes.
	OpenRegular(ctx context.Context, name string) (io.ReadCloser, int64, error)
}

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
	// ctx is the context of the caller.
	ctx context.Context
	// spend, if set, is told how many bytes of a file were read.
	spend func(n int)
	// rg, if set, says which files are not worth searching.
	rg *ripgrep
}

// batch are some files that follow each other, and what is in them.
type batch struct {
	files []grepFile
	// results come in pieces until they are closed.
	results chan []grepResult
}

// grepFile is a file to be searched.
type grepFile struct {
	name string
	// listed says that it was a regular file a moment ago.
	listed bool
	// unread is why something of this name could not be read; then it is not searched.
	unread error
	// known says that nothing has to be searched: it is binary, or is text without a match.
	known, binary bool
	// lines are those that may match, by their numbers; nil if each of them may.
	lines []int
}

// grepResult is a part of what is in one file.
type grepResult struct {
	matches []GrepMatch
	// begins says that this is the first part of a file that is text, which may have none.
	begins bool
	binary bool
	// unread is why the file could not be read to its end.
	unread error
}

// folder searches what is below root, several files at once, and delivers what is found in the order of the walk.
func (g *grepper) folder(ctx context.Context, root string, opts WalkOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	workers := min(runtime.GOMAXPROCS(0), maxGrepWorkers)
	order, jobs := make(chan *batch, grepAhead), make(chan *batch, workers)
	for range workers {
		work.Go(func() {
			s := g.searcher()
			for b := range jobs {
				g.search(ctx, s, b)
			}
		})
	}
	var walked error
	work.Go(func() {
		defer close(order)
		defer close(jobs)
		walked = g.walk(ctx, root, opts, order, jobs)
	})
	for b := range order {
		for piece := range b.results {
			if err := g.deliver(ctx, piece); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil { // Not everything was delivered.
		return &fs.PathError{Op: "grep", Path: root, Err: ended(ctx)}
	}
	return walked
}

// walk sends what is to be searched both to where it is delivered and to the workers.
func (g *grepper) walk(ctx context.Context, root string, opts WalkOptions, order, jobs chan<- *batch) error {
	size := grepBatch
	if g.rg != nil {
		size = rgBatch
	}
	var files []grepFile
	send := func() error {
		if len(files) == 0 {
			return nil
		}
		b := &batch{files: files, results: make(chan []grepResult, grepPieces)}
		files = make([]grepFile, 0, size)
		for _, to := range []chan<- *batch{order, jobs} {
			select {
			case to <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	err := Walk(ctx, g.e, root, opts, func(entry Entry) error {
		switch {
		case entry.Err != nil:
			files = append(files, grepFile{unread: entry.Err})
		case entry.Mode.IsDir() && !g.wantsBelow(entry.Name):
			return fs.SkipDir
		case !entry.Mode.IsRegular() || !g.wants(entry.Name):
			return nil
		default:
			files = append(files, grepFile{name: join(root, entry.Name), listed: true})
		}
		// Workers that have nothing to do get what there is.
		if len(files) == size || len(jobs) == 0 && g.rg == nil {
			return send()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return send()
}

// wants reports whether a file is one of those to search.
func (g *grepper) wants(name string) bool {
	return g.filter.match(name) && (g.exclude.glob == nil || !g.exclude.match(name)) &&
		(len(g.types) == 0 || slices.ContainsFunc(g.types, func(f filter) bool { return f.match(name) }))
}

// wantsBelow reports whether a folder may have files to search.
func (g *grepper) wantsBelow(name string) bool {
	return g.filter.mayMatchBelow(name) && (g.exclude.glob == nil || !g.exclude.match(name))
}

// one searches one file that was named.
func (g *grepper) one(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	b := &batch{files: []grepFile{{name: name}}, results: make(chan []grepResult, grepPieces)}
	work.Go(func() { g.search(ctx, g.searcher(), b) })
	for piece := range b.results {
		unread := piece[len(piece)-1].unread
		piece[len(piece)-1].unread = nil
		if err := g.deliver(ctx, piece); err != nil {
			return err
		}
		if unread != nil {
			return unread
		}
	}
	if ctx.Err() != nil { // Not everything was delivered.
		return &fs.PathError{Op: "grep", Path: name, Err: ended(ctx)}
	}
	return nil
}

// deliver gives what was found to fn.
func (g *grepper) deliver(ctx context.Context, piece []grepResult) error {
	for _, r := range piece {
		if r.begins {
			g.stats.Files++
		}
		if r.binary {
			g.stats.SkippedBinary++
		}
		for _, m := range r.matches {
			if err := g.match(g.ctx, m); err != nil { // what was found before a limit is delivered
				return err
			}
		}
		switch {
		case endsSearch(ctx, r.unread):
			return r.unread
		case r.unread != nil && !errors.Is(r.unread, fs.ErrNotExist):
			g.unreadable.add(r.unread)
		}
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

// search searches the files of a batch.
func (g *grepper) search(ctx context.Context, s *grep.Searcher, b *batch) {
	defer close(b.results)
	w := grepWorker{grepper: g, ctx: ctx, searcher: s, to: b.results}
	if g.rg != nil && len(b.files) >= rgFewest {
		w.sift(b.files)
	}
	for _, f := range b.files {
		if err := w.file(f); err != nil {
			return
		}
	}
	_ = w.flush() // The search has ended if this is an error.
}

// grepWorker searches one batch.
type grepWorker struct {
	*grepper
	ctx      context.Context
	searcher *grep.Searcher
	to       chan<- []grepResult
	piece    []grepResult
	size     int // that of piece
}

// flush sends what was found. Its error is that of ctx.
func (w *grepWorker) flush() error {
	if len(w.piece) == 0 {
		return nil
	}
	select {
	case w.to <- w.piece:
		w.piece, w.size = nil, 0
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// errEnough ends the search of a file.
var errEnough = errors.New("enough")

// file searches one file. Its error is that of ctx.
func (w *grepWorker) file(f grepFile) error {
	if w.piece == nil {
		w.piece = make([]grepResult, 0, grepBatch)
	}
	w.piece = append(w.piece, grepResult{unread: f.unread})
	if f.unread != nil {
		return nil
	}
	if f.known {
		w.now().begins, w.now().binary = !f.binary, f.binary
		return w.ctx.Err()
	}
	file, _, err := w.open(f)
	if err != nil {
		w.now().unread = err
		return nil
	}
	defer func() { _ = file.Close() }() // It was only read.
	w.now().begins = true
	matches, last := 0, 0
	err = w.lines(file, f.lines, func(l grep.Line) error {
		if matches == w.perFile && w.perFile > 0 && (l.Match || l.Number > last+w.after) {
			return errEnough
		}
		if l.Match {
			matches++
			last = l.Number
		}
		switch w.mode {
		case GrepFiles:
			return errEnough
		case GrepCounts:
			return nil
		}
		return w.add(GrepMatch{Name: f.name, Line: l.Number, Text: string(l.Text), LineCut: l.Cut, Context: !l.Match})
	})
	switch {
	case matches == 0:
	case w.mode == GrepFiles:
		w.now().matches = []GrepMatch{{Name: f.name}}
	case w.mode == GrepCounts:
		w.now().matches = []GrepMatch{{Name: f.name, Count: matches}}
	}
	switch {
	case err == nil, errors.Is(err, errEnough):
	case errors.Is(err, grep.ErrBinary):
		w.now().begins, w.now().binary = false, true
	case w.ctx.Err() != nil:
		w.now().unread = &fs.PathError{Op: "grep", Path: f.name, Err: ended(w.ctx)}
	default:
		w.now().unread = pathError("read", f.name, err)
	}
	return w.ctx.Err()
}

func (w *grepWorker) lines(r io.Reader, some []int, fn func(grep.Line) error) error {
	if w.spend != nil {
		r = spender{r, w.spend}
	}
	if some == nil {
		return w.searcher.Search(w.ctx, r, fn)
	}
	return w.searcher.SearchLines(w.ctx, r, some, fn)
}

// now is the result that is made.
func (w *grepWorker) now() *grepResult { return &w.piece[len(w.piece)-1] }

// add adds a line to what was found.
func (w *grepWorker) add(m GrepMatch) error {
	now := w.now()
	now.matches = append(now.matches, m)
	if w.size += len(m.Text) + 64; w.size < grepPiece {
		return nil
	}
	err := w.flush()
	w.piece = append(w.piece, grepResult{}) // the rest of the file
	return err
}

// overLimit is why the context of a search ends that has a limit.
type overLimit GrepStop

func (o overLimit) Error() string { return "the search has reached its limit of " + string(o) }

// limit returns the context of a search that may take only so long and read so much.
func (g *grepper) limit(ctx context.Context, opts GrepOptions) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	var timer *time.Timer
	if allowed := cmp.Or(opts.MaxTime, DefaultGrepTime); allowed > 0 {
		timer = time.AfterFunc(allowed, func() { end(overLimit(GrepOverTime)) })
	}
	if allowed := cmp.Or(opts.MaxBytes, DefaultGrepBytes); allowed > 0 {
		var spent atomic.Int64
		g.spend = func(n int) {
			if spent.Add(int64(n)) > allowed {
				end(overLimit(GrepOverBytes))
			}
		}
	}
	return ctx, func() {
		if timer != nil {
			timer.Stop()
		}
		end(context.Canceled)
	}
}

// spender tells how much is read.
type spender struct {
	io.Reader
	spend func(n int)
}

func (s spender) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.spend(n)
	return n, err
}
