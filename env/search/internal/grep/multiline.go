package grep

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// maxSpans bounds the number of matches in a multiline search of one file.
const maxSpans = 100_000

// searchAll reads the whole file into memory and searches it.
func (f *file) searchAll() error {
	for !f.eof && f.err == nil && f.n <= MaxMultiline {
		if f.n == len(f.data) {
			f.grow()
		}
		if err := f.fill(len(f.data)); err != nil {
			return err
		}
	}
	switch {
	case f.err != nil:
		return f.err
	case f.n > MaxMultiline:
		return ErrTooLong
	}
	text := f.data[:f.n]
	spans, err := f.pattern.spans(f.ctx, text)
	if err != nil {
		return err
	}
	for _, span := range spans {
		if max(span[0], span[1]-1) < f.shown {
			continue // Its lines are delivered.
		}
		first := f.shown + bytes.LastIndexByte(text[f.shown:max(span[0], f.shown)], '\n') + 1
		if first == len(text) { // after the last line
			break
		}
		// A match ends in the line of its last character.
		last := lineEnd(text, max(span[0], span[1]-1))
		if err := f.showAround(first); err != nil {
			return err
		}
		for at := first; at <= last && at < len(text); at = f.shown {
			if err := f.deliver(at, trimmed(text, at), true); err != nil {
				return err
			}
		}
		f.after = f.opts.After
	}
	if len(spans) == maxSpans {
		return ErrTooMany
	}
	return f.showAfter(len(text))
}

// spans returns the matches that regexp's FindAllIndex would.
func (p *Pattern) spans(ctx context.Context, text []byte) (all [][]int, err error) {
	scan := p.Scan(ctx, text)
	for at, last := 0, -1; at <= len(text) && len(all) < maxSpans; {
		span, err := scan.span(at)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case span == nil || err != nil:
			return all, err
		}
		// An empty match right after a match does not count.
		if span[1] > at || span[0] != last {
			all = append(all, span)
		}
		if span[1] == at {
			_, size := utf8.DecodeRune(text[at:])
			at += max(1, size)
		} else {
			at = span[1]
		}
		last = span[1]
	}
	return all, nil
}

// span returns the next match from a position on, or nil. After the context has ended the result
// has no meaning.
func (s *Scanner) span(at int) ([]int, error) {
	if len(s.cursors) > 0 && s.find(at) < 0 {
		return nil, nil
	}
	at = s.prefixAt(at)
	switch {
	case at < 0:
		return nil, nil
	case at == 0:
		return s.try(s.p.re, 0, 0), nil
	}
	behind, err := s.p.behind()
	if err != nil {
		return nil, fmt.Errorf("the expression is too large for a multiline search: %w", err)
	}
	if len(s.text)-at > s.p.short {
		var span []int
		if span, at = s.tryPrefixes(behind.here, at); span != nil || at < 0 {
			return span, nil
		}
	}
	if behind.later == nil {
		return s.try(s.p.re, 0, at), nil
	}
	return s.try(behind.later, 1, at), nil
}

// prefixAt returns the next position of the literal prefix of the expression, or -1.
func (s *Scanner) prefixAt(at int) int {
	prefix, _ := s.p.re.LiteralPrefix()
	i := bytes.Index(s.text[at:], []byte(prefix))
	if i < 0 {
		return -1
	}
	return at + i
}

// tryPrefixes tries the expression at the positions of its literal prefix, and gives up when that
// reads more than the distance covered. It returns a match, or the first position not tried; -1 if
// none is left.
func (s *Scanner) tryPrefixes(here *regexp.Regexp, at int) (span []int, next int) {
	prefix, _ := s.p.re.LiteralPrefix()
	if prefix == "" {
		return nil, at
	}
	read := 0
	for first := at; at >= 0 && read <= at-first+4<<10 && s.ctx.Err() == nil; at = s.prefixAt(at + 1) {
		start := s.before(at)
		r := s.p.reader(s.ctx, bytes.NewReader(s.text[start:]))
		if found := here.FindReaderSubmatchIndex(r); found != nil {
			return []int{start + found[2], start + found[3]}, at
		}
		read += r.read
	}
	return nil, at
}

// before returns the start of the character that ends at a position.
func (s *Scanner) before(at int) int {
	_, size := utf8.DecodeLastRune(s.text[:at])
	return at - size
}

// try returns the first match of a group of the expression from a position on. Group 0 is the whole
// expression; for another group the expression starts at the character before.
func (s *Scanner) try(re *regexp.Regexp, group, at int) []int {
	if group > 0 {
		at = s.before(at)
	}
	var found []int
	if text := s.text[at:]; len(text) <= s.p.short {
		found = re.FindSubmatchIndex(text)
	} else {
		found = re.FindReaderSubmatchIndex(s.p.reader(s.ctx, bytes.NewReader(text)))
	}
	if found == nil {
		return nil
	}
	return []int{at + found[2*group], at + found[2*group+1]}
}

// behind are expressions for matches after the first character of a text, in their first group.
// They read that character too, as ^ and \b need.
type behind struct {
	// here matches at the second character, later there or later. Later is nil if the original
	// expression gives the same result.
	here, later *regexp.Regexp
}

func newBehind(re *regexp.Regexp, parsed *syntax.Regexp) (b behind, err error) {
	compile := func(expr string) (*regexp.Regexp, error) {
		expr += "(" + re.String()
		r, err := regexp.Compile(expr + ")")
		if err != nil { // An open \Q quotes the parenthesis.
			r, err = regexp.Compile(expr + `\E)`)
		}
		return r, err
	}
	if b.here, err = compile(`\A(?s:.)`); err != nil || !looksBack(parsed) {
		return b, err
	}
	b.later, err = compile(`\A(?s:.)(?s:.*?)`)
	return b, err
}

func looksBack(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, looksBack)
}

// trimmed returns the end, without the ending, of the line that starts at start.
func trimmed(text []byte, start int) int {
	end := lineEnd(text, start)
	if end < len(text) && bytes.HasSuffix(text[start:end], []byte("\r")) {
		end--
	}
	return end
}
