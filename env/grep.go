package env

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// DefaultMaxMatches is how many matches Grep delivers if GrepOptions does not say.
	DefaultMaxMatches = 100
	// DefaultMaxLineBytes is how much of a line Grep delivers if GrepOptions does not say.
	DefaultMaxLineBytes = 500
)

// GrepOptions say what Grep looks for.
type GrepOptions struct {
	// Pattern is a regular expression in the syntax of package regexp. It is matched against one line at a time,
	// without the line ending; one that can only match a line ending is ErrBadPattern.
	Pattern string
	// Path is the file or folder to search; empty means the working directory. It is searched even if it is ignored.
	Path string
	// Glob restricts the files of a folder. Without a slash, as in *.go, it is matched against the last element of a
	// name, else against the name relative to Path. The syntax is that of GlobOptions.Pattern.
	Glob string
	// IgnoreCase matches letters of either case.
	IgnoreCase bool
	// MaxMatches is how many matches are delivered: 0 means DefaultMaxMatches, a negative number all.
	MaxMatches int
	// MaxLineBytes is how much of a line is delivered: 0 means DefaultMaxLineBytes; at most 64 KiB.
	MaxLineBytes int
	// NoIgnore searches everything, see WalkOptions.
	NoIgnore bool
}

// GrepMatch is one line that matches.
type GrepMatch struct {
	// Name is the file, by a name that can be opened: Path with the name below it, or Path itself if that is a file.
	Name string
	// Line counts from 1.
	Line int
	// Text is the line without its line ending, byte by byte: it may hold invalid UTF-8.
	Text string
	// LineCut says that Text is only the start of the line, cut between two characters.
	LineCut bool
}

// GrepStats tell what a search did.
type GrepStats struct {
	// Files is how many files were searched.
	Files int
	// Matches is how many matches were delivered.
	Matches int
	// SkippedBinary is how many files were left out because they are binary.
	SkippedBinary int
	// Truncated says that there are more matches than GrepOptions.MaxMatches.
	Truncated bool
}

// Searcher is implemented by environments that can search faster than by reading each file through Open. Callers use
// [Grep] and [Glob], which mean the same for every environment. A decorator implements it by calling these functions on
// the environment inside.
type Searcher interface {
	Grep(ctx context.Context, opts GrepOptions, fn func(GrepMatch) error) (GrepStats, error)
	Glob(ctx context.Context, opts GlobOptions) ([]Entry, error)
}

// Grep calls fn for each line that matches opts.Pattern, file by file in the order of Walk, and line by line. Only regular
// files below opts.Path are searched, not links; what is ignored is as for Walk. A file whose first 8 KiB hold a NUL byte
// is binary and skipped. Lines end with "\n" or "\r\n"; a byte order mark at the start of a file is no part of its first
// line; bytes that are not UTF-8 match as U+FFFD does. Memory is bounded, however long a file or a line is.
//
// An error of fn ends the search with that error; fs.SkipAll ends it without one.
//
// A malformed pattern or glob is ErrBadPattern, a missing path fs.ErrNotExist, both before fn is called. If some folders
// or files could not be read, the error is an *UnreadableError, and everything else has been searched. GrepStats tell
// what was done also with an error.
func Grep(ctx context.Context, e FileReader, opts GrepOptions, fn func(GrepMatch) error) (GrepStats, error) {
	if s, ok := e.(Searcher); ok {
		return s.Grep(ctx, opts, fn)
	}
	g := &grepper{e: e, fn: fn, left: cmp.Or(opts.MaxMatches, DefaultMaxMatches)}
	g.maxLine = min(cmp.Or(max(opts.MaxLineBytes, 0), DefaultMaxLineBytes), maxLineBytes)
	var err error
	if g.pattern, err = compileLine(opts.Pattern, opts.IgnoreCase); err != nil {
		return g.stats, fmt.Errorf("grep %.100q: %w", opts.Pattern, err)
	}
	if g.filter, err = parseFilter(opts.Glob); err != nil {
		return g.stats, fmt.Errorf("grep: glob %.100q: %w", opts.Glob, err)
	}
	root := cmp.Or(opts.Path, ".")
	info, err := e.Stat(ctx, root)
	if err != nil {
		return g.stats, err
	}
	if info.IsDir() {
		err = Walk(ctx, e, root, WalkOptions{NoIgnore: opts.NoIgnore}, func(entry Entry) error { return g.visit(ctx, root, entry) })
	} else {
		var unread error
		unread, err = g.file(ctx, root)
		err = cmp.Or(err, unread)
	}
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return g.stats, err
	}
	return g.stats, g.unreadable.err()
}

