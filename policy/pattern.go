package policy

import (
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/policy/internal/shell"
)

// match is how a pattern and a subject with holes compare.
type match int

const (
	never     match = iota
	sometimes       // for some texts in the holes
	always
)

// differs reports whether a pattern certainly does not match a subject because of how they begin.
// It is much faster than match and decides most rules.
func differs(pattern, subject string) bool {
	begin := pattern
	if i := strings.IndexAny(pattern, `*?\`); i >= 0 {
		// What follows may match nothing together with the character before.
		begin = strings.TrimRight(pattern[:i], " /")
	}
	if i := strings.IndexAny(subject, holes); i >= 0 {
		begin = begin[:min(len(begin), i)]
	}
	return !strings.HasPrefix(subject, begin)
}

// token is a part of a pattern.
type token struct {
	kind rune // one of the kinds below, else a character
	// skip is the number of tokens that may be left out together, beginning with this one.
	skip int
}

// Kinds of tokens, which are no characters.
const (
	char      = -1 - iota // one character
	nameChar              // one character but a slash
	chars                 // any characters
	nameChars             // any characters but a slash
	nothing               // no character
)

// pattern is a compiled pattern.
type pattern []token

// compileText compiles a pattern for commands and other texts.
func compileText(text string) pattern {
	var p pattern
	escaped := false
	for _, r := range text {
		switch {
		case r == '\\' && !escaped:
			escaped = true
			continue
		case r == '*' && !escaped:
			r = chars
		case r == '?' && !escaped:
			r = char
		}
		escaped = false
		p = append(p, token{kind: r})
	}
	if n := len(p); n > 1 && p[n-1].kind == chars && p[n-2].kind == ' ' {
		p[n-2].skip = 2
	}
	return p
}

// Escape returns a pattern that matches a text only.
func Escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(text)
}

// compilePath compiles a pattern for names of files.
func compilePath(text string) pattern {
	var p pattern
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case rest == "/**":
			return append(p, token{kind: '/', skip: 2}, token{kind: chars})
		case strings.HasPrefix(rest, "**/"):
			p = append(p, token{kind: nothing, skip: 3}, token{kind: chars}, token{kind: '/'})
			i += 3
		case strings.HasPrefix(rest, "**"):
			p = append(p, token{kind: chars})
			i += 2
		default:
			r, size := utf8.DecodeRuneInString(rest)
			i += size
			switch {
			case r == '\\' && len(rest) > 1:
				r, size = utf8.DecodeRuneInString(rest[1:])
				i += size
			case r == '*':
				r = nameChars
			case r == '?':
				r = nameChar
			}
			p = append(p, token{kind: r})
		}
	}
	return p
}

// match compares a pattern with a subject.
func (p pattern) match(subject string) match {
	runes := []rune(subject)
	switch {
	case !p.run(runes, true):
		return never
	case strings.ContainsAny(subject, holes) && !p.run(runes, false):
		return sometimes
	}
	return always
}

// run reports whether the pattern matches a subject: for some texts in its holes, or for all, which
// only chars does.
func (p pattern) run(subject []rune, some bool) bool {
	now, next := make([]bool, len(p)+1), make([]bool, len(p)+1)
	now[0] = true
	p.close(now)
	for _, c := range subject {
		clear(next)
		hole := c == shell.Hole || c == shell.Split || c == shell.Glob
		for i, on := range now {
			if !on {
				continue
			}
			if hole && some {
				next[i] = true // it may be empty
				for j := i; j < len(p); j++ {
					next[j+1] = true // or match what follows
				}
				break
			}
			if i == len(p) {
				continue
			}
			switch k := p[i].kind; {
			case k == chars:
				next[i] = true
			case hole:
			case k == nameChars:
				next[i] = next[i] || c != '/'
			case k == char || k == nameChar && c != '/' || k == c:
				next[i+1] = true
			}
		}
		now, next = next, now
		p.close(now)
	}
	return now[len(p)]
}

// close adds the positions that need no character.
func (p pattern) close(at []bool) {
	for i, t := range p {
		if !at[i] {
			continue
		}
		if t.kind == chars || t.kind == nameChars || t.kind == nothing {
			at[i+1] = true
		}
		if t.skip > 0 {
			at[i+t.skip] = true
		}
	}
}
