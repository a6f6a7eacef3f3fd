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

// maxSpans bounds the matches of several lines in one file.
const maxSpans = 100_000

// all searches a file that is in memory as a whole.
func (f *file) all() error {
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
			continue // its lines are delivered
		}
		first := f.shown + bytes.LastIndexByte(text[f.shown:max(span[0], f.shown)], '\n') + 1
		if first == len(text) { // behind the last line
			break
		}
		// A match ends in the line of its last character.
		last := lineEnd(text, max(span[0], span[1]-1))
		if err := f.around(first); err != nil {
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

// spans returns where the matches are: those of FindAllIndex.
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
		// An empty match is none where the one before it ends.
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

// span returns where the next match is, from a position on; nil if there is none. It does not
// matter what it returns after the context has ended.
func (s *Scanner) span(at int) ([]int, error) {
	if len(s.cursors) > 0 && s.find(at) < 0 {
		return nil, nil
	}
	at = s.begins(at)
	switch {
	case at < 0:
		return nil, nil
	case at == 0:
		return s.try(s.p.re, 0, 0), nil
	}
	behind, err := s.p.behind()
	if err != nil {
		return nil, fmt.Errorf("the expression is too large for matches of several lines: %w", err)
	}
	if len(s.text)-at > s.p.short {
		var span []int
		if span, at = s.hop(behind.here, at); span != nil || at < 0 {
			return span, nil
		}
	}
	if behind.later == nil {
		return s.try(s.p.re, 0, at), nil
	}
	return s.try(behind.later, 1, at), nil
}

// begins returns where the next match may begin at the earliest, from a position on; -1 if there is
// none.
func (s *Scanner) begins(at int) int {
	prefix, _ := s.p.re.LiteralPrefix()
	i := bytes.Index(s.text[at:], []byte(prefix))
	if i < 0 {
		return -1
	}
	return at + i
}

// hop tries where matches may begin if there are few such places. It returns where that was not
// tried, if there is no match before; -1 if there is none at all. What it reads in vain is little
// more than what it need not read.
func (s *Scanner) hop(here *regexp.Regexp, at int) (span []int, next int) {
	prefix, _ := s.p.re.LiteralPrefix()
	if prefix == "" {
		return nil, at
	}
	read := 0
	for first := at; at >= 0 && read <= at-first+4<<10 && s.ctx.Err() == nil; at = s.begins(at + 1) {
		start := s.before(at)
		r := s.p.reader(s.ctx, bytes.NewReader(s.text[start:]))
		if found := here.FindReaderSubmatchIndex(r); found != nil {
			return []int{start + found[2], start + found[3]}, at
		}
		read += r.read
	}
	return nil, at
}

// before returns where the character begins that ends at a position.
func (s *Scanner) before(at int) int {
	_, size := utf8.DecodeLastRune(s.text[:at])
	return at - size
}

// try returns where the group of an expression matches first, from a position on. The whole
// expression is group 0; others look at the character before the position.
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

// behind are expressions of which the first group is a match of another one in a text without its
// first character. Unlike that one they see the character, as ^ and \b need.
type behind struct {
	// here matches where the second character is, and later there or later. It is nil if the other
	// expression itself does so.
	here, later *regexp.Regexp
}

func newBehind(re *regexp.Regexp, parsed *syntax.Regexp) (b behind, err error) {
	compile := func(expr string) (*regexp.Regexp, error) {
		expr += "(" + re.String()
		r, err := regexp.Compile(expr + ")")
		if err != nil { // A \Q without an end quotes the parenthesis.
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

// trimmed returns where the line ends, without its ending, that begins at a position.
func trimmed(text []byte, start int) int {
	end := lineEnd(text, start)
	if end < len(text) && bytes.HasSuffix(text[start:end], []byte("\r")) {
		end--
	}
	return end
}
