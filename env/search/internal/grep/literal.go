package grep

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

const (
	// maxLiterals bounds the number of alternative literals.
	maxLiterals = 16
	// maxClass bounds the number of characters of a class that become alternatives.
	maxClass = 4
)

// literal is a text in a match. If fold is set, it is in lower case and its ASCII letters match in
// either case; if loose is set too, the expression matches some of them in one case only.
type literal struct {
	text        string
	fold, loose bool
}

// language describes the texts that an expression matches.
type language struct {
	// exact are all of them; nil if they are too many or not known.
	exact []literal
	// some are literals of which each match contains one; nil if not known.
	some []literal
}

// required returns literals of which each match of an expression contains one, nil if not known,
// and whether each line with one of them has a match. A literal with a line feed is in no line.
func required(re *syntax.Regexp) (some []literal, enough bool) {
	l := analyze(re)
	enough = l.exact != nil && !hasAnchor(re)
	for _, one := range l.exact {
		enough = enough && !one.loose && !strings.Contains(one.text, "\n")
	}
	return l.best(), enough
}

func hasAnchor(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	for _, sub := range re.Sub {
		if hasAnchor(sub) {
			return true
		}
	}
	return false
}

// best returns the rarest known literals.
func (l language) best() []literal {
	return better(l.some, l.exact)
}

func analyze(re *syntax.Regexp) language {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText,
		syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return language{exact: []literal{{}}}
	case syntax.OpLiteral:
		return ofRunes(re.Rune, re.Flags&syntax.FoldCase != 0)
	case syntax.OpCharClass:
		return ofClass(re.Rune)
	case syntax.OpCapture:
		return analyze(re.Sub[0])
	case syntax.OpQuest:
		if l := analyze(re.Sub[0]); l.exact != nil && len(l.exact) < maxLiterals {
			return language{exact: append(l.exact, literal{})}
		}
	case syntax.OpPlus:
		return language{some: analyze(re.Sub[0]).best()}
	case syntax.OpRepeat:
		if re.Min > 0 {
			return language{some: analyze(re.Sub[0]).best()}
		}
	case syntax.OpConcat:
		return ofConcat(re.Sub)
	case syntax.OpAlternate:
		return ofAlternate(re.Sub)
	}
	return language{}
}

// ofRunes is the language of one text. It splits the text at letters beyond ASCII if their case
// does not count, at U+FFFD, which any invalid byte matches, and at surrogates, and keeps the best
// part.
func ofRunes(runes []rune, fold bool) language {
	var parts []literal
	at := 0
	for i, r := range runes {
		if r == utf8.RuneError || !utf8.ValidRune(r) || fold && r >= utf8.RuneSelf {
			parts = append(parts, ofText(runes[at:i], fold))
			at = i + 1
		}
	}
	parts = append(parts, ofText(runes[at:], fold))
	if len(parts) == 1 {
		return language{exact: parts}
	}
	var l language
	for _, p := range parts {
		l.some = better(l.some, []literal{p})
	}
	return l
}

func ofText(runes []rune, fold bool) literal {
	text := string(runes)
	if fold {
		text = lower(text)
	}
	return literal{text: text, fold: fold}
}

// ofClass is the language of a class with few characters, given as pairs of first and last ones.
func ofClass(pairs []rune) language {
	var exact []literal
	for i := 0; i+1 < len(pairs); i += 2 {
		for r := pairs[i]; r <= pairs[i+1]; r++ {
			if len(exact) == maxClass || r == utf8.RuneError || !utf8.ValidRune(r) {
				return language{}
			}
			exact = append(exact, literal{text: string(r)})
		}
	}
	return language{exact: exact}
}

// ofConcat joins consecutive exact languages while the product has few texts.
func ofConcat(subs []*syntax.Regexp) language {
	run, whole := []literal{{}}, true
	var best []literal
	for _, sub := range subs {
		l := analyze(sub)
		if l.exact != nil && len(run)*len(l.exact) <= maxLiterals {
			run = join(run, l.exact)
			continue
		}
		best = better(better(best, run), l.some)
		run, whole = []literal{{}}, false
		if l.exact != nil {
			run = l.exact
		}
	}
	if whole {
		return language{exact: run}
	}
	return language{some: better(best, run)}
}

func join(first, second []literal) (all []literal) {
	for _, a := range first {
		for _, b := range second {
			l := literal{a.text + b.text, a.fold || b.fold, a.loose || b.loose || a.fold != b.fold &&
				a.text != "" && b.text != ""}
			if l.fold {
				l.text = lower(l.text)
			}
			all = append(all, l)
		}
	}
	return all
}

// lower returns s with ASCII letters in lower case.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lowerByte(c)
	}
	return string(b)
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// ofAlternate is exact if each alternative is, and has literals if each alternative has.
func ofAlternate(subs []*syntax.Regexp) (l language) {
	exact, some := true, true
	for _, sub := range subs {
		one := analyze(sub)
		best := one.best()
		exact = exact && one.exact != nil && len(l.exact)+len(one.exact) <= maxLiterals
		some = some && best != nil && len(l.some)+len(best) <= maxLiterals
		if exact {
			l.exact = append(l.exact, one.exact...)
		}
		if some {
			l.some = append(l.some, best...)
		}
	}
	if !exact {
		l.exact = nil
	}
	if !some {
		l.some = nil
	}
	return l
}

// better returns the rarer of two sets of literals; nil if both have an empty one.
func better(a, b []literal) []literal {
	if rareness(b) > rareness(a) {
		return b
	}
	if rareness(a) > 0 {
		return a
	}
	return nil
}

// rareness estimates how rare a set of literals is: higher for long ones with rare bytes, lower for
// many.
func rareness(all []literal) int {
	least := 0
	for i, l := range all {
		if l.text == "" {
			return 0
		}
		r := 16*min(len(l.text), 8) + int(rank(l.text[rarest(l.text)]))/8
		if l.fold {
			r -= 8
		}
		if i == 0 || r < least {
			least = r
		}
	}
	if least == 0 {
		return 0
	}
	return max(1, least-2*(len(all)-1))
}

// frequent is the rareness of a literal in so many lines that it hardly excludes any: one of the
// most frequent bytes.
const frequent = 16 + 2*40/8

// common are bytes of source code, the most frequent first. Others are rarer.
const common = " e\tta\nriosnlcdupm.f,h()g=\"by/v_w0k:xE1T;S2RA*CI{}NO-DLPF3M84'" +
	"U5B6>7[]<9GjV+qz&H\\WXY!K#@|JQZ%$`?~^"

// ranks are the rareness of each byte.
var ranks = func() (of [256]uint8) {
	for i := range of {
		of[i] = 255
	}
	for i := range len(common) {
		of[common[i]] = uint8(2 * i)
	}
	return of
}()

func rank(c byte) uint8 { return min(ranks[c], ranks[lowerByte(c)]) }

// rarest returns the index of the rarest byte of a text.
func rarest(text string) (at int) {
	for i := range len(text) {
		if rank(text[i]) > rank(text[at]) {
			at = i
		}
	}
	return at
}
