package tool

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// shorten passes text through a cutter in pieces of whole characters.
func shorten(text string, l Limit, reserved string) (cut, string) {
	c := cutter{limit: l}
	for len(text) > 0 {
		n := runes([]byte(text), 7)
		c.write([]byte(text[:n]))
		text = text[n:]
	}
	t := c.cut(reserved)
	return t, t.text("See there.")
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d\n", i+1)
	}
	return b.String()
}

// gap is the mark for n characters that are left out.
func gap(n string) string { return "[Output shortened: " + n + " are left out here. See there.]" }

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		limit      Limit
		reserved   string
		want       string
	}{
		{"fits", "abc", Limit{Chars: 3}, "", "abc"},
		{"empty", "", Limit{Chars: 3}, "", ""},
		{"head and tail", "0123456789", Limit{Chars: 4}, "", "01\n\n" + gap("6 characters") + "\n\n89"},
		{
			"odd limit", "0123456789",
			Limit{Chars: 5, Keep: KeepHeadTail},
			"", "01\n\n" + gap("5 characters") + "\n\n789",
		},
		{
			"head", "0123456789",
			Limit{Chars: 4, Keep: KeepHead},
			"", "0123\n\n" + gap("6 characters") + "\n",
		},
		{"tail", "0123456789", Limit{Chars: 4, Keep: KeepTail}, "", gap("6 characters") + "\n\n6789"},
		{"one too many", "01234", Limit{Chars: 4}, "", "01\n\n" + gap("1 characters") + "\n\n34"},
		{
			"characters are code points", "äöüß€日本語🙂z",
			Limit{Chars: 4},
			"", "äö\n\n" + gap("6 characters") + "\n\n🙂z",
		},
		{
			"line breaks are counted", "a\nb\nc\nd\ne\n",
			Limit{Chars: 4},
			"", "a\n\n" + gap("6 characters with 3 line breaks") + "\n\ne\n",
		},
		{
			"lines, head and tail", numbered(9),
			Limit{Chars: 100, Lines: 4},
			"", "1\n2\n\n" + gap("10 characters with 5 line breaks") + "\n\n8\n9\n",
		},
		{
			"lines, head", numbered(5),
			Limit{Chars: 100, Lines: 2, Keep: KeepHead},
			"", "1\n2\n\n" + gap("6 characters with 3 line breaks") + "\n",
		},
		{
			"lines, tail", numbered(5),
			Limit{Chars: 100, Lines: 2, Keep: KeepTail},
			"", gap("6 characters with 3 line breaks") + "\n\n4\n5\n",
		},
		{
			"last line without a break", "1\n2\n3",
			Limit{Chars: 100, Lines: 2, Keep: KeepTail},
			"", gap("2 characters with 1 line breaks") + "\n\n2\n3",
		},
		{"as many lines as allowed", numbered(3), Limit{Chars: 100, Lines: 3}, "", "1\n2\n3\n"},
		{
			"characters first, then lines", numbered(9),
			Limit{Chars: 12, Lines: 2},
			"", "1\n\n" + gap("14 characters with 7 line breaks") + "\n\n9\n",
		},
		{
			"reserved characters", "0123456789",
			Limit{Chars: 7},
			"abc", "01\n\n" + gap("6 characters") + "\n\n89",
		},
		{
			"reserved lines", numbered(5),
			Limit{Chars: 100, Lines: 3, Keep: KeepHead},
			"x\n", "1\n2\n\n" + gap("6 characters with 3 line breaks") + "\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, got := shorten(tt.text, tt.limit, tt.reserved); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestCutterMemory(t *testing.T) {
	c := cutter{limit: Limit{Chars: 100}}
	piece := []byte(strings.Repeat("x", 1000))
	for range 10_000 {
		c.write(piece)
	}
	if got := cap(c.head) + cap(c.tail); got > 20_000 {
		t.Errorf("%d bytes for 100 characters", got)
	}
}

func TestLimitOver(t *testing.T) {
	own := Limit{Chars: 10, Lines: 5, Keep: KeepTail}
	for _, tt := range []struct {
		name           string
		override, want Limit
	}{
		{"nothing", Limit{}, own},
		{"characters", Limit{Chars: 3}, Limit{3, 5, KeepTail}},
		{"lines", Limit{Lines: 1}, Limit{10, 1, KeepTail}},
		{"no limit of lines", Limit{Lines: -1}, Limit{10, -1, KeepTail}},
		{"part", Limit{Keep: KeepHead}, Limit{10, 5, KeepHead}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := own.over(tt.override); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if got := (Limit{}).over(Limit{}); got.Chars != 30_000 {
		t.Errorf("the default is %d", got.Chars)
	}
}

var mark = regexp.MustCompile(`\[Output shortened: (\d+) characters(?: with (\d+) line ` +
	`breaks)? are left out here\. See there\.\]\n`)

func FuzzCut(f *testing.F) {
	f.Add("a\nbé\n日本\n", 4, 2, 0, "")
	f.Add(strings.Repeat("x", 50), 7, 0, 1, "end")
	f.Add(numbered(30), 30, 5, 2, "")
	f.Fuzz(func(t *testing.T, text string, chars, lines, keep int, reserved string) {
		text = (&cleaner{}).all(text)
		reserved = (&cleaner{}).all(reserved)
		used := utf8.RuneCountInString(reserved)
		l := Limit{Chars: 2*used + 1 + max(0, chars%200), Lines: max(0, lines%20), Keep: []Keep{
			KeepHead, KeepTail, KeepHeadTail,
		}[max(0, keep%3)]}
		part, got := shorten(text, l, reserved)
		head, tail := string(part.head), string(part.tail)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not valid UTF-8", got)
		}
		if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
			t.Fatalf("%q and %q are not beginning and end of %q", head, tail, text)
		}
		if n := utf8.RuneCountInString(head + tail); n > l.Chars-used {
			t.Fatalf("%d characters, the limit is %d", n, l.Chars-used)
		}
		if n := countLines(part.head) + countLines(part.tail); l.Lines > 0 && n > max(1,
			l.Lines-strings.Count(reserved, "\n")) {
			t.Fatalf("%d lines, the limit is %d", n, l.Lines)
		}
		if !part.truncated {
			if got != text {
				t.Fatalf("%q became %q", text, got)
			}
			return
		}
		m := mark.FindStringSubmatch(got[len(head):])
		if m == nil {
			t.Fatalf("no mark in %q", got)
		}
		removed := text[len(head) : len(text)-len(tail)]
		if m[1] != strconv.Itoa(utf8.RuneCountInString(removed)) {
			t.Fatalf("the mark counts %s characters, %q was removed", m[1], removed)
		}
		if n := strings.Count(removed, "\n"); n > 0 && m[2] != strconv.Itoa(n) {
			t.Fatalf("the mark counts %s line breaks, %q was removed", m[2], removed)
		}
	})
}
