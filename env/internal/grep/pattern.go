// Package grep finds the lines of a text that match a regular expression. It looks for what each match must have, at the speed of
// memory, and tries the expression where that is.
package grep

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// Pattern is a regular expression for lines. It may be used concurrently.
type Pattern struct {
	re      *regexp.Regexp
	parsed  *syntax.Regexp
	finders []finder
	// enough says that a line with what is looked for matches.
	enough bool
	// rare says that what is looked for is not in nearly every line.
	rare bool
}

// New returns a pattern for an expression of package regexp, of which parsed is the syntax.
func New(re *regexp.Regexp, parsed *syntax.Regexp) *Pattern {
	p := &Pattern{re: re, parsed: parsed}
	some, enough := required(parsed)
	for _, l := range some {
		p.finders = append(p.finders, newFinder(l))
		// A carriage return may belong to a line ending, where it does not match.
		enough = enough && !bytes.ContainsRune([]byte(l.text), '\r')
	}
	p.enough = enough && len(some) > 0
	p.rare = rareness(some) > frequent
	return p
}

// Literal reports whether something can be looked for that spares trying the expression on most lines.
func (p *Pattern) Literal() bool { return p.enough || p.rare }

// Match reports whether a line without its ending matches.
func (p *Pattern) Match(line []byte) bool { return p.re.Match(line) }

// Scan returns a scanner of a text that begins with a line. It finds nothing more once ctx has ended.
func (p *Pattern) Scan(ctx context.Context, text []byte) *Scanner {
	s := &Scanner{ctx: ctx, p: p, text: text, enough: p.enough}
	for i := range p.finders {
		c := p.finders[i].cursor(text)
		s.cursors = append(s.cursors, c)
		s.enough = s.enough && c.enough
	}
	return s
}

// Scanner finds the lines of one text that match.
type Scanner struct {
	ctx     context.Context
	p       *Pattern
	text    []byte
	cursors []cursor
	enough  bool
}

// Next returns where the first line that matches is, without its ending, of those that begin at from, where a line begins, or
// later.
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

// line returns where the line is, without its ending, that begins at a position.
func (s *Scanner) line(start int) (int, int) {
	end := lineEnd(s.text, start)
	if end < len(s.text) && bytes.HasSuffix(s.text[start:end], []byte("\r")) {
		end--
	}
	return start, end
}

// shortLine is how many bytes of a line are matched without a look at the context.
const shortLine = 8 << 10

// match tries the expression on a line. It does not matter what it returns after the context has ended.
func (s *Scanner) match(line []byte) bool {
	if len(line) <= shortLine {
		return s.p.re.Match(line)
	}
	return s.p.re.MatchReader(&runeReader{ctx: s.ctx, left: line})
}

// runeReader reads a line until a context ends.
type runeReader struct {
	ctx  context.Context
	left []byte
	read int // since the last look at the context
}

// ReadRune implements io.RuneReader.
func (r *runeReader) ReadRune() (rune, int, error) {
	if r.read > 512 {
		r.read = 0
		if r.ctx.Err() != nil {
			return 0, 0, r.ctx.Err()
		}
	}
	if len(r.left) == 0 {
		return 0, 0, io.EOF
	}
	char, size := utf8.DecodeRune(r.left)
	r.left = r.left[size:]
	r.read += size
	return char, size, nil
}

// find returns where the next of what is looked for is; -1 if there is none.
func (s *Scanner) find(from int) int {
	at := -1
	for i := range s.cursors {
		if next := s.cursors[i].next(from); next >= 0 && (at < 0 || next < at) {
			at = next
		}
	}
	return at
}

// lineEnd returns where the line ends, without its line feed, that has a byte at from.
func lineEnd(text []byte, from int) int {
	if i := bytes.IndexByte(text[from:], '\n'); i >= 0 {
		return from + i
	}
	return len(text)
}
