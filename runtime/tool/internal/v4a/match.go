package v4a

import (
	"strings"
	"unicode"
)

// Level is the exactness with which the old lines of a chunk match the file.
type Level int

// Levels, from closest to loosest.
const (
	Exact Level = iota
	// TrailingSpace ignores white space at the ends of lines.
	TrailingSpace
	// Space ignores white space at both ends of lines.
	Space
	// Punctuation also treats typographic dashes, quotes and spaces as their ASCII forms.
	Punctuation
	levels
)

// String describes the level for a message.
func (l Level) String() string {
	switch l {
	case Exact:
		return "exactly"
	case TrailingSpace:
		return "ignoring trailing white space"
	case Space:
		return "ignoring leading and trailing white space"
	default:
		return "ignoring white space and typographic punctuation"
	}
}

func (l Level) fold(s string) string {
	switch l {
	case Exact:
		return s
	case TrailingSpace:
		return strings.TrimRightFunc(s, unicode.IsSpace)
	case Space:
		return strings.TrimSpace(s)
	default:
		return strings.TrimSpace(strings.Map(asciiRune, s))
	}
}

func asciiRune(r rune) rune {
	switch {
	case r >= 0x2010 && r <= 0x2015, r == 0x2212:
		return '-'
	case r >= 0x2018 && r <= 0x201B:
		return '\''
	case r >= 0x201C && r <= 0x201F:
		return '"'
	case r == 0xA0, r >= 0x2002 && r <= 0x200A, r == 0x202F, r == 0x205F, r == 0x3000:
		return ' '
	}
	return r
}

// index holds the lines of a text, folded for each level when it is first needed.
type index struct {
	folded [levels][]string
}

func newIndex(lines []string) *index {
	ix := &index{}
	ix.folded[Exact] = lines
	return ix
}

func (ix *index) at(l Level) []string {
	if ix.folded[l] == nil {
		ix.folded[l] = l.foldAll(ix.folded[Exact])
	}
	return ix.folded[l]
}

func (l Level) foldAll(lines []string) []string {
	folded := make([]string, len(lines))
	for i, line := range lines {
		folded[i] = l.fold(line)
	}
	return folded
}

// search returns up to most indexes in lines, from the index from on, where pattern matches. It
// takes time linear in the number of lines (Knuth, Morris and Pratt). The pattern is not empty.
func search(lines, pattern []string, from, most int) []int {
	// next[i] is the length of the longest proper prefix of the pattern that ends at its line i.
	next := make([]int, len(pattern))
	for i, k := 1, 0; i < len(pattern); i++ {
		for k > 0 && pattern[i] != pattern[k] {
			k = next[k-1]
		}
		if pattern[i] == pattern[k] {
			k++
		}
		next[i] = k
	}
	var found []int
	for i, k := from, 0; i < len(lines) && len(found) < most; i++ {
		for k > 0 && lines[i] != pattern[k] {
			k = next[k-1]
		}
		if lines[i] == pattern[k] {
			k++
		}
		if k == len(pattern) {
			found = append(found, i-k+1)
			k = next[k-1]
		}
	}
	return found
}

// Find returns the numbers of the lines of text, at most ten and from one on, where the lines of
// pattern match at the closest level that matches at all.
func Find(text, pattern string) (lines []int, level Level) {
	ix := newIndex(texts(split(text)))
	old := texts(split(pattern))
	if len(old) == 0 {
		return nil, Exact
	}
	for level = Exact; level < levels; level++ {
		if found := search(ix.at(level), level.foldAll(old), 0, 10); len(found) > 0 {
			for i := range found {
				found[i]++
			}
			return found, level
		}
	}
	return nil, Exact
}
