package grep

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// TestContextInMemory has more context lines before a match than memory: the last ones are
// delivered.
func TestContextInMemory(t *testing.T) {
	const before, maxLine = 1000, 500
	p := compile(t, "foo")
	for _, size := range []int{300, 3000, 3006, 10_000} {
		for _, at := range []int{0, 1, 40, 699, 700, 1500} {
			line := strings.Repeat("0", size) + "\n"
			text := strings.Repeat(line, at) + "foo\n" + line
			s := NewSearcher(p, Options{Before: before, MaxLine: maxLine})
			var got []Line
			err := s.Search(t.Context(), strings.NewReader(text), func(l Line) error {
				if want := strings.Repeat("0", min(size, maxLine)); !l.Match && (string(l.Text) != want ||
					l.Cut != (size > maxLine)) {
					t.Fatalf("line %d of %d bytes: %q, %v", l.Number, size, l.Text, l.Cut)
				}
				got = append(got, l)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range got {
				if want := at + 1 - len(got) + 1 + i; l.Number != want || l.Match != (want == at+1) {
					t.Fatalf("line %d of %d bytes: number %d, match %v", want, size, l.Number, l.Match)
				}
			}
			if least := min(at, before, maxGrowth*bufferSize/2/(size+1)); len(got) <= least {
				t.Errorf("%d lines before line %d, of %d bytes each, want %d", len(got)-1, at+1, size, least)
			}
		}
	}
}

// TestLongContext has lines of all lengths: only lines far before a match may be missing.
func TestLongContext(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 800 {
		var text strings.Builder
		for range rnd.IntN(60) {
			if rnd.IntN(8) == 0 {
				text.WriteString("foo")
			}
			text.WriteString(strings.Repeat("é", rnd.IntN([]int{10, 50, 50, 400}[rnd.IntN(4)])) +
				[]string{"\n", "\r\n"}[rnd.IntN(2)])
		}
		p := compile(t, "foo")
		opts := Options{Before: rnd.IntN(30), After: rnd.IntN(3), MaxLine: 20}
		s := NewSearcher(p, opts)
		s.size = 64
		got, all := searched(t, s, iotest.HalfReader(strings.NewReader(text.String()))), expected(p, opts,
			text.String())
		must := opts
		must.Before = 0
		want := expected(p, must, text.String())
		lines := strings.SplitAfter(text.String(), "\n")
		for n, line := range lines {
			if !strings.Contains(line, "foo") {
				continue
			}
			for k, size := n-1, 0; k >= max(0, n-opts.Before) &&
				size+len(lines[k]) <= maxGrowth*s.size/2; k-- {
				size += len(lines[k])
				for _, one := range all {
					if strings.HasPrefix(one, fmt.Sprintf("%d-", k+1)) {
						want = append(want, one)
					}
				}
			}
		}
		rest := all
		for _, one := range got {
			at := slices.Index(rest, one)
			if at < 0 {
				t.Fatalf("%d: %+v in %q: %q is wrong, or not in order", i, opts, text.String(), one)
			}
			rest = rest[at+1:]
		}
		for _, one := range want {
			if !slices.Contains(got, one) {
				t.Fatalf("%d: %+v in %q: %q is missing in %q", i, opts, text.String(), one, got)
			}
		}
	}
}

// TestLongLineCut delivers the part of a line in memory, and whether it is cut.
func TestLongLineCut(t *testing.T) {
	for size := range 50 {
		for _, end := range []string{"", "\n", "\r\n"} {
			line := "x" + strings.Repeat("é", size)
			s := NewSearcher(compile(t, "x"), Options{MaxLine: 1000})
			s.size = 4 // 32 at last
			n := 0
			err := s.Search(t.Context(), strings.NewReader(line+end), func(l Line) error {
				n++
				if !strings.HasPrefix(line, string(l.Text)) || !utf8.Valid(l.Text) ||
					l.Cut != (len(l.Text) < len(line)) || l.Cut && len(line) < 32 {
					t.Errorf("%d bytes, %q: %q, %v", len(line), end, l.Text, l.Cut)
				}
				return nil
			})
			if err != nil || n != 1 {
				t.Errorf("%d bytes, %q: %d lines, %v", len(line), end, n, err)
			}
		}
	}
}
