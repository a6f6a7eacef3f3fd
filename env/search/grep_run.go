package search

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

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/env/search/internal/grep"
)

const (
	// grepBatch is how many files are searched by one worker, one after the other.
	grepBatch = 32
	// grepAhead is how many batches are searched, or wait for that, while what comes before them is
	// not delivered.
	grepAhead = 64
	// grepPiece is how many bytes of results are collected before they are delivered, and grepPieces
	// how many pieces of a batch may wait for that.
	grepPiece, grepPieces = 16 << 10, 4
	// grepTime is how long results of a batch are held while more is searched for.
	grepTime = 50 * time.Millisecond
	// maxGrepWorkers is how many batches are searched at once.
	maxGrepWorkers = 8
)

// regularOpener is implemented by environments that open with less effort what ReadDir has just
// told to be a regular file.
type regularOpener interface {
	// OpenRegular returns the file and its size in bytes. For what is not a regular file any more it
	// returns an error, and it does not wait for another end of it.
	OpenRegular(ctx context.Context, name string) (io.ReadCloser, int64, error)
}

// grepper is one search.
type grepper struct {
	e          env.FileReader
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
	// ctx is the context of the caller, and failed what fn returned to end the search.
	ctx    context.Context
	failed error
	// spend, if set, is told how many bytes were read.
	spend func(n int64)
	// rg, if set, says which files are not worth searching. It is asked once early is closed, when the
	// first are delivered.
	rg    *ripgrep
	early chan struct{}
}

// batch are some files that follow each other, and what is in them.
type batch struct {
	files []grepFile
	// sift says that ripgrep is asked about them.
	sift bool
	// results come in pieces until they are closed.
	results chan []grepResult
}