const (
	// grepBuffer is how much of a file is in memory at a time; a longer line is matched piece by piece.
	grepBuffer = 128 << 10
	// maxLineBytes limits GrepOptions.MaxLineBytes. A line that needs several pieces is longer than that.
	maxLineBytes = 64 << 10
	// binaryProbe is how far into a file a NUL byte shows that it is binary.
	binaryProbe = 8 << 10
)

// compileLine compiles a regular expression that is to match within one line. Its error wraps ErrBadPattern.
func compileLine(pattern string, ignoreCase bool) (*regexp.Regexp, error) {
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		var detail *syntax.Error
		if errors.As(err, &detail) {
			return nil, fmt.Errorf("%w: %s: %.100q", ErrBadPattern, detail.Code, detail.Expr)
		}
		return nil, fmt.Errorf("%w: %w", ErrBadPattern, err)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPattern, err)
	}
	if wantsNewline(parsed) {
		return nil, fmt.Errorf("%w: it contains a line ending, but lines are matched one at a time", ErrBadPattern)
	}
	return re, nil
}

// wantsNewline tells whether a part of the pattern is a literal line ending, so that it would silently never match.
func wantsNewline(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') || slices.ContainsFunc(re.Sub, wantsNewline)
}

// grepper is one search.
type grepper struct {
	e          FileReader
	fn         func(GrepMatch) error
	pattern    *regexp.Regexp
	filter     filter
	left       int // how many matches to deliver, less than 0 if there is no limit
	maxLine    int
	stats      GrepStats
	unreadable unreadable
	buffer     *bufio.Reader
	head       []byte // the start of a long line
}

// filter is GrepOptions.Glob.
type filter struct {
	glob     glob // nil lets everything pass
	baseOnly bool
}

func parseFilter(pattern string) (filter, error) {
	if pattern == "" {
		return filter{}, nil
	}
	glob, err := parseGlob(pattern)
	return filter{glob: glob, baseOnly: !strings.Contains(pattern, "/")}, err
}

func (f filter) match(name string) bool {
	if f.baseOnly {
		name = path.Base(name)
	}
	return f.glob == nil || f.glob.match(name)
}

func (f filter) mayMatchBelow(name string) bool {
	return f.glob == nil || f.baseOnly || f.glob.mayMatchBelow(name)
}

// visit searches one entry of the folder root.
func (g *grepper) visit(ctx context.Context, root string, entry Entry) error {
	switch {
	case entry.Err != nil:
		g.unreadable.add(entry.Err)
		return nil
	case entry.Mode.IsDir() && !g.filter.mayMatchBelow(entry.Name):
		return fs.SkipDir
	case !entry.Mode.IsRegular() || !g.filter.match(entry.Name):
		return nil
	}
	unread, err := g.file(ctx, join(root, entry.Name))
	switch {
	case err != nil:
		return err
	case endsSearch(ctx, unread):
		return unread
	case unread != nil && !errors.Is(unread, fs.ErrNotExist):
		g.unreadable.add(unread)
	}
	return nil
}

