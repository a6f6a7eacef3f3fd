package v4a

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplace(t *testing.T) {
	for _, tt := range []struct {
		name, text, old, replacement string
		want                         string // Empty if the indentation does not follow.
	}{
		{"added lines", "a\n  b \nc\n", "b", "b\nd", "a\n  b \n  d\nc\n"},
		{"moved lines", "\ta \n\tb\n", "a\nb", "b\na", "\tb\n\ta\n"},
		{"what stays is not indented anew", "a\n\t b\n\tc\n", "  b\n  c", "  b\n  d\n  c", ""},
		{
			"what stays needs no indentation", "a\n\t b\n\tc\nd\n", "  b\n  c\nd", "  b\n  c\ne",
			"a\n\t b\n\tc\ne\n",
		},
		{
			"three for two", "a\n   b\n      c\n", "  b\n    c", "  b\n    c\n      d\n  e",
			"a\n   b\n      c\n         d\n   e\n",
		},
		{
			"not on a line", "a\n  b\n      c\n      d\n", "  b\n    c\n      d",
			"  b\n    c\n      d\n        e", "",
		},
		{"none in the text", "a\nb\n", "  b", "  b\n    c", "a\nb\n  c\n"},
		{"a part of a step", "a\n\tb\n\t\tc\n", "    b\n        c", "    b\n      d\n        c", ""},
		{"above the margin", "\ta\n\t\tb\n", "    a\n        b", "a\n        b", "a\n\t\tb\n"},
		{"left of the margin", "a\n b\n", "        b", "c", ""},
		{"as the file, or deeper", "x\n    a \n", "a\n", "    b\n", ""},
		{
			"as the file, or deeper, also what stays", "x\n    a \n    b \n", "a\nb\n", "    a\n    b\n", "",
		},
		{
			"deeper, since another line is not", "x\n    a \n", "a\n", "if a:\n    b\n",
			"x\n    if a:\n        b\n",
		},
		{"moved, or half as wide", "a\n  b\n    c\n", "        c", "        c\n    d", ""},
		{"moved, or half as wide, deeper", "a\n    b\n", "        b", "        b\n            c", ""},
		{"moved, or twice as wide, at the margin", "a\n        b\n", "    b", "    b\nc", ""},
		{
			"moved, since two thirds of a depth is none", "x\n        b\n", "            b",
			"            c\n        d", "x\n        c\n    d\n",
		},
		{
			"moved, and no other depth", "a\n    b\n", "        b", "        c\n        d",
			"a\n    c\n    d\n",
		},
		{"several characters", "a\n \tb\n", "  b", "  b\n    c", ""},
		{"other white space", "a\n\u00a0b\n", "  b", "  c", "a\n\u00a0c\n"},
		{
			"endings of the replaced lines", "a\r\nb\r\nc\r\n d\n e\n", "d\ne", "x\ny\nz",
			"a\r\nb\r\nc\r\n x\n y\n z\n",
		},
		{"the last line", "a\r\n b", "b", "c\nd", "a\r\n c\r\n d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			places, _ := Find(tt.text, tt.old)
			if len(places) != 1 {
				t.Fatalf("found at %v", places)
			}
			got, ok := Replace(tt.text, tt.old, tt.replacement, places[0])
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want != "") {
				t.Errorf("%v\n%s", ok, diff)
			}
		})
	}
}

func TestCommon(t *testing.T) {
	for _, tt := range []struct {
		was, now string
		want     []int
	}{
		{"a b c", "a b c", []int{0, 1, 2}},
		{"a b c", "a x c", []int{0, -1, 2}},
		{"a b c d", "x b d y", []int{-1, 1, 3, -1}},
		{"a b a", "b a b", []int{1, 2, -1}},
		{"a", "x a y", []int{-1, 0, -1}},
	} {
		if diff := cmp.Diff(tt.want, common(strings.Fields(tt.was), strings.Fields(tt.now))); diff != "" {
			t.Errorf("%q, %q:\n%s", tt.was, tt.now, diff)
		}
	}
}

