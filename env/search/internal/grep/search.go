package grep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

const (
	// bufferSize is the size of the buffer. It grows for longer lines, up to maxGrowth times; longer
	// lines still are matched in pieces of pieceSize.
	bufferSize = 256 << 10
	maxGrowth  = 8
	pieceSize  = 64 << 10
	// probeSize is the length of the start of a file in which a NUL byte means that it is binary.
	probeSize = 8 << 10
	// MaxMultiline bounds the size of a file in a multiline search, which holds it in memory, in
	// bytes.
	MaxMultiline = 4 << 20
)

var (
	// ErrBinary means that a file is not searched because it is binary.
	ErrBinary = errors.New("the file is binary")
	// ErrTooLong means that a file exceeds MaxMultiline.
	ErrTooLong = fmt.Errorf("the file has more than %d MiB, too many for a multiline search",
		MaxMultiline>>20)
	// ErrTooMany means that a multiline search ended early because the file has too many matches.
	ErrTooMany = fmt.Errorf("the file has more than %d matches, too many for a multiline search",
		maxSpans)
)

// Options are options of a search.
type Options struct {
	// Before and After are the numbers of context lines. Lines before a match are delivered from
	// memory, which has the last 1 to 2 MiB. A line of more than 1 MiB may be missing, with those
	// before it.
	Before, After int
	// MaxLine bounds the delivered part of a line, in bytes.
	MaxLine int
	// Multiline allows matches of several lines, which are all delivered. It needs a pattern with the
	// flags for that.
	Multiline bool
}

// Line is a line of a file.
type Line struct {
	// Number counts from 1.
	Number int
	// Text is the line without its ending, valid until the callback returns.
	Text []byte
	// Cut is true if Text is only the start of the line, cut between two characters.
	Cut bool
	// Match is true for a matching line, false for a context line.
	Match bool
}

// Searcher searches one file after another.
type Searcher struct {
	pattern *Pattern
	opts    Options
	data    []byte
	size    int // of data
	piece   []byte
}

// NewSearcher returns a searcher for use by one goroutine.
func NewSearcher(p *Pattern, opts Options) *Searcher {
	return &Searcher{pattern: p, opts: opts, size: bufferSize}
}

// Search calls fn for the matching lines of r and their context lines, in order. Lines end with
// "\n" or "\r\n"; a byte order mark is not part of the first one, and one of UTF-16 makes Search
// decode the file. It returns the error of fn or r, ErrBinary before it calls fn, or the cause of
// ctx.
func (s *Searcher) Search(ctx context.Context, r io.Reader, fn func(Line) error) error {
	return s.file(ctx, r, fn).search()
}

// SearchLines is Search for a file in which only the lines with the given ascending numbers, and
// lines longer than the buffer, may match.
func (s *Searcher) SearchLines(
	ctx context.Context, r io.Reader, lines []int, fn func(Line) error,
) error {
	f := s.file(ctx, r, fn)
	f.some, f.which = true, lines
	return f.search()
}

func (f *file) search() error {
	if err := f.start(); err != nil {
		return err
	}
	if f.opts.Multiline {
		return f.searchAll()
	}
	for {
		f.makeRoom()
		if err := f.fill(len(f.data)); err != nil {
			return err
		}
		end := f.n
		if !f.eof {
			end = f.kept + bytes.LastIndexByte(f.data[f.kept:f.n], '\n') + 1
		}
		var err error
		switch {
		case end > f.kept:
			err = f.searchLines(end)
		case f.eof:
			return nil
		case f.err != nil:
			return f.err
		case len(f.data) < maxGrowth*f.size:
			f.grow()
		default:
			err = f.searchLong()
		}
		if err != nil {
			return err
		}
	}
}

// Probe reads the start of r and returns ErrBinary for a binary file.
func (s *Searcher) Probe(ctx context.Context, r io.Reader) error {
	return s.file(ctx, r, nil).start()
}

func (s *Searcher) file(ctx context.Context, r io.Reader, fn func(Line) error) *file {
	if s.data == nil {
		s.data = make([]byte, s.size)
	}
	s.data = s.data[:s.size]
	return &file{Searcher: s, ctx: ctx, r: r, fn: fn, line: 1}
}

// start reads the start of the file and decodes UTF-16.
func (f *file) start() error {
	if err := f.fill(min(probeSize, f.size)); err != nil {
		return err
	}
	if f.err != nil && f.n == 0 {
		return f.err
	}
	if err := f.decode(); err != nil {
		return err
	}
	if bytes.IndexByte(f.data[:min(f.n, probeSize)], 0) >= 0 {
		return ErrBinary
	}
	return nil
}

// grow doubles the buffer.
func (s *Searcher) grow() {
	size := 2 * len(s.data)
	if cap(s.data) < size {
		s.data = append(make([]byte, 0, size), s.data...)
	}
	s.data = s.data[:size]
}

// file is the search of one file. Positions are in data.
type file struct {
	*Searcher
	ctx context.Context
	r   io.Reader
	fn  func(Line) error

	// n is the length of the read part of data, kept that of its searched part, which is kept for
	// context lines.
	n, kept int
	eof     bool
	err     error // of r, other than io.EOF
	// line is the number of the line that starts at counted.
	line, counted int
	// which are, if some is set, the remaining lines that may match.
	some  bool
	which []int
	// shown is the end of the last delivered line, after the number of context lines due after it.
	shown, after int
}

// fill reads until data has at least so many bytes, or r ends.
func (f *file) fill(least int) error {
	for f.n < least && !f.eof && f.err == nil {
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		n, err := f.r.Read(f.data[f.n:])
		f.n += n
		if errors.Is(err, io.EOF) {
			f.eof = true
		} else {
			f.err = err
		}
	}
	return nil
}

