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
	"github.com/sandboxagent/sandboxagent/env/internal/regular"
	"github.com/sandboxagent/sandboxagent/env/search/internal/grep"
)

const (
	// grepBatch is the number of files in a batch, which one worker searches in order.
	grepBatch = 32
	// grepAhead bounds the batches that wait for the delivery of earlier results.
	grepAhead = 64
	// grepPiece is the size of a piece of results in bytes; grepPieces pieces of a batch may wait.
	grepPiece, grepPieces = 16 << 10, 4
	// grepTime bounds how long a worker holds results while it searches on.
	grepTime = 50 * time.Millisecond
	// maxGrepWorkers bounds the number of concurrent batches.
	maxGrepWorkers = 8
)

// grepper is one search.
type grepper struct {
	e           env.FileReader
	openRegular regular.Open // nil if e has none
	fn          func(GrepMatch) error
	mode        GrepMode
	perFile     int // the maximum of matches per file; 0 is no limit
	after       int
	filter      filter
	exclude     filter   // leaves out matching names, unless it is empty
	types       []filter // any; none selects all files
	searcher    func() *grep.Searcher
	left        int       // the number of matches still to deliver; negative is no limit
	last        GrepMatch // the last delivered match
	stats       GrepStats
	unreadable  unreadable
	// ctx is the context of the caller, failed the error of fn that ended the search.
	ctx    context.Context
	failed error
	// spend, if set, counts the bytes read.
	spend func(n int64)
	// rg, if set, selects candidate files once early is closed, after the first files are delivered.
	rg    *ripgrep
	early chan struct{}
}

// batch are consecutive files and their results.
type batch struct {
	files []grepFile
	// sift is true if ripgrep selects candidates among the files.
	sift bool
	// results delivers pieces until it is closed.
	results chan []grepResult
}

func newBatch(files []grepFile) *batch {
	return &batch{files: files, results: make(chan []grepResult, grepPieces)}
}

// grepFile is a file to search.
type grepFile struct {
	name string
	// listed is true if the walk found a regular file.
	listed bool
	// unread is the error of an unreadable file or directory, which is not searched.
	unread error
	// known is true if the file is binary, or text without a match, and needs no search.
	known, binary bool
	// spent is true if its bytes are counted as read.
	spent bool
	// lines are the numbers of the lines that may match; nil if all may.
	lines []int
}

// grepResult is a part of the results of one file.
type grepResult struct {
	matches []GrepMatch
	// first is true for the first part of a text file, with matches or without.
	first  bool
	binary bool
	// unread is the error that ended reading the file.
	unread error
}

