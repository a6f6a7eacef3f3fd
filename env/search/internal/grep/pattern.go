// Package grep finds the lines of a text that match a regular expression. It looks for what each
// match must have, at the speed of memory, and tries the expression where that is.
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
	// enough says that a line with what is looked for matches.
	enough bool
	// rare says that what is looked for is not in nearly every line.
	rare bool
	// short is how many bytes the expression is tried on without a look at the context.
	short int
	// behind returns expressions for the matches behind the start of a text.
	behind func() (behind, error)
}

// shortWork bounds short: it is how many instructions of the expression may be taken for each of
// those bytes, all in all. One takes some 30 ns at worst.
const shortWork = 1 << 20

// New returns a pattern for an expression of package regexp, of which parsed is the syntax.
func New(re *regexp.Regexp, parsed *syntax.Regexp) *Pattern {
	p := &Pattern{re: re, parsed: parsed, short: shortWork}
	if prog, err := syntax.Compile(parsed.Simplify()); err == nil {
		p.short /= len(prog.Inst)
	}
	p.behind = sync.OnceValues(func() (behind, error) { return newBehind(re, parsed) })
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

// Literal reports whether something can be looked for that spares trying the expression on most
// lines.
func (p *Pattern) Literal() bool { return p.enough || p.rare }

// Match reports whether a line without its ending matches.
func (p *Pattern) Match(line []byte) bool { return p.re.Match(line) }

// Scan returns a scanner of a text that begins with a line. It finds nothing more once ctx has
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

// Scanner finds the lines of one text that match.
type Scanner struct {
	ctx     context.Context
	p       *Pattern
	text    []byte
	cursors []cursor
	enough  bool
}

// Next returns where the first line that matches is, without its ending, of those that begin at
// from, where a line begins, or later.
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

// match tries the expression on a line. Once the context has ended, a line may be taken for one
// that does not match.
func (s *Scanner) match(line []byte) bool {
	if len(line) <= s.p.short {
		return s.p.re.Match(line)
	}
	// Where the reader ends is not where the line ends, though the expression cannot tell.
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
	// every is after how many bytes it looks at the context, read how many it has read, and looked how
	// many they were at the last look.
	every, read, looked int
}

// ReadRune implements io.RuneReader.
func (r *runeReader) ReadRune() (rune, int, error) {
	if r.read-r.looked > r.every {
		r.looked = r.read
		if r.ctx.Err() != nil {
			return 0, 0, r.ctx.Err()
		}
	}
	char, size, err := r.RuneReader.ReadRune()
	r.read += size
	return char, size, err
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
