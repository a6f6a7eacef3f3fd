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
	// bufferSize is how much of a file is in memory at a time. If a line is longer, there is more, up
	// to maxGrowth times as much; one that is longer than that is matched piece by piece.
	bufferSize = 256 << 10
	maxGrowth  = 8
	// pieceSize is that of the pieces.
	pieceSize = 64 << 10
	// probeSize is how far into a file a NUL byte shows that it is binary.
	probeSize = 8 << 10
	// MaxMultiline is the size of the largest file, in bytes, that is searched for matches of several
	// lines: it has to be in memory.
	MaxMultiline = 4 << 20
)

var (
	// ErrBinary says that a file is not searched since it is no text.
	ErrBinary = errors.New("the file is binary")
	// ErrTooLong says that a file is not searched for matches of several lines since it is longer than
	// MaxMultiline.
	ErrTooLong = fmt.Errorf("the file has more than %d MiB, too many for matches of several lines",
		MaxMultiline>>20)
	// ErrTooMany says that a file is not searched to its end since it has too many matches for a
	// search for those of several lines.
	ErrTooMany = fmt.Errorf("the file has more than %d matches, too many for matches of several lines",
		maxSpans)
)

// Options say which lines are delivered, and how much of them.
type Options struct {
	// Before and After are how many lines before and after a match are delivered as well. Those before
	// it have to be in memory: the last MiB of them is, and never more than two. A line of more than 1
	// MiB may be missing, with those before it.
	Before, After int
	// MaxLine is how many bytes of a line are delivered.
	MaxLine int
	// Multiline has a match be of several lines, all of which are delivered. The pattern was made for
	// that.
	Multiline bool
}

// Line is a line of a file.
type Line struct {
	// Number counts from 1.
	Number int
	// Text is the line without its ending. It is valid until the function returns that gets it.
	Text []byte
	// Cut says that Text is only the start of the line, cut between two characters.
	Cut bool
	// Match says that the line matches, and is not one around those that do.
	Match bool
}

// Searcher searches one file after another.
type Searcher struct {
	pattern *Pattern
	opts    Options
	data    []byte
	size    int // that of data
	piece   []byte
}

// NewSearcher returns a searcher, which is for one goroutine.
func NewSearcher(p *Pattern, opts Options) *Searcher {
	return &Searcher{pattern: p, opts: opts, size: bufferSize}
}

// Search calls fn for the lines of r that match, and those around them, in their order. Lines end
// with "\n" or "\r\n"; a byte order mark is no part of the first one, and one of UTF-16 tells that
// the file is in that, which is searched as UTF-8. It ends with the error of fn, that of r,
// ErrBinary before fn is called, or the cause of ctx.
func (s *Searcher) Search(ctx context.Context, r io.Reader, fn func(Line) error) error {
	return s.file(ctx, r, fn).search()
}

// SearchLines is Search for a file of which only some lines may match, by their numbers in
// ascending order. Lines that are not in memory as a whole are searched as well.
func (s *Searcher) SearchLines(
	ctx context.Context, r io.Reader, lines []int, fn func(Line) error,
) error {
	f := s.file(ctx, r, fn)
	f.some, f.which = true, lines
	return f.search()
}

func (f *file) search() error {
	if err := f.begin(); err != nil {
		return err
	}
	if f.opts.Multiline {
		return f.all()
	}
	for {
		f.room()
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
			err = f.lines(end)
		case f.eof:
			return nil
		case f.err != nil:
			return f.err
		case len(f.data) < maxGrowth*f.size:
			f.grow()
		default:
			err = f.long()
		}
		if err != nil {
			return err
		}
	}
}

// Probe reads the start of r and returns ErrBinary if that says that it is no text.
func (s *Searcher) Probe(ctx context.Context, r io.Reader) error {
	return s.file(ctx, r, nil).begin()
}

func (s *Searcher) file(ctx context.Context, r io.Reader, fn func(Line) error) *file {
	if s.data == nil {
		s.data = make([]byte, s.size)
	}
	s.data = s.data[:s.size]
	return &file{Searcher: s, ctx: ctx, r: r, fn: fn, line: 1}
}