// searchDir searches the tree below root, several files at once, and delivers the results in the
// order of the walk.
func (g *grepper) searchDir(ctx context.Context, root string, opts WalkOptions) error {
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

// walk sends batches of files to search both to the deliverer, in order, and to the workers.
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
			close(b.results) // No worker has it.
			return ctx.Err()
		}
	}
	err := Walk(ctx, g.e, root, opts, func(entry Entry) error {
		switch {
		case entry.Err != nil:
			files = append(files, grepFile{unread: entry.Err})
		case entry.Mode.IsDir() && !g.selectsBelow(entry.Name):
			return fs.SkipDir
		case !entry.Mode.IsRegular() || !g.selects(entry.Name):
			return nil
		default:
			files = append(files, grepFile{name: pathname.Join(root, entry.Name), listed: true})
		}
		// Idle workers get a partial batch at once, but batches for ripgrep only after a while.
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

// selects reports whether the filters select a file.
func (g *grepper) selects(name string) bool {
	return g.filter.match(name) && (g.exclude.glob == nil || !g.exclude.match(name)) &&
		(len(g.types) == 0 || slices.ContainsFunc(g.types, func(f filter) bool { return f.match(name) }))
}

// selectsBelow reports whether the filters may select a file in a directory.
func (g *grepper) selectsBelow(name string) bool {
	return g.filter.mayMatchBelow(name) && (g.exclude.glob == nil || !g.exclude.match(name))
}

// searchFile searches one file.
func (g *grepper) searchFile(ctx context.Context, name string) error {
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

// cut returns an error if a context ended before all results were delivered.
func (g *grepper) cut(ctx context.Context, name string) error {
	for _, ctx := range []context.Context{g.ctx, ctx} { // The second may end without the first.
		if ctx.Err() != nil {
			return &fs.PathError{Op: "grep", Path: name, Err: env.ContextError(ctx)}
		}
	}
	return nil
}

// deliver passes results to fn, also those before a limit ended the search.
func (g *grepper) deliver(piece []grepResult) error {
	for _, r := range piece {
		if r.first && g.stats.Truncated {
			return fs.SkipAll
		}
		if r.first {
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
		case env.FatalError(g.ctx, r.unread) != nil:
			return env.FatalError(g.ctx, r.unread)
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
	case m.Context && g.left == 0 && !near: // before a match over the limit
		return nil
	case !m.Context && g.left == 0:
		g.stats.Truncated = true
		if !near {
			return fs.SkipAll
		}
		m.Context = true // after the last match
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

// search searches the files of a batch, and sends results until wanted ends.
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
	_ = w.flush() // After an error nobody receives.
}

// grepWorker searches one batch.
type grepWorker struct {
	*grepper
	// ctx ends the search, wanted the wait for the receiver of results.
	ctx, wanted context.Context
	searcher    *grep.Searcher
	to          chan<- []grepResult
	piece       []grepResult
	size        int // of the matches in piece
	sent        time.Time
}

// flush sends the collected results. Its error is that of wanted.
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
	if w.overdue() {
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
		w.current().first, w.current().binary = !f.binary, f.binary
		return w.ctx.Err()
	}
	file, _, err := w.open(f)
	if err != nil {
		if w.ctx.Err() == nil {
			w.current().unread = err
		}
		return w.ctx.Err()
	}
	defer func() { _ = file.Close() }() // It was only read.
	started, matches, last := false, 0, 0
	start := func() {
		w.current().first, started = w.current().first || !started, true
	}
	err = w.lines(file, f, func(l grep.Line) error {
		start()
		if matches == w.perFile && w.perFile > 0 {
			if l.Number > last+w.after {
				return errEnough
			}
			l.Match = false // context after the last match
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
		w.current().binary = true
		return w.ctx.Err()
	}
	start()
	switch {
	case matches == 0:
	case w.mode == GrepFiles:
		w.current().matches, w.size = []GrepMatch{{Name: f.name}}, w.size+1
	case w.mode == GrepCounts:
		w.current().matches, w.size = []GrepMatch{{Name: f.name, Count: matches}}, w.size+1
	}
	switch {
	case err == nil, errors.Is(err, errEnough):
	case w.ctx.Err() != nil:
	default:
		w.current().unread = env.PathError("read", f.name, err)
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

// grepReader reads a file, and sends overdue results before each read.
type grepReader struct {
	file  io.Reader
	w     *grepWorker
	spent bool
}

func (r grepReader) Read(p []byte) (int, error) {
	if r.w.overdue() {
		if err := r.w.flushPart(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Read(p)
	if r.w.spend != nil && !r.spent {
		r.w.spend(int64(n))
	}
	return n, err
}

// overdue reports whether results have waited for grepTime.
func (w *grepWorker) overdue() bool { return w.size > 0 && time.Since(w.sent) >= grepTime }

// flushPart sends the collected results in the middle of a file.
func (w *grepWorker) flushPart() error {
	err := w.flush()
	w.piece = append(w.piece, grepResult{}) // the rest of the file
	return err
}

// current returns the result of the current file.
func (w *grepWorker) current() *grepResult { return &w.piece[len(w.piece)-1] }

// add adds a line to the results.
func (w *grepWorker) add(m GrepMatch) error {
	r := w.current()
	r.matches = append(r.matches, m)
	if w.size += len(m.Text) + 64; w.size < grepPiece {
		return nil
	}
	return w.flushPart()
}

// overLimit is the cause that ends the context of a search at a limit.
type overLimit GrepStop

func (o overLimit) Error() string { return "the search has reached its limit of " + string(o) }

// limit returns a context that ends at MaxTime or, by calls of g.spend, at MaxBytes.
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
