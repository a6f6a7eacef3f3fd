package grep

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf16"
)

// searched returns the delivered lines, as NUMBER:TEXT for matches and NUMBER-TEXT for context.
func searched(t testing.TB, s *Searcher, r io.Reader) (found []string) {
	t.Helper()
	if err := s.Search(context.Background(), r, collect(&found)); err != nil {
		t.Error(err)
	}
	return found
}

func collect(found *[]string) func(Line) error {
	return func(l Line) error {
		sign, end := "-", ""
		if l.Match {
			sign = ":"
		}
		if l.Cut {
			end = "…"
		}
		*found = append(*found, fmt.Sprintf("%d%s%s%s", l.Number, sign, l.Text, end))
		return nil
	}
}

// expected returns the lines that it should deliver.
func expected(p *Pattern, opts Options, text string) (found []string) {
	if text == "" {
		return nil
	}
	lines := strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
	last := len(lines) - 1
	for i := range last {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	if lines[last] == "" {
		lines = lines[:last]
	}
	match := make([]bool, len(lines))
	for i, l := range lines {
		match[i] = p.re.MatchString(l)
	}
	for i, l := range lines {
		near := slices.Contains(match[max(0, i-opts.After):i+1], true) ||
			slices.Contains(match[i:min(len(lines), i+opts.Before+1)], true)
		if !near {
			continue
		}
		sign := "-"
		if match[i] {
			sign = ":"
		}
		if shown := cut([]byte(l), opts.MaxLine); len(shown) < len(l) {
			l = string(shown) + "…"
		}
		found = append(found, fmt.Sprintf("%d%s%s", i+1, sign, l))
	}
	return found
}

// TestSearch compares with a simple search, for files larger than the buffer.
func TestSearch(t *testing.T) {
	words := []string{"foo", "bar", "", "x", "\r", "foo\r", "session", "Foo", "été"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		var text strings.Builder
		for range rnd.IntN(30) {
			for range rnd.IntN(5) {
				text.WriteString(words[rnd.IntN(len(words))])
			}
			if rnd.IntN(10) > 0 {
				text.WriteString([]string{"\n", "\r\n"}[rnd.IntN(2)])
			}
		}
		p := compile(t, []string{"foo", "(?i)foo", "x|bar", "^$", "o$", "s.+n", "foo.*foo"}[rnd.IntN(7)])
		opts := Options{Before: rnd.IntN(4), After: rnd.IntN(4), MaxLine: 20}
		s := NewSearcher(p, opts)
		s.size = 256
		var r io.Reader = strings.NewReader(text.String())
		if rnd.IntN(2) == 0 {
			r = iotest.OneByteReader(r)
		}
		if got, want := searched(t, s, r), expected(p, opts, text.String()); !slices.Equal(got, want) {
			t.Fatalf("%d: %s, %+v in %q: got\n%q, want\n%q", i, p.re, opts, text.String(), got, want)
		}
	}
}

// TestSearchLines compares with Search.
func TestSearchLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 800 {
		var text strings.Builder
		var some []int
		for line := range rnd.IntN(200) {
			match := rnd.IntN(10) == 0
			if match {
				text.WriteString("foo")
			}
			if match || rnd.IntN(5) == 0 {
				some = append(some, line+1)
			}
			text.WriteString(strings.Repeat("é", rnd.IntN(10)) + []string{"\n", "\r\n"}[rnd.IntN(2)])
		}
		opts := Options{Before: rnd.IntN(4), After: rnd.IntN(4), MaxLine: 10}
		p := compile(t, "foo")
		s := NewSearcher(p, opts)
		s.size = 128
		var got []string
		if err := s.SearchLines(t.Context(), strings.NewReader(text.String()), some,
			collect(&got)); err != nil {
			t.Fatal(err)
		}
		if want := expected(p, opts, text.String()); !slices.Equal(got, want) {
			t.Fatalf("%d: %+v, %v in %q: got\n%q, want\n%q", i, opts, some, text.String(), got, want)
		}
	}
}

// TestLongLines has lines longer than the buffer.
func TestLongLines(t *testing.T) {
	for size := range 300 {
		for _, end := range []string{"", "\n", "\r\n", "\rx\n", "\r"} {
			text := "a\n" + strings.Repeat("é", size) + "z" + end
			for _, expr := range []string{"z$", "^é+z", "a|z", "\r$"} {
				p := compile(t, expr)
				opts := Options{MaxLine: 8, After: 1}
				s := NewSearcher(p, opts)
				s.size = 4 // 32 at last
				got := searched(t, s, iotest.HalfReader(strings.NewReader(text+"b")))
				if want := expected(p, opts, text+"b"); !slices.Equal(got, want) {
					t.Fatalf("%s, %d, %q: got %q, want %q", expr, size, end, got, want)
				}
			}
		}
	}
}

// TestMultiline has matches of several lines.
func TestMultiline(t *testing.T) {
	text := "one\r\ntwo\nthree\n\nfive two\nsix"
	for _, tt := range []struct {
		expr string
		opts Options
		want string
	}{
		{`(?ms)one.*three`, Options{}, "1:one 2:two 3:three"},
		{`(?m)two\n`, Options{}, "2:two 5:five two"},
		{`(?m)^two$`, Options{}, "2:two"},
		{`(?m)two\nthree|three\n\nfive`, Options{}, "2:two 3:three"},
		{`(?m)two$`, Options{Before: 1, After: 1}, "1-one 2:two 3-three 4- 5:five two 6-six"},
		{`(?m)^$`, Options{}, "4:"},
		{`(?ms)six.*`, Options{Before: 1}, "5-five two 6:six"},
		{`(?m)nothing`, Options{}, ""},
		{`(?s)\A.*\z`, Options{}, "1:one 2:two 3:three 4: 5:five two 6:six"},
	} {
		tt.opts.MaxLine, tt.opts.Multiline = 100, true
		s := NewSearcher(compile(t, tt.expr), tt.opts)
		s.size = 8
		if got := strings.Join(searched(t, s, strings.NewReader(text)), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.expr, got, tt.want)
		}
	}
	s := NewSearcher(compile(t, "x"), Options{Multiline: true})
	long := strings.NewReader(strings.Repeat("x", MaxMultiline+1))
	if err := s.Search(t.Context(), long, func(Line) error { return nil }); !errors.Is(err,
		ErrTooLong) {
		t.Errorf("a long file: %v", err)
	}
}

