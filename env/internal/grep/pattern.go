// Package grep finds the lines of a text that match a regular expression. It looks for what each match must have, at the speed of
// memory, and tries the expression where that is.
package grep

import (
	"bytes"
	"regexp"
	"regexp/syntax"
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

// Scan returns a scanner of a text that begins with a line.
func (p *Pattern) Scan(text []byte) *Scanner {
	s := &Scanner{p: p, text: text, enough: p.enough}
	for i := range p.finders {
		c := p.finders[i].cursor(text)
		s.cursors = append(s.cursors, c)
		s.enough = s.enough && c.enough
	}
	return s
}

// Scanner finds the lines of one text that match.
type Scanner struct {
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
		if len(s.cursors) > 0 && s.enough || s.p.re.Match(line) {
			return start, start + len(line), true
		}
		from = end + 1
	}
	return 0, 0, false
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