// Byte order marks.
var (
	markUTF8    = []byte("\xef\xbb\xbf")
	markUTF16LE = []byte("\xff\xfe")
	markUTF16BE = []byte("\xfe\xff")
)

// decode converts UTF-16 with a byte order mark to UTF-8, and removes a mark.
func (f *file) decode() error {
	var order unicode.Endianness
	switch data := f.data[:f.n]; {
	case bytes.HasPrefix(data, markUTF8):
		f.n = copy(f.data, data[len(markUTF8):])
		return nil
	case bytes.HasPrefix(data, markUTF16LE):
		order = unicode.LittleEndian
	case bytes.HasPrefix(data, markUTF16BE):
		order = unicode.BigEndian
	default:
		return nil
	}
	begin := bytes.NewReader(bytes.Clone(f.data[len(markUTF16LE):f.n]))
	rest := f.r
	if f.eof || f.err != nil {
		rest = ended{f.err}
	}
	f.r = unicode.UTF16(order, unicode.IgnoreBOM).NewDecoder().Reader(io.MultiReader(begin, rest))
	f.n, f.eof, f.err = 0, false, nil
	return f.fill(min(probeSize, f.size))
}

// ended is a reader at its end, or at its error.
type ended struct{ err error }

func (e ended) Read([]byte) (int, error) { return 0, cmp.Or(e.err, io.EOF) }

// searchLines searches the complete lines from kept to end, and forgets those that no context
// needs.
func (f *file) searchLines(end int) error {
	scan := f.pattern.Scan(f.ctx, f.data[:end])
	for from := f.kept; ; from = f.shown {
		start, stop, ok := f.next(scan, from)
		if !ok {
			break
		}
		if err := f.showAround(start); err != nil {
			return err
		}
		if err := f.deliver(start, stop, true); err != nil {
			return err
		}
		f.after = f.opts.After
	}
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	if err := f.showAfter(end); err != nil {
		return err
	}
	f.kept = end
	f.forget(f.contextStart(end))
	return nil
}

// forget removes the data before the start of a line.
func (f *file) forget(at int) {
	f.count(at)
	f.n = copy(f.data, f.data[at:f.n])
	f.kept, f.counted, f.shown = f.kept-at, 0, max(0, f.shown-at)
}

// makeRoom keeps at least half of data free for unsearched text: it grows data, or forgets the
// first kept lines.
func (f *file) makeRoom() {
	half := len(f.data) / 2
	switch {
	case f.kept <= half:
	case len(f.data) < maxGrowth*f.size:
		f.grow()
	default:
		from := f.kept - half
		f.forget(from + bytes.IndexByte(f.data[from-1:f.kept], '\n'))
	}
}

// next returns the bounds of the next matching line from the start of a line on.
func (f *file) next(scan *Scanner, from int) (start, end int, ok bool) {
	if !f.some {
		return scan.Next(from)
	}
	// Lines before it may still be delivered, so f.count does not apply.
	line := f.line + bytes.Count(f.data[f.counted:from], []byte("\n"))
	for at := from; len(f.which) > 0; f.which = f.which[1:] {
		for ; line < f.which[0]; line++ {
			i := bytes.IndexByte(scan.text[at:], '\n')
			if i < 0 {
				return 0, 0, false
			}
			at += i + 1
		}
		if at == len(scan.text) || f.ctx.Err() != nil {
			return 0, 0, false
		}
		start, end = scan.line(at)
		if line == f.which[0] && scan.match(scan.text[start:end]) {
			return start, end, true
		}
	}
	return 0, 0, false
}

// showAround delivers the context lines after the previous match and before the match at start.
func (f *file) showAround(start int) error {
	if err := f.showAfter(start); err != nil {
		return err
	}
	for at := f.contextStart(start); at < start; at = f.shown {
		if err := f.deliver(at, lineEnd(f.data[:start], at), false); err != nil {
			return err
		}
	}
	return nil
}

// showAfter delivers the context lines after a match, up to end.
func (f *file) showAfter(end int) error {
	for ; f.after > 0 && f.shown < end; f.after-- {
		if err := f.deliver(f.shown, lineEnd(f.data[:end], f.shown), false); err != nil {
			return err
		}
	}
	return nil
}

// contextStart returns the start of the first context line before the line at a position.
func (f *file) contextStart(at int) int {
	for range f.opts.Before {
		if at <= f.shown {
			break
		}
		at = f.shown + bytes.LastIndexByte(f.data[f.shown:at-1], '\n') + 1
	}
	return at
}

// count sets f.line to the number of the line that starts at a position.
func (f *file) count(at int) {
	f.line += bytes.Count(f.data[f.counted:at], []byte("\n"))
	f.counted = at
}

// deliver delivers a complete line.
func (f *file) deliver(start, end int, match bool) error {
	f.count(start)
	text := f.data[start:end]
	f.shown = min(lineEnd(f.data[:f.n], end)+1, f.n)
	if f.shown > end && bytes.HasSuffix(text, []byte("\r")) && !match {
		text = text[:len(text)-1]
	}
	return f.call(text, false, match)
}

// call calls fn with a line, or with the start of one that has more.
func (f *file) call(text []byte, more, match bool) error {
	limit := f.opts.MaxLine
	if more { // The last character may be incomplete.
		limit = min(limit, len(text)-1)
	}
	shown := cut(text, limit)
	return f.fn(Line{Number: f.line, Text: shown, Cut: len(shown) < len(text), Match: match})
}

// cut returns at most limit bytes of text, and splits no character.
func cut(text []byte, limit int) []byte {
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