func newBatch(files []grepFile) *batch {
	return &batch{files: files, results: make(chan []grepResult, grepPieces)}
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
	// spent says that its bytes count as read.
	spent bool
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

// folder searches what is below root, several files at once, and delivers what is found in the
// order of the walk.
func (g *grepper) folder(ctx context.Context, root string, opts WalkOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	wanted, unwanted := context.WithCancel(g.ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	defer unwanted()
	workers := min(runtime.GOMAXPROCS(0), maxGrepWorkers)
	order, jobs := make(chan *batch, grepAhead), make(chan *batch, workers)
	for range workers {
		work.Go(func() {
			s := g.searcher()
			for b := range jobs {
				g.search(ctx, wanted, s, b)
			}
		})
	}
	var walked error
	work.Go(func() {
		defer close(order)
		defer close(jobs)
		walked = g.walk(ctx, root, opts, order, jobs)
	})
	delivered := 0
	for b := range order {
		for piece := range b.results {
			if err := g.deliver(piece); err != nil {
				return err
			}
		}
		before := delivered
		if delivered += len(b.files); g.rg != nil && before < rgAfter && delivered >= rgAfter {
			close(g.early)
		}
	}
	if err := g.cut(ctx, root); err != nil {
		return err
	}
	return walked
}

// walk sends what is to be searched both to where it is delivered and to the workers.
func (g *grepper) walk(
	ctx context.Context, root string, opts WalkOptions, order, jobs chan<- *batch,
) error {
	size, sent, last := grepBatch, 0, time.Now()
	var files []grepFile
	send := func() error {
		if len(files) == 0 {
			return nil
		}
		b := newBatch(files)
		if b.sift = size == rgBatch; b.sift {
			select {
			case <-g.early:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if sent += len(files); g.rg != nil && sent >= rgAfter {
			size = rgBatch
		}
		files, last = make([]grepFile, 0, size), time.Now()
		select {
		case order <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case jobs <- b:
			return nil
		case <-ctx.Done():
			close(b.results) // Nobody searches it.
			return ctx.Err()
		}
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
			files = append(files, grepFile{name: pathname.Join(root, entry.Name), listed: true})
		}
		// Workers that have nothing to do get what there is, but not one file at a time where ripgrep is
		// asked.
		if len(files) == size || len(jobs) == 0 && (size == grepBatch || time.Since(last) >= grepTime) {
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
	wanted, unwanted := context.WithCancel(g.ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	defer unwanted()
	b := newBatch([]grepFile{{name: name}})
	work.Go(func() { g.search(ctx, wanted, g.searcher(), b) })
	for piece := range b.results {
		unread := piece[len(piece)-1].unread
		piece[len(piece)-1].unread = nil
		if err := g.deliver(piece); err != nil {
			return err
		}
		if unread != nil {
			return unread
		}
	}
	return g.cut(ctx, name)
}

// cut returns an error if the search has ended before all was delivered.
func (g *grepper) cut(ctx context.Context, name string) error {
	for _, ctx := range []context.Context{g.ctx, ctx} { // They end one after the other.
		if ctx.Err() != nil {
			return &fs.PathError{Op: "grep", Path: name, Err: env.ContextError(ctx)}
		}
	}
	return nil
}

// deliver gives what was found to fn, also what was found before the search reached a limit.
func (g *grepper) deliver(piece []grepResult) error {
	for _, r := range piece {
		if r.begins && g.stats.Truncated {
			return fs.SkipAll
		}
		if r.begins {
			g.stats.Files++
		}
		if r.binary {
			g.stats.SkippedBinary++
		}
		for _, m := range r.matches {
			if err := g.match(m); err != nil {
				return err
			}
		}
		switch {
		case env.IsFatal(g.ctx, r.unread):
			return r.unread
		case r.unread != nil && !errors.Is(r.unread, fs.ErrNotExist):
			g.unreadable.add(r.unread)
		}
	}
	return nil
}

func (g *grepper) match(m GrepMatch) error {
	near := m.Name == g.last.Name && m.Line <= g.last.Line+g.after
	switch {
	case g.ctx.Err() != nil:
		return &fs.PathError{Op: "grep", Path: m.Name, Err: env.ContextError(g.ctx)}
	case m.Context && g.left == 0 && !near: // before one that is not delivered
		return nil
	case !m.Context && g.left == 0:
		g.stats.Truncated = true
		if !near {
			return fs.SkipAll
		}
		m.Context = true // it comes after the last one
	case !m.Context:
		if g.left > 0 {
			g.left--
		}
		g.stats.Matches += max(1, m.Count)
		g.last = GrepMatch{Name: m.Name, Line: m.Line}
	}
	g.failed = g.fn(m)
	return g.failed
}

// search searches the files of a batch. What it finds is sent as long as it is wanted.
func (g *grepper) search(ctx, wanted context.Context, s *grep.Searcher, b *batch) {
	defer close(b.results)
	w := grepWorker{grepper: g, ctx: ctx, wanted: wanted, searcher: s, to: b.results, sent: time.Now()}
	if b.sift && len(b.files) >= rgFewest {
		w.sift(b.files)
	}
	for _, f := range b.files {
		if w.file(f) != nil {
			break
		}
	}
	_ = w.flush() // Nobody wants it if this is an error.
}

// grepWorker searches one batch.
type grepWorker struct {
	*grepper
	// ctx ends the search, and wanted the wait for who takes what was found.
	ctx, wanted context.Context
	searcher    *grep.Searcher
	to          chan<- []grepResult
	piece       []grepResult
	size        int // that of the matches in piece
	sent        time.Time
}

// flush sends what was found. Its error is that of wanted.
func (w *grepWorker) flush() error {
	if len(w.piece) == 0 {
		return nil
	}
	select {
	case w.to <- w.piece:
		w.piece, w.size, w.sent = make([]grepResult, 0, grepBatch), 0, time.Now()
		return nil
	case <-w.wanted.Done():
		return w.wanted.Err()
	}
}

// errEnough ends the search of a file.
var errEnough = errors.New("enough")

// file searches one file. Its error is that of ctx or of wanted.
func (w *grepWorker) file(f grepFile) error {
	if w.due() {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.ctx.Err() != nil {
		return w.ctx.Err()
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
		if w.ctx.Err() == nil {
			w.now().unread = err
		}
		return w.ctx.Err()
	}
	defer func() { _ = file.Close() }() // It was only read.
	begun, matches, last := false, 0, 0
	begin := func() {
		w.now().begins, begun = w.now().begins || !begun, true
	}
	err = w.lines(file, f, func(l grep.Line) error {
		begin()
		if matches == w.perFile && w.perFile > 0 {
			if l.Number > last+w.after {
				return errEnough
			}
			l.Match = false // it comes after the last one
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
		return w.add(GrepMatch{
			Name: f.name, Line: l.Number, Text: string(l.Text), LineCut: l.Cut,
			Context: !l.Match,
		})
	})
	if errors.Is(err, grep.ErrBinary) {
		w.now().binary = true
		return w.ctx.Err()
	}
	begin()
	switch {
	case matches == 0:
	case w.mode == GrepFiles:
		w.now().matches, w.size = []GrepMatch{{Name: f.name}}, w.size+1
	case w.mode == GrepCounts:
		w.now().matches, w.size = []GrepMatch{{Name: f.name, Count: matches}}, w.size+1
	}
	switch {
	case err == nil, errors.Is(err, errEnough):
	case w.ctx.Err() != nil:
	default:
		w.now().unread = env.PathError("read", f.name, err)
	}
	return w.ctx.Err()
}

func (w *grepWorker) lines(file io.Reader, f grepFile, fn func(grep.Line) error) error {
	r := grepReader{file, w, f.spent}
	if f.lines == nil {
		return w.searcher.Search(w.ctx, r, fn)
	}
	return w.searcher.SearchLines(w.ctx, r, f.lines, fn)
}

// grepReader reads a file. Before that it sends what has been found for a while.
type grepReader struct {
	file  io.Reader
	w     *grepWorker
	spent bool
}

func (r grepReader) Read(p []byte) (int, error) {
	if r.w.due() {
		if err := r.w.part(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Read(p)
	if r.w.spend != nil && !r.spent {
		r.w.spend(int64(n))
	}
	return n, err
}

// due tells whether something has been found for a while.
func (w *grepWorker) due() bool { return w.size > 0 && time.Since(w.sent) >= grepTime }

// part sends what has been found of a file and before it.
func (w *grepWorker) part() error {
	err := w.flush()
	w.piece = append(w.piece, grepResult{}) // the rest of the file
	return err
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
	return w.part()
}

// overLimit is why the context of a search ends that has a limit.
type overLimit GrepStop

func (o overLimit) Error() string { return "the search has reached its limit of " + string(o) }

// limit returns the context of a search that may take only so long and read so much.
func (g *grepper) limit(
	ctx context.Context, opts GrepOptions,
) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	var timer *time.Timer
	if allowed := cmp.Or(opts.MaxTime, DefaultGrepTime); allowed > 0 {
		timer = time.AfterFunc(allowed, func() { end(overLimit(GrepOverTime)) })
	}
	if allowed := cmp.Or(opts.MaxBytes, DefaultGrepBytes); allowed > 0 {
		var spent atomic.Int64
		g.spend = func(n int64) {
			if spent.Add(n) > allowed {
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