// style is the indentation of a program: its margin in steps, and the text of a step.
type style struct {
	margin int
	step   string
}

// text returns lines in the style. Each line is its depth, as so many dots, and its content.
func (s style) text(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		text := strings.TrimLeft(l, ".")
		b.WriteString(strings.Repeat(s.step, s.margin+len(l)-len(text)) + text + "\n")
	}
	return b.String()
}

// TestStructureStays edits programs whose blocks are made by indentation, in a style that is not
// the file's. Every applied edit must have the intended blocks.
func TestStructureStays(t *testing.T) {
	programs := [][3][]string{ // the lines above, the replaced lines, the new lines
		{{"class A:", ".def f():"}, {"..a"}, {"..a", "", ".def g():", "..b"}},
		{{"class A:", ".def f():"}, {"..a"}, {"..if a:", "...b"}},
		{{"class A:", ".def f():"}, {"..a"}, {"..a", "c"}},
		{{"class A:"}, {".def f():", "..a"}, {".def f():", "..for a in b:", "...c", "..d", "e"}},
		{{"class A:", ".def f():", "..if a:"}, {"...b", "..c"}, {
			"...b", "...if d:", "....e", ".def g():", "..h",
		}},
		{{}, {"a"}, {"if a:", ".b"}},
		{{"if a:", ".if b:", "..if c:"}, {"...d"}, {"..else:", "...d", ".f"}},
	}
	files := []string{"\t", " ", "  ", "   ", "    ", "        "}
	applied := 0
	for _, step := range files {
		for margin := range 2 {
			file := style{margin, step}
			models := []style{{margin + 1, step}, {max(margin-1, 0), step}} // moved
			for _, other := range files {
				models = append(models, style{margin, other}) // of other steps
			}
			for _, p := range programs {
				text := file.text(append(append([]string{"x"}, p[0]...), append(p[1], "y")...))
				want := file.text(append(append([]string{"x"}, p[0]...), append(p[2], "y")...))
				for _, model := range models {
					old := model.text(p[1])
					places, level := Find(text, old)
					if len(places) != 1 {
						t.Fatalf("%q in %q: %v", old, text, places)
					}
					if level < Space {
						continue // It is indented alike.
					}
					got, ok := Replace(text, old, model.text(p[2]), places[0])
					if !ok {
						continue
					}
					applied++
					// An empty line has the margin of the model, or none.
					if diff := cmp.Diff(blocks(want), blocks(got)); diff != "" {
						t.Errorf("%q for %q in %q:\n%s", model.text(p[2]), old, text, diff)
					}
				}
			}
		}
	}
	if applied < 300 {
		t.Errorf("only %d edits were applied", applied)
	}
}

// blocks returns the lines of s that have any text.
func blocks(s string) []string {
	var lines []string
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// FuzzReplace checks that lines outside the match, and lines that stay, are as they were.
func FuzzReplace(f *testing.F) {
	f.Add("a\n\tb\nc\n", "  b", "  b\n    x")
	f.Add("a \r\nb\r\nc", "a\nb", "a\nx\n")
	f.Add("\n\n x\n", "\nx", "")
	f.Fuzz(func(t *testing.T, text, old, replacement string) {
		places, level := Find(text, old)
		if len(places) != 1 {
			return
		}
		got, ok := Replace(text, old, replacement, places[0])
		if !ok {
			if level < Space {
				t.Fatal("the indentation is the same, and yet it is unclear")
			}
			return
		}
		before, count, at := split(text), len(split(old)), places[0]-1
		above, below := raw(before[:at]), raw(before[at+count:])
		if !strings.HasPrefix(got, above) || !strings.HasSuffix(got[len(above):], below) {
			t.Fatalf("more than the match was changed: %q", got)
		}
		if same, ok := Replace(text, old, old, places[0]); !ok || strings.TrimSuffix(old, "\n") == old &&
			same != text {
			t.Fatalf("the text was replaced by itself, and became %q, %v", same, ok)
		}
	})
}

func raw(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + l.end)
	}
	return b.String()
}