// TestEncodings has files that are not UTF-8.
func TestEncodings(t *testing.T) {
	utf16 := func(order binary.ByteOrder, text string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(text)) {
			b = append(b, 0, 0)
			order.PutUint16(b[len(b)-2:], u)
		}
		return string(b)
	}
	text := "one\r\nzwölf 😀\nthree"
	for name, content := range map[string]string{
		"UTF-8":                    text,
		"UTF-8 with a mark":        "\ufeff" + text,
		"UTF-16, little end first": utf16(binary.LittleEndian, "\ufeff"+text),
		"UTF-16, large end first":  utf16(binary.BigEndian, "\ufeff"+text),
		"UTF-16 that is cut": utf16(binary.LittleEndian,
			"\ufeff"+text+"\nzwölf")[:2*(1+len("one\r\nzwölf xx\nthree\nzwölf")-2)-1],
	} {
		p := compile(t, "^zwölf .+$|^o|ee$")
		want := []string{"1:one", "2:zwölf 😀", "3:three"}
		if got := searched(t, NewSearcher(p, Options{MaxLine: 100}),
			strings.NewReader(content)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestSearchEnds checks the errors that end a search.
func TestSearchEnds(t *testing.T) {
	p := compile(t, "foo")
	no := errors.New("no")
	s := NewSearcher(p, Options{MaxLine: 100})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(no)
	for name, tt := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		want error
	}{
		"binary": {t.Context(), strings.NewReader("foo\x00"), ErrBinary},
		"a NUL later": {t.Context(), io.MultiReader(bytes.NewReader(make([]byte, 0)),
			strings.NewReader(strings.Repeat("x", probeSize)+"\x00")), nil},
		"its reader":  {t.Context(), iotest.ErrReader(no), no},
		"its context": {ctx, strings.NewReader("foo"), no},
		"its caller":  {t.Context(), strings.NewReader("foo"), io.ErrClosedPipe},
	} {
		err := s.Search(tt.ctx, tt.r, func(Line) error { return io.ErrClosedPipe })
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// TestCancel ends searches that would take minutes.
func TestCancel(t *testing.T) {
	slow := `(?:a{1,30}b?){30}[c-z]`
	line := endlessReader(strings.Repeat("a", 47) + "\n")
	for name, tt := range map[string]struct {
		expr string
		text io.Reader
		opts Options
	}{
		"a long line":        {slow, strings.NewReader(strings.Repeat("a", 1<<20)), Options{}},
		"a line without end": {slow, endlessReader("a"), Options{}},
		"many lines":         {slow, io.LimitReader(line, 100<<20), Options{}},
		"matches of lines": {
			`(?s)` + slow, strings.NewReader(strings.Repeat("a", 1<<20)),
			Options{Multiline: true},
		},
		"a match for each": {
			`(?ms)a.*z|a`, strings.NewReader(strings.Repeat("a\n", MaxMultiline/2)),
			Options{Multiline: true},
		},
		"a match that begins": {`a(?:a{1,30}b?){30}[c-z]|x`, strings.NewReader(strings.Repeat("x", 10) +
			strings.Repeat("a", 1<<20)), Options{Multiline: true}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("why")
			s := NewSearcher(compile(t, tt.expr), tt.opts)
			begins := sync.OnceFunc(func() { time.AfterFunc(20*time.Millisecond, func() { cancel(why) }) })
			if err := s.Search(ctx, readHook{tt.text, begins},
				func(Line) error { return nil }); !errors.Is(err, why) {
				t.Error(err)
			}
			stacks := make([]byte, 1<<20)
			if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("\nregexp.")) {
				t.Errorf("an expression is still matched: %s", stacks)
			}
		})
	}
}

// TestCancelInLine cancels the search of a line that would take long.
func TestCancelInLine(t *testing.T) {
	line := []byte(strings.Repeat("x", 2000) + "1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		expr  string
		ctx   context.Context
		match bool
	}{
		{`[a-z]{900}[0-9]`, t.Context(), true},
		{`[a-z]{900}[0-9]`, ended, false},
		{`[a-z]{9}[0-9]`, t.Context(), true},
		{`[a-z]{9}[0-9]`, ended, true}, // in no time
	} {
		if got := compile(t, tt.expr).Scan(tt.ctx, line).match(line); got != tt.match {
			t.Errorf("%s, %v: %v, want %v", tt.expr, tt.ctx.Err(), got, tt.match)
		}
	}
}

// endlessReader repeats its text.
type endlessReader string

func (r endlessReader) Read(p []byte) (n int, err error) {
	text := string(r)
	for n+len(text) <= len(p) {
		n += copy(p[n:], text)
	}
	return n, nil
}

// readHook calls a function with each Read.
type readHook struct {
	io.Reader
	hook func()
}

func (r readHook) Read(p []byte) (int, error) {
	r.hook()
	return r.Reader.Read(p)
}
