package grep

import (
	"slices"
	"strings"
	"testing"
)

// spansOf returns the matches, found in long pieces and in short ones.
func spansOf(t testing.TB, p *Pattern, text []byte, want [][]int) {
	t.Helper()
	for _, short := range []int{p.short, len(text) / 2, 0} {
		q := *p
		q.short = short
		got, err := q.spans(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
			t.Errorf("%q in %q, %d bytes at once: %v, want %v", p.re, text, short, got, want)
		}
	}
}

// TestSpans compares with FindAllIndex.
func TestSpans(t *testing.T) {
	long := strings.Repeat("foo bar\n", 150)
	for _, text := range []string{
		"", "foo", "foo bar\nfoo\n\nbarfoo\r\n\xff\xfffoo\u00e9\n\xe2\x84\xaa K \xe2\x84", "\n\n", "aaa",
		"foo\ufffd", long + "foo1" + long + "foo2", "foo" + long + "z" + long,
	} {
		for _, expr := range []string{
			`foo`, `^foo`, `foo$`, `^`, `$`, ``, `\b`, `\B`, `\bfoo\b`, `a*`, `a*?`, `(a|ab)(c|bcd)*`,
			`(?ms)foo.*?bar`, `(?m)^foo`, `(?m)^$`, `(?m)^`, `(?m)$`, `\A`, `\z`, `\Afoo`, `\Aa`,
			`(?m)o$\nf`, `\xff`, `\x{fffd}`, `[^a]`, `(?s).`, `.`, `(?i)k`, `\Qfoo`, `^\Qfoo`, `\b\Q\`,
			`(?m)foo\b.^bar|r`, `foo\d`, `\bfoo\d`, `foo\b\d|foo2`, `(?s)foo.*z|o`, `(?sU)\bfoo.*r`, `x|`,
			`|x`, `(?:)|foo`, `(?s)foo b.*?zz|foo b.*[0-9]`, `(foo)|^(bar)`,
		} {
			p := compile(t, expr)
			spansOf(t, p, []byte(text), p.re.FindAllIndex([]byte(text), maxSpans))
		}
	}
}

func FuzzSpans(f *testing.F) {
	f.Add(`(?ms)^foo.*?bar`, []byte("foo\nbar\r\nfoo bar"))
	f.Add(`\bfo(o|x*)|\B`, []byte("foo foxx\xff\u00e9 fo"))
	f.Add(`^|a$|\Qb`, []byte("b\na\n\xe2\x84"))
	f.Fuzz(func(t *testing.T, expr string, text []byte) {
		if len(expr) > 100 || len(text) > 500 {
			t.Skip("a long one takes too long")
		}
		p := compile(t, expr)
		if p.short < 1000 {
			t.Skip("an expression that takes too long")
		}
		spansOf(t, p, text, p.re.FindAllIndex(text, maxSpans))
	})
}
