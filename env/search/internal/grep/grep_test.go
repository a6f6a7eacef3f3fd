package grep

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

func compile(t testing.TB, expr string) *Pattern {
	t.Helper()
	re, err := regexp.Compile(expr)
	if err != nil {
		t.Skip(err)
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	return New(re, parsed)
}

// lines returns the lines that the scanner finds.
func (p *Pattern) lines(text []byte) (found []string) {
	s := p.Scan(context.Background(), text)
	for from := 0; ; {
		start, end, ok := s.Next(from)
		if !ok {
			return found
		}
		found = append(found, fmt.Sprintf("%d:%q", start, text[start:end]))
		from = lineEnd(text, end) + 1
	}
}

// tried returns the lines on which the expression matches.
func (p *Pattern) tried(text []byte) (found []string) {
	for start := 0; start < len(text); {
		end := lineEnd(text, start)
		line := text[start:end]
		if end < len(text) {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		if p.re.Match(line) {
			found = append(found, fmt.Sprintf("%d:%q", start, line))
		}
		start = end + 1
	}
	return found
}

// TestRequired checks the literals of expressions.
func TestRequired(t *testing.T) {
	for expr, want := range map[string]string{
		`foo`:                        "=foo",
		`foo|bar`:                    "=foo =bar",
		`foo\w+barbar`:               "barbar",
		`(?i)foo`:                    "=foo/i",
		`(?i:foo)bar`:                "foobar/i",
		`colou?r`:                    "=colour =color",
		`[ab]c`:                      "=ac =bc",
		`[a-z]c`:                     "c",
		`func \w+Error\(`:            "Error(",
		`[A-Z][a-z]+Foo\d+`:          "Foo",
		`\w+`:                        "",
		`a*`:                         "",
		`^$`:                         "",
		`^foo$`:                      "foo",
		`\bfoo\b`:                    "foo",
		`(foo)+`:                     "foo",
		`(foo){2,3}`:                 "foo",
		`(foo){0,3}`:                 "",
		`foo|\w+`:                    "",
		`foo|bar.*baz`:               "foo baz",
		`(a|b|c|d)(e|f|g|h)(i|j|k)x`: "ix jx kx",
		`x(?:|y)z`:                   "=xz =xyz",
		`Foo(?i:bar)`:                "foobar/i",
		`größe`:                      "=größe",
		`(?i)größe`:                  "gr/i",
		"a\ufffdlong":                "long",
		`[^x]`:                       "",
		`.*`:                         "",
		`foo[\n ]`:                   "foo\n foo ",
		`b|\n`:                       "\n b",
		`[\x{D800}b]`:                "",
		`foo\x{D800}longer`:          "longer",
	} {
		parsed, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		some, enough := required(parsed)
		var got []string
		for _, l := range some {
			text := l.text
			if l.fold {
				text += "/i"
			}
			if enough {
				text = "=" + text
			}
			got = append(got, text)
		}
		if !strings.HasPrefix(strings.Join(got, " "), want) || want == "" && len(got) > 0 {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// TestNested has nested alternatives, each of which is analyzed once.
func TestNested(t *testing.T) {
	expr := "a"
	for range maxLiterals - 1 {
		expr = "(" + expr + "|)"
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	if all := analyze(parsed).exact; len(all) != maxLiterals {
		t.Errorf("%v", all)
	}
	if n := testing.AllocsPerRun(10, func() { analyze(parsed) }); n > 20*maxLiterals {
		t.Errorf("%v allocations", n)
	}
}

// TestLines compares the scanner with the expression on each line.
func TestLines(t *testing.T) {
	text := []byte("foo\nbar foo\r\n\n\r\nFOO Bar\nK\u212a \u017fession\nSESSION \u00c9t\u00e9 " +
		"caf\xc3\xa9\n\xff\xfe foo\xff\n\ufffd color\ufffd\ncolor colour\r\r\nfunc " +
		"newError(x)\n1234\nlast session")
	for _, expr := range []string{
		`foo`, `(?i)foo`, `foo|bar`, `(?i)session`, `(?i)k`, `(?i)kk`, `^foo`, `foo$`, `\bfoo\b`, `^$`,
		``, `colou?r`, "r\r", `.`, `^.$`, `\d+`, `(?i)été`, `(?i)x|last`, `(?i)s`,
		`[\nB]`, `K|\n`, `foo[\n ]`, `foo(,|\n)`, `foo\n`, `[\x{D800}B]`, `\x{D800}`, `[\x{DFFF}]`,
		`color\x{D800}|1`, `(?i)\x{D800}k`,
		`new\w+\(`, `[fb][ao][or]`, "\ufffd", "foo\ufffd", `^\x{fffd}`, `n$`, `(?s).`, `\r`, `(foo)+$`,
		`last session\z`, `\Afoo`, `nothing`,
	} {
		p := compile(t, expr)
		if got, want := p.lines(text), p.tried(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add(`(?i)foo|ba[rz]`, []byte("Foo\nbar\r\nbaz"))
	f.Add(`(?i)\x{17f}?s+k`, []byte("\u212a\nSK\n\u017fk"))
	f.Add(`a[\n ]|\x{D800}`, []byte("a\n\ufffd\nb"))
	f.Add(`a(b|c)?d{2}`, []byte("add\nabdd\r\nacd"))
	f.Fuzz(func(t *testing.T, expr string, text []byte) {
		if len(expr) > 100 || strings.ContainsAny(expr, "\n") {
			t.Skip("not an expression for lines, or a long one")
		}
		p := compile(t, expr)
		if got, want := p.lines(text), p.tried(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", expr, got, want)
		}
	})
}
