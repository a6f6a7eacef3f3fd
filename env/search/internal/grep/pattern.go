// Package grep finds the lines of a text that match a regular expression. It searches for literals
// that each match must contain, at the speed of memory, and tries the expression only around them.
package grep

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"regexp/syntax"
	"sync"
)

// Pattern is a regular expression for lines. It may be used concurrently.
type Pattern struct {
	re      *regexp.Regexp
	parsed  *syntax.Regexp
	finders []finder
	// enough is true if each line with one of the literals matches.
	enough bool
	// rare is true if the literals are not in nearly every line.
	rare bool
	// short is the length of a text on which the expression runs without a check of the context.
	short int
	// behind returns expressions for matches after the start of a text.
	behind func() (behind, error)
}

// shortWork bounds short: the product of its bytes and the instructions of the expression. One step
// takes some 30 ns at worst.
const shortWork = 1 << 20

// New returns a pattern for an expression with its syntax tree.
func New(re *regexp.Regexp, parsed *syntax.Regexp) *Pattern {
	p := &Pattern{re: re, parsed: parsed, short: shortWork}
	if prog, err := syntax.Compile(parsed.Simplify()); err == nil {
		p.short /= len(prog.Inst)
	}
	p.behind = sync.OnceValues(func() (behind, error) { return newBehind(re, parsed) })
	some, enough := required(parsed)
	for _, l := range some {
		p.finders = append(p.finders, newFinder(l))
		// A carriage return in a line ending does not match.
		enough = enough && !bytes.ContainsRune([]byte(l.text), '\r')
	}
	p.enough = enough && len(some) > 0
	p.rare = rareness(some) > frequent
	return p
}

// Literal reports whether literals exclude most lines, so that few need the expression.
func (p *Pattern) Literal() bool { return p.enough || p.rare }

// Match reports whether a line without its ending matches.
func (p *Pattern) Match(line []byte) bool { return p.re.Match(line) }

// Scan returns a scanner of a text that starts with a line. It finds no more matches after ctx has
// ended.
func (p *Pattern) Scan(ctx context.Context, text []byte) *Scanner {
	s := &Scanner{ctx: ctx, p: p, text: text, enough: p.enough}
	for i := range p.finders {
		c := p.finders[i].cursor(text)
		s.cursors = append(s.cursors, c)
		s.enough = s.enough && c.enough
	}
	return s
}

// Scanner finds the matching lines of one text.
type Scanner struct {
	ctx     context.Context
	p       *Pattern
	text    []byte
	cursors []cursor
	enough  bool
}

// Next returns the bounds, without the ending, of the first matching line that starts at from or
// later. A line starts at from.
func (s *Scanner) Next(from int) (start, end int, ok bool) {
	for from < len(s.text) {
		at := from
		if len(s.cursors) > 0 {
			if at = s.find(from); at < 0 {
				return 0, 0, false
			}
		}
		start = from + bytes.LastIndexByte(s.text[from:at], '\n') + 1
		start, end = s.line(start)
		if len(s.cursors) > 0 && s.enough || s.match(s.text[start:end]) {
			return start, end, true
		}
		if s.ctx.Err() != nil {
			break
		}
		from = lineEnd(s.text, end) + 1
	}
	return 0, 0, false
}

// line returns the bounds, without the ending, of the line that starts at start.
func (s *Scanner) line(start int) (int, int) {
	end := lineEnd(s.text, start)
	if end < len(s.text) && bytes.HasSuffix(s.text[start:end], []byte("\r")) {
		end--
	}
	return start, end
}

// match reports whether a line matches. After the context has ended the result may be false for one
// that does.
func (s *Scanner) match(line []byte) bool {
	if len(line) <= s.p.short {
		return s.p.re.Match(line)
	}
	// The expression takes a reader that ends early for the end of the line: check the context too.
	return s.p.re.MatchReader(s.p.reader(s.ctx, bytes.NewReader(line))) && s.ctx.Err() == nil
}

// reader returns a reader that ends when a context does.
func (p *Pattern) reader(ctx context.Context, r io.RuneReader) *runeReader {
	return &runeReader{RuneReader: r, ctx: ctx, every: min(p.short, 512)}
}

// runeReader reads until a context ends.
type runeReader struct {
	io.RuneReader
	ctx context.Context
	// every is the number of bytes between checks of the context, read the number read, and checked
	// that at the last check.
	every, read, checked int
}

// ReadRune implements io.RuneReader.
func (r *runeReader) ReadRune() (rune, int, error) {
	if r.read-r.checked > r.every {
		r.checked = r.read
		if r.ctx.Err() != nil {
			return 0, 0, r.ctx.Err()
		}
	}
	char, size, err := r.RuneReader.ReadRune()
	r.read += size
	return char, size, err
}

// find returns the position of the next literal, or -1.
func (s *Scanner) find(from int) int {
	at := -1
	for i := range s.cursors {
		if next := s.cursors[i].next(from); next >= 0 && (at < 0 || next < at) {
			at = next
		}
	}
	return at
}

// lineEnd returns the end, without the line feed, of the line at from.
func lineEnd(text []byte, from int) int {
	if i := bytes.IndexByte(text[from:], '\n'); i >= 0 {
		return from + i
	}
	return len(text)
}
