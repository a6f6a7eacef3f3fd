package grep

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ripgrep returns an expression for ripgrep that matches each line, with its ending, that p
// matches, and may match others. It avoids all syntax with another meaning in ripgrep: it consists
// of classes of bytes, and matches any bytes where those do not suffice. It is empty if it would
// match every line.
func (p *Pattern) Ripgrep() string {
	if p.re.MatchString("") {
		return ""
	}
	var b strings.Builder
	if !looser(&b, p.parsed) {
		return ""
	}
	return "(?-u)" + b.String()
}

const (
	// anyByte matches a byte of a line, anyRune the bytes of a character or of invalid UTF-8.
	anyByte = `[^\n]`
	anyRune = `[^\n]{1,4}`
	// highRune matches a character beyond ASCII, or a byte of invalid UTF-8.
	highRune = `[\x80-\xff]{1,4}`
)

// looser writes the expression for re; false if it has none.
func looser(b *strings.Builder, re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		b.WriteString(`(?:)`)
	case syntax.OpBeginLine, syntax.OpBeginText:
		b.WriteString(`(?:^(?:\xef\xbb\xbf)?)`) // a byte order mark is not part of a line
	case syntax.OpEndLine, syntax.OpEndText:
		b.WriteString(`(?:\r?$)`)
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			looserRune(b, r, re.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		looserClass(b, re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteString(anyRune)
	case syntax.OpCapture:
		return looser(b, re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return looserRepeat(b, re)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !looser(b, sub) {
				return false
			}
		}
	case syntax.OpAlternate:
		b.WriteString(`(?:`)
		for i, sub := range re.Sub {
			if i > 0 {
				b.WriteByte('|')
			}
			if !looser(b, sub) {
				return false
			}
		}
		b.WriteByte(')')
	default:
		return false
	}
	return true
}

func looserRepeat(b *strings.Builder, re *syntax.Regexp) bool {
	least, most := 0, -1
	switch re.Op {
	case syntax.OpPlus:
		least = 1
	case syntax.OpQuest:
		most = 1
	case syntax.OpRepeat:
		least, most = re.Min, re.Max
	}
	if sub := re.Sub[0]; sub.Op == syntax.OpAnyChar || sub.Op == syntax.OpAnyCharNotNL {
		b.WriteString(anyByte)
		most *= utf8.UTFMax
	} else {
		b.WriteString(`(?:`)
		if !looser(b, sub) {
			return false
		}
		b.WriteByte(')')
	}
	fmt.Fprintf(b, "{%d,", least)
	if most >= 0 {
		fmt.Fprint(b, most)
	}
	b.WriteByte('}')
	return true
}

func looserRune(b *strings.Builder, r rune, fold bool) {
	b.WriteString(`(?:`)
	for other, first := r, true; first || fold && other != r; first = false {
		if !first {
			b.WriteByte('|')
		}
		if other == utf8.RuneError {
			b.WriteString(anyRune)
		} else {
			for _, c := range []byte(string(other)) {
				fmt.Fprintf(b, `\x%02x`, c)
			}
		}
		other = unicode.SimpleFold(other)
	}
	b.WriteByte(')')
}

// looserClass writes a class, given as pairs of its first and last characters.
func looserClass(b *strings.Builder, pairs []rune) {
	var ascii strings.Builder
	high := false
	for i := 0; i+1 < len(pairs); i += 2 {
		low, last := pairs[i], pairs[i+1]
		high = high || last >= utf8.RuneSelf
		if last = min(last, utf8.RuneSelf-1); low <= last {
			fmt.Fprintf(&ascii, `\x%02x-\x%02x`, low, last)
		}
	}
	switch {
	case ascii.Len() == 0:
		b.WriteString(highRune)
	case high:
		fmt.Fprintf(b, `(?:[%s&&[^\n]]|%s)`, ascii.String(), highRune)
	default:
		fmt.Fprintf(b, `[%s&&[^\n]]`, ascii.String())
	}
}
