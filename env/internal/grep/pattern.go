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
	finders []finder
	// enough says that a line with what is looked for matches.
	enough bool
}

// New returns a pattern for an expression of package regexp, of which parsed is the syntax.
func New(re *regexp.Regexp, parsed *syntax.Regexp) *Pattern {
	p := &Pattern{re: re}
	some, enough := required(parsed)
	for _, l := range some {
		p.finders = append(p.finders, newFinder(l))
		// A carriage return may belong to a line ending, where it does not match.
		enough = enough && !bytes.ContainsRune([]byte(l.text), '\r')
	}
	p.enough = enough && len(some) > 0
	return p
}

// Literal reports whether something can be looked for without trying the expression on each line.
func (p *Pattern) Literal() bool { return len(p.finders) > 0 }

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
		start = from
		if len(s.cursors) > 0 {
			at := s.find(from)
			if at < 0 {
				return 0, 0, false
			}
			start += bytes.LastIndexByte(s.text[from:at], '\n') + 1
			end = lineEnd(s.text, at)
		} else {
			end = lineEnd(s.text, from)
		}
		line := s.text[start:end]
		if end < len(s.text) {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		if len(s.cursors) > 0 && s.enough || s.match(line) {
			return start, start + len(line), true
		}
		if s.ctx.Err() != nil {
			break
		}
		from = end + 1
	}
	return 0, 0, false
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