// begin reads the start.
func (f *file) begin() error {
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

// grow makes room for as much again.
func (s *Searcher) grow() {
	size := 2 * len(s.data)
	if cap(s.data) < size {
		s.data = append(make([]byte, 0, size), s.data...)
	}
	s.data = s.data[:size]
}

// file is one that is searched. Positions are in data.
type file struct {
	*Searcher
	ctx context.Context
	r   io.Reader
	fn  func(Line) error

	// n is how much of data has been read, and kept how much of it was searched and is there for what
	// comes around matches.
	n, kept int
	eof     bool
	err     error // why there is no more, if that is not its end
	// line is the number of the line that begins at counted.
	line, counted int
	// some says that only which lines, those left, may match.
	some  bool
	which []int
	// shown is up to where lines were delivered, and after how many behind that are to be.
	shown, after int
}

// fill reads until there are so many bytes, or no more.
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

// decode makes UTF-8 of what has another byte order mark than that, and removes the mark.
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

// ended is a reader that has ended, with an error if there is one.
type ended struct{ err error }

func (e ended) Read([]byte) (int, error) { return 0, cmp.Or(e.err, io.EOF) }

// lines searches whole lines, those from kept to end, and makes room for more.
func (f *file) lines(end int) error {
	scan := f.pattern.Scan(f.ctx, f.data[:end])
	for from := f.kept; ; from = f.shown {
		start, stop, ok := f.next(scan, from)
		if !ok {
			break
		}
		if err := f.around(start); err != nil {
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
	f.forget(f.back(end))
	return nil
}

// forget removes what is before a position, where a line begins.
func (f *file) forget(at int) {
	f.count(at)
	f.n = copy(f.data, f.data[at:f.n])
	f.kept, f.counted, f.shown = f.kept-at, 0, max(0, f.shown-at)
}

// room has at least half of data be for what is not yet searched. If there is no more memory, it
// forgets the first lines that are kept.
func (f *file) room() {
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

// next returns where the next line that matches is, from a position on where a line begins.
func (f *file) next(scan *Scanner, from int) (start, end int, ok bool) {
	if !f.some {
		return scan.Next(from)
	}
	// what comes before it may yet be delivered
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

// around delivers what is to be seen before the match at start, and after the one before it.
func (f *file) around(start int) error {
	if err := f.showAfter(start); err != nil {
		return err
	}
	for at := f.back(start); at < start; at = f.shown {
		if err := f.deliver(at, lineEnd(f.data[:start], at), false); err != nil {
			return err
		}
	}
	return nil
}

// showAfter delivers what is to be seen after a match, as far as it is before end.
func (f *file) showAfter(end int) error {
	for ; f.after > 0 && f.shown < end; f.after-- {
		if err := f.deliver(f.shown, lineEnd(f.data[:end], f.shown), false); err != nil {
			return err
		}
	}
	return nil
}

// back returns where the first of the lines begins that are to be seen before the one at a
// position.
func (f *file) back(at int) int {
	for range f.opts.Before {
		if at <= f.shown {
			break
		}
		at = f.shown + bytes.LastIndexByte(f.data[f.shown:at-1], '\n') + 1
	}
	return at
}

// count finds out the number of the line that begins at a position.
func (f *file) count(at int) {
	f.line += bytes.Count(f.data[f.counted:at], []byte("\n"))
	f.counted = at
}

// deliver hands a line on.
func (f *file) deliver(start, end int, match bool) error {
	f.count(start)
	text := f.data[start:end]
	f.shown = min(lineEnd(f.data[:f.n], end)+1, f.n)
	if f.shown > end && bytes.HasSuffix(text, []byte("\r")) && !match {
		text = text[:len(text)-1]
	}
	return f.hand(text, false, match)
}

// hand hands a line on, or the start of one that has more.
func (f *file) hand(text []byte, more, match bool) error {
	limit := f.opts.MaxLine
	if more { // The last character may be a part of one.
		limit = min(limit, len(text)-1)
	}
	shown := cut(text, limit)
	return f.fn(Line{Number: f.line, Text: shown, Cut: len(shown) < len(text), Match: match})
}

// cut returns at most limit bytes of text, and does not cut a character in two.
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