// file searches one file. Unread is why it could not be read to its end, err what ends the search.
func (g *grepper) file(ctx context.Context, name string) (unread, err error) {
	f, err := g.e.Open(ctx, name)
	if err != nil {
		return err, nil
	}
	defer func() { _ = f.Close() }() // It was only read.
	if g.buffer == nil {
		g.buffer = bufio.NewReaderSize(f, grepBuffer)
	} else {
		g.buffer.Reset(f)
	}
	start, err := g.buffer.Peek(binaryProbe)
	if err != nil && !errors.Is(err, io.EOF) {
		return pathError("read", name, err), nil
	}
	if bytes.IndexByte(start, 0) >= 0 {
		g.stats.SkippedBinary++
		return nil, nil
	}
	g.stats.Files++
	if mark := "\xef\xbb\xbf"; bytes.HasPrefix(start, []byte(mark)) {
		_, _ = g.buffer.Discard(len(mark)) // It is in the buffer.
	}
	for number := 1; ; number++ {
		if ctx.Err() != nil {
			return nil, &fs.PathError{Op: "grep", Path: name, Err: ended(ctx)}
		}
		line, matches, readErr := g.line(ctx)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return pathError("read", name, readErr), nil
		}
		if matches {
			if err := g.deliver(name, number, line); err != nil {
				return nil, err
			}
		}
		if readErr != nil {
			return nil, nil
		}
	}
}

// line reads the next line and tells whether it matches. Of a long line it returns only the start, more than maxLineBytes.
// The line is valid until the next call. The error is io.EOF at the end, with what comes after the last line ending;
// that is no line if it is empty, and does not match.
func (g *grepper) line(ctx context.Context) (line []byte, matches bool, err error) {
	line, err = g.buffer.ReadSlice('\n')
	if err == nil {
		line = trimEnding(line)
		return line, g.pattern.Match(line), nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, len(line) > 0 && g.pattern.Match(line), err
	}
	g.head = append(g.head[:0], line[:maxLineBytes+utf8.UTFMax]...)
	rest := &longLine{from: g.buffer, stop: func() error {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return nil
	}}
	rest.take(line, err)
	matches = g.pattern.MatchReader(bufio.NewReader(rest))
	// The match may have been found early. A read error shows here as well.
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return nil, false, err
	}
	return g.head, matches, nil
}

// trimEnding cuts off the line ending, which is there.
func trimEnding(line []byte) []byte {
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r"))
}

// longLine reads one line, without its line ending, that need not fit into the buffer it comes from.
type longLine struct {
	from  *bufio.Reader
	stop  func() error // asked before each piece
	piece []byte       // what is left of the present piece, in the buffer of from
	err   error        // what Read returns after piece
}

// Read is for io.Reader.
func (l *longLine) Read(p []byte) (int, error) {
	for len(l.piece) == 0 {
		if l.err == nil {
			l.err = l.stop()
		}
		if l.err != nil {
			return 0, l.err
		}
		l.take(l.from.ReadSlice('\n'))
	}
	n := copy(p, l.piece)
	l.piece = l.piece[n:]
	return n, nil
}

// take makes a result of ReadSlice the present piece.
func (l *longLine) take(piece []byte, err error) {
	l.piece, l.err = piece, err
	switch {
	case err == nil:
		l.piece, l.err = trimEnding(piece), io.EOF
	case errors.Is(err, bufio.ErrBufferFull):
		l.err = nil
		// Whether a carriage return belongs to the line ending shows with the next byte only.
		if last := len(piece) - 1; piece[last] == '\r' && l.from.UnreadByte() == nil {
			l.piece = piece[:last]
		}
	}
}

// deliver gives a match to fn.
func (g *grepper) deliver(name string, number int, line []byte) error {
	if g.left == 0 {
		g.stats.Truncated = true
		return fs.SkipAll
	}
	if g.left > 0 {
		g.left--
	}
	g.stats.Matches++
	text := cutText(line, g.maxLine)
	return g.fn(GrepMatch{Name: name, Line: number, Text: string(text), LineCut: len(text) < len(line)})
}

// cutText returns at most limit bytes of text, and does not cut a character in two.
func cutText(text []byte, limit int) []byte {
	if len(text) <= limit {
		return text
	}
	for end := limit; end > 0 && end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return text[:end]
		}
	}
	return text[:limit]
}
