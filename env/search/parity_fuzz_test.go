//go:build unix

package search_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// FuzzParity compares Grep with ripgrep on one file of any text and a pattern of any form. The text
// that ripgrep gets is as in TestGrepParity.
func FuzzParity(f *testing.F) {
	rg := needRipgrep(f)
	f.Add([]byte("\x00\x01\x02\x03"), "func main() {\n\treturn nil\r\n}\n")
	f.Add([]byte("\x10\x28\x35\x04\x77\x01\x90\xa0\x0f"), "Kelvin K ſs\nGröße\xff\n\n")
	f.Add([]byte("\x80\x05\x40\x61\x13\x22\x31\x08\xc0\xff\x1e"), "aab\nbc\n")
	e := newEnv(f, local.Config{})
	ours := parity{rg: rg, root: e.Info().WorkDir, lines: f.TempDir()}
	f.Fuzz(func(t *testing.T, form []byte, text string) {
		p := ours
		opts := (&patternMaker{form: form}).options()
		// A file with another byte order mark has other bytes, and one with a NUL is binary.
		if strings.ContainsRune(text, 0) || strings.HasPrefix(text, "\xff\xfe") ||
			strings.HasPrefix(text, "\xfe\xff") {
			t.Skip("not a text")
		}
		if _, err := regexp.Compile(opts.Pattern); err != nil && !opts.Literal {
			t.Skip("it repeats too much")
		}
		if !opts.Literal && endThenStart.MatchString(opts.Pattern) {
			t.Skip("in ripgrep $^ never matches, not even an empty line")
		}
		twin := unifyBytes(text)
		if !opts.Multiline {
			twin = unifyBytes(unifyLines(text))
		}
		p.whole = p.lines
		writeFile(t, p.root, "f", text)
		writeFile(t, p.lines, "f", twin)
		got, want := p.ours(t, e, opts), p.theirs(t, opts)
		if !slices.Equal(want, got) {
			t.Errorf("%+v, rg %q, %q\nonly rg: %q\nonly ours: %q", opts, rgArgs(opts), text,
				difference(want, got), difference(got, want))
		}
	})
}

// endThenStart matches a pattern with an anchor of the end before one of the start, unless they are
// alternatives.
var endThenStart = regexp.MustCompile(`(?:\$|\\z)[^|]*(?:\^|\\A)`)

// patternMaker derives a pattern that both engines support from bytes.
type patternMaker struct {
	form []byte
	b    bytes.Buffer
}

func (m *patternMaker) next() int {
	if len(m.form) == 0 {
		return 0
	}
	b := m.form[0]
	m.form = m.form[1:]
	return int(b)
}

func (m *patternMaker) options() search.GrepOptions {
	flags := m.next()
	opts := search.GrepOptions{
		IgnoreCase: flags&1 != 0, Multiline: flags&6 == 6,
		Literal: flags&0x78 == 0x78,
	}
	if flags&0x80 != 0 {
		opts.Before, opts.After = m.next()%3, m.next()%3
	}
	if opts.Literal {
		for range 1 + m.next()%4 {
			m.b.WriteString(fuzzTexts[m.next()%len(fuzzTexts)])
		}
	} else {
		m.alternatives(3, opts.Multiline)
	}
	opts.Pattern = m.b.String()
	return opts
}

var (
	fuzzTexts = []string{
		"a", "b", "c", "A", "k", "s", "K", "\u212a", "\u017f", "ß", "é", "É", "ω", "日", "\ufffd",
		" ", "_", "0", "ab", "func", "return", "nil", "err", "x", "-", "1", "ing", "the", "\t", "Z",
	}
	fuzzAtoms = []string{
		`\d`, `\w`, `\s`, `\D`, `\W`, `\S`, ".", "[a-c]", "[^a-c]", "[ks]", "[ab]", "[^a]", `[\w-]`,
		`[^\s]`, `\pL`, `\p{Lu}`, "[[:alpha:]]", `\.`, `\(`, "[é-ω]", "[kK]", "[aA]", `\x61`,
		"[^\u017f]", "[s-t]",
	}
	fuzzAnchors = []string{"^", "$", `\b`, `\B`, "^", "$", `\A`, `\z`}
	fuzzCounts  = []string{"*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{0}"}
	fuzzGroups  = []string{"(", "(?:", "(?i:", "(?-i:", "(?P<n>", "(?s:", "(?U:"}
)

func (m *patternMaker) alternatives(depth int, multiline bool) {
	for i := range 1 + max(0, m.next()%8-4) {
		if i > 0 {
			m.b.WriteByte('|')
		}
		for range m.next() % 5 {
			m.part(depth, multiline)
		}
	}
}

func (m *patternMaker) part(depth int, multiline bool) {
	kind := m.next()
	switch kind % 16 {
	case 0, 1:
		m.b.WriteString(fuzzAnchors[m.next()%len(fuzzAnchors)])
		return
	case 2, 3, 4, 5:
		m.b.WriteString(fuzzAtoms[m.next()%len(fuzzAtoms)])
	case 6, 7:
		if depth == 0 {
			return
		}
		group := fuzzGroups[m.next()%len(fuzzGroups)]
		if group == "(?P<n>" && bytes.Contains(m.b.Bytes(), []byte(group)) {
			group = "("
		}
		m.b.WriteString(group)
		m.alternatives(depth-1, multiline)
		m.b.WriteByte(')')
	case 8:
		if multiline {
			m.b.WriteString(`\n`)
			break
		}
		fallthrough
	default:
		m.b.WriteString(fuzzTexts[m.next()%len(fuzzTexts)])
	}
	if kind >= 0xc0 {
		m.b.WriteString(fuzzCounts[m.next()%len(fuzzCounts)])
	}
}
