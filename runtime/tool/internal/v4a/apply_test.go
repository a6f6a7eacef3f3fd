package v4a

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chunksOf parses the chunks of one update.
func chunksOf(t testing.TB, body string) []Chunk {
	t.Helper()
	ops, err := Parse(wrap("*** Update File: f\n" + body))
	if err != nil {
		t.Fatal(err)
	}
	return ops[0].Chunks
}

const classes = "class A:\n    def run(self):\n        return 1\n\nclass B:\n    def " +
	"run(self):\n        return 1\n\nclass C:\n    def run(self):\n        return 1\n"

func TestApply(t *testing.T) {
	for _, tt := range []struct {
		name, file, chunks, want string
		matches                  []Match
	}{
		{"replace", "a\nb\nc\n", "@@\n a\n-b\n+B\n c\n", "a\nB\nc\n", []Match{{Line: 1}}},
		{"no @@", "a\nb\nc\n", "-b\n+B\n", "a\nB\nc\n", []Match{{Line: 2}}},
		{"first of several exact matches", "x\ny\nx\n", "@@\n-x\n+z\n", "z\ny\nx\n", []Match{{Line: 1}}},
		{
			"several chunks in file order", "x\ny\nx\n", "@@\n-x\n+1\n@@\n-x\n+2\n", "1\ny\n2\n",
			[]Match{{Line: 1}, {Line: 3}},
		},
		{"adjacent chunks", "a\nb\n", "@@\n-a\n+A\n@@\n-b\n+B\n", "A\nB\n", []Match{
			{Line: 1},
			{Line: 2},
		}},
		{"overlapping repeats", "a\na\na\nb\n", "@@\n a\n a\n-b\n", "a\na\na\n", []Match{{Line: 2}}},
		{"insert between", "a\nc\n", "@@\n a\n+b\n c\n", "a\nb\nc\n", []Match{{Line: 1}}},
		{"delete everything", "a\nb\n", "@@\n-a\n-b\n", "", []Match{{Line: 1}}},
		{"only context", "a\nb\n", "@@\n a\n", "a\nb\n", []Match{{Line: 1}}},
		{"append", "a\n", "@@\n+b\n", "a\nb\n", []Match{{Line: 2, Appended: true}}},
		{"append to an empty file", "", "@@\n+b\n", "b\n", []Match{{Line: 1, Appended: true}}},
		{
			"append to a file without a last newline", "a", "@@\n+b\n", "a\nb\n",
			[]Match{{Line: 2, Appended: true}},
		},
		{
			"append twice, then change", "a\nb\n", "@@\n+c\n@@\n-b\n+B\n@@\n+d\n", "a\nB\nc\nd\n",
			[]Match{{Line: 3, Appended: true}, {Line: 2}, {Line: 3, Appended: true}},
		},
		{"newline added at the end", "a\nb", "@@\n-a\n+A\n", "A\nb\n", []Match{{Line: 1}}},
		{
			"crlf stays", "a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B\n+B2\n", "a\r\nB\r\nB2\r\nc\r\n",
			[]Match{{Line: 1}},
		},
		{"crlf patch on an lf file", "a\nb\n", "@@\r\n a\r\n-b\r\n+B\r\n", "a\nB\n", []Match{{Line: 1}}},
		{"crlf newline added at the end", "a\r\nb", "@@\n-b\n+B\n", "a\r\nB\r\n", []Match{{Line: 2}}},
		{
			"dominant ending, others keep theirs", "a\r\nb\nc\r\nd\n e\r\n", "@@\n b\n-c\n+C\n d\n",
			"a\r\nb\nC\r\nd\n e\r\n",
			[]Match{{Line: 2}},
		},
		{"lone carriage returns are text", "a\rb\nc\n", "@@\n-c\n+C\n", "a\rb\nC\n", []Match{{Line: 2}}},
		{"bom stays", "\uFEFFa\nb\n", "@@\n-a\n+A\n", "\uFEFFA\nb\n", []Match{{Line: 1}}},
		{
			"level: trailing space", "a  \nb\t\nc\n", "@@\n a\n b\n-c\n+C\n", "a  \nb\t\nC\n",
			[]Match{{Line: 1, Level: TrailingSpace}},
		},
		{
			"level: leading space", "\t\ta\n\t\tb\n", "@@\n a\n-b\n+B\n", "\t\ta\n\t\tB\n",
			[]Match{{Line: 1, Level: Space}},
		},
		{
			"indented as the file", "def f():\n\ta\n\tb\n",
			"@@\n     a\n-    b\n+    if b:\n+        c\n+\n", "def f():\n\ta\n\tif b:\n\t\tc\n\n",
			[]Match{{Line: 2, Level: Space}},
		},
		{
			"new lines are indented as the file already", "f {\n\ta\n}\n", "@@\n-    a\n+\tb\n",
			"f {\n\tb\n}\n",
			[]Match{{Line: 2, Level: Space}},
		},
		{
			"relative to the old lines", "f {\n\ta\n}\n", "@@\n-a\n+if a {\n+\tb\n+}\n",
			"f {\n\tif a {\n\t\tb\n\t}\n}\n",
			[]Match{{Line: 2, Level: Space}},
		},
		{
			"no new lines, whatever the indentation", "\t\ta\n  b\n", "@@\n a\n-b\n", "\t\ta\n",
			[]Match{{Line: 1, Level: Space}},
		},
		{
			"other indentation in another chunk", "a\n\tb\nc\n", "@@\n-  b\n+  x\n@@\n-c\n+  y\n",
			"a\n\tx\n  y\n",
			[]Match{{Line: 2, Level: Space}, {Line: 3}},
		},
		{
			"level: punctuation", "say “hi” – ok\nb\n", "@@\n say \"hi\" - ok\n-b\n+B\n",
			"say “hi” – ok\nB\n",
			[]Match{{Line: 1, Level: Punctuation}},
		},
		{
			"level: exotic spaces", "a\u00a0b\u3000c\nx\n", "@@\n a b c\n-x\n", "a\u00a0b\u3000c\n",
			[]Match{{Line: 1, Level: Punctuation}},
		},
		{
			"level: minus, hyphen and quotes", "−1‐2 ‘x’ ‛y‟\n", "@@\n--1-2 'x' 'y\"\n+z\n", "z\n",
			[]Match{{Line: 1, Level: Punctuation}},
		},
		{"exact below beats inexact above", "a \na\n", "@@\n-a\n+b\n", "a \nb\n", []Match{{Line: 2}}},
		{"invalid utf-8 stays", "\xff\xfe\nb\n", "@@\n-b\n+B\n", "\xff\xfe\nB\n", []Match{{Line: 2}}},
		{
			"hint", classes, "@@ class B:\n     def run(self):\n-        return 1\n+        return 2\n",
			strings.Replace(classes, "1\n\nclass C", "2\n\nclass C", 1),
			[]Match{{Line: 6}},
		},
		{"hint goes past its line", "x\na\nx\n", "@@ x\n-x\n+y\n", "x\na\ny\n", []Match{{Line: 3}}},
		{
			"hint repeated as first old line", "T = 30\nb\n", "@@ T = 30\n-T = 30\n+T = 60\n", "T = 60\nb\n",
			[]Match{{Line: 1}},
		},
		{
			"hint repeated, exact there beats inexact below", "T = 30\n  T = 30\n",
			"@@ T = 30\n-T = 30\n+T = 60\n", "T = 60\n  T = 30\n",
			[]Match{{Line: 1}},
		},
		{
			"several hints in one file", "DEFAULT_TIMEOUT = 30\n\ndef load_config():\n    config = {}\n  " +
				"  config[\"debug\"] = False\n", "@@ DEFAULT_TIMEOUT = 30\n-DEFAULT_TIMEOUT = " +
				"30\n+DEFAULT_TIMEOUT = 60\n@@ def load_config():\n     config = {}\n-    config[\"debug\"] " +
				"= False\n+    config[\"debug\"] = True\n",
			"DEFAULT_TIMEOUT = 60\n\ndef load_config():\n    config = {}\n    config[\"debug\"] = True\n",
			[]Match{{Line: 1}, {Line: 4}},
		},
		{"stacked hints", classes, "@@ class B:\n@@ def run(self):\n-        return 1\n+        " +
			"return 2\n", strings.Replace(classes, "1\n\nclass C", "2\n\nclass C", 1), []Match{{Line: 7}}},
		{
			"inexact hint", "  def f():\n    x\n    y\n", "@@ def f():\n-    x\n+    z\n",
			"  def f():\n    z\n    y\n",
			[]Match{{Line: 2}},
		},
		{
			"doubtful hint, clear chunk", classes + "    end\n", "@@ def run(self):\n-    end\n", classes,
			[]Match{{Line: 12}},
		},
		{
			"appended below a hint", "a\nb\n", "@@ a\n+c\n", "a\nb\nc\n", []Match{{Line: 3, Appended: true}},
		},
		{"end of file", "x\ny\nx\n", "@@\n-x\n+z\n*** End of File\n", "x\ny\nz\n", []Match{{Line: 3}}},
		{
			"end of file, inexact", "x \ny\nx \n", "@@\n-x\n+z\n*** End of File\n", "x \ny\nz\n",
			[]Match{{Line: 3, Level: TrailingSpace}},
		},
		{
			"end of file, append", "x\n", "@@\n+z\n*** End of File\n", "x\nz\n",
			[]Match{{Line: 2, Appended: true}},
		},
		{
			"empty line at the end of the old lines", "a\nb\n", "@@\n a\n-b\n+B\n\n", "a\nB\n",
			[]Match{{Line: 1}},
		},
		{"empty line before the added lines", "a\nb\n", "@@\n-b\n\n+B\n", "a\nB\n", []Match{{Line: 2}}},
		{"empty line that is there", "a\nb\n\nc\n", "@@\n-b\n+B\n\n", "a\nB\n\nc\n", []Match{{Line: 2}}},
		{
			"empty line and end of file", "a\nb\n", "@@\n-b\n+B\n\n*** End of File\n", "a\nB\n",
			[]Match{{Line: 2}},
		},
		{
			"nothing but an empty line to hold on to", "a\n", "@@\n\n+b\n", "a\nb\n",
			[]Match{{Line: 2, Appended: true}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, matches, err := Apply(tt.file, chunksOf(t, tt.chunks))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.matches, matches); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestApplyConflicts(t *testing.T) {
	for _, tt := range []struct {
		name, file, chunks string
		messages           []string
	}{
		{
			"not there", "a\nb\n", "@@\n-x\n+y\n",
			[]string{`chunk 1 (line 3 of the patch): these lines are not in the file:`, `"x"`},
		},
		{
			"nearest match", "a\nb\nc\n", "@@\n a\n b\n-x\n",
			[]string{`The best match is at line 1; there line 3 is "c" where the patch has "x".`},
		},
		{"long chunks are cut", "a\n", "@@\n" + strings.Repeat("-x\n", 30), []string{"(and 22 more)"}},
		{"out of order", "a\nb\n", "@@\n-b\n+B\n@@\n-a\n+A\n", []string{
			"chunk 2 (line 6 of the patch)", "below line 2", "They are at line 1, above the",
		}},
		{
			"no such hint", "a\nb\n", "@@ def f():\n-a\n",
			[]string{`the file has no line "def f():", which the @@ line names`},
		},
		{
			"no such hint below the cursor", "f\na\nb\n", "@@\n-b\n@@ f\n-a\n",
			[]string{`no line "f" below line 3`},
		},
		{
			"no such second hint", classes, "@@ class C:\n@@ class A:\n-a\n",
			[]string{`no line "class A:" below line 9`},
		},
		{"not at the end", "x\ny\n", "@@\n-x\n*** End of File\n", []string{
			"not in the file at its end", "They are at line 1, which is not the end of the file.",
		}},
		{
			"longer than the file", "x\n", "@@\n-x\n-y\n*** End of File\n",
			[]string{"not in the file at its end"},
		},
		{
			"ambiguous trailing space", "a \nb\na \n", "@@\n-a\n+c\n",
			[]string{"the old lines match only ignoring trailing white space, at several positions: lines " +
				"1, 3;"},
		},
		{
			"ambiguous leading space", " a\n  a\n", "@@\n-a\n+c\n",
			[]string{"ignoring leading and trailing white space, at several positions: lines 1, 2;"},
		},
		{
			"ambiguous punctuation", "‘a’\n’a’\n", "@@\n-'a'\n+c\n",
			[]string{"typographic punctuation, at several positions: lines 1, 2;"},
		},
		{
			"ambiguous at many places", strings.Repeat("a \n", 20), "@@\n-a\n+c\n",
			[]string{"lines 1, 2, 3, 4, 5, more;"},
		},
		{"ambiguous with the hint's own line", " a\n a\n", "@@ a\n-a\n+c\n", []string{"lines 2, 1;"}},
		{
			"doubtful hint", classes, "@@ def run(self):\n-        return 1\n+        return 2\n",
			[]string{"the @@ line is ambiguous", "lines 3, 7, 11;"},
		},
		{"empty file", "", "@@\n-a\n+b\n", []string{"these lines are not in the file"}},
		{
			"as the file, or deeper", "f {\n\ta\n}\n", "@@\n-a\n+\tb\n",
			[]string{"line 2, and the indentation of the new ones is ambiguous"},
		},
		{
			"indentation unclear", "x\n\t\ta\n  b\n", "@@\n a\n-b\n+B\n",
			[]string{"match only ignoring leading and trailing white space, at line 2, and the " +
				"indentation of the new ones is ambiguous", `"\t\ta"`, `"  b"`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Apply(tt.file, chunksOf(t, tt.chunks))
			var conflict *ConflictError
			if !errors.As(err, &conflict) {
				t.Fatalf("got %v, want a *ConflictError", err)
			}
			for _, m := range tt.messages {
				if !strings.Contains(err.Error(), m) {
					t.Errorf("%q is missing in:\n%s", m, err)
				}
			}
			if len(err.Error()) > 2000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		name, text, pattern string
		want                []int
		level               Level
	}{
		{"exact", "a\nb\na\n", "a", []int{1, 3}, Exact},
		{"other indentation", "x\n\tif a {\n\t\tb\n", "if a {\n\tb", []int{2}, Space},
		{"none", "a\n", "b", nil, Exact},
		{"empty", "a\n", "", nil, Exact},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, level := Find(tt.text, tt.pattern)
			if diff := cmp.Diff(tt.want, got); diff != "" || level != tt.level {
				t.Errorf("level %v, want %v\n%s", level, tt.level, diff)
			}
		})
	}
}

func TestSearchIsLinear(t *testing.T) {
	// A naive search would compare 10^11 lines.
	lines := make([]string, 1_000_000)
	pattern := append(make([]string, 100_000), "x")
	if found := search(lines, pattern, 0, 1); found != nil {
		t.Errorf("found %v", found)
	}
}

func FuzzApply(f *testing.F) {
	for _, file := range []string{"", "a\nb\nc\n", "a \r\nb\r\n", classes, "\uFEFF x\ny"} {
		for _, body := range []string{
			"@@\n-a\n+b\n", "@@ class B:\n@@ def run(self):\n-        return 1\n",
			" a\n\n+x\n*** End of File\n", "@@\n+z\n",
		} {
			f.Add(file, body)
		}
	}
	f.Add("a\r", " a")
	f.Add("f {\n\ta\n}\n", "@@\n-    a\n+    b\n+        c\n")
	f.Fuzz(func(t *testing.T, file, body string) {
		if strings.Contains(body, "\r\r") {
			t.Skip("a new line that itself ends in a carriage return looks like one with another ending")
		}
		ops, err := Parse(wrap("*** Update File: f\n" + body + "\n"))
		if err != nil {
			return
		}
		got, matches, err := Apply(file, ops[0].Chunks)
		if err != nil {
			return
		}
		if len(matches) != len(ops[0].Chunks) {
			t.Fatalf("%d matches for %d chunks", len(matches), len(ops[0].Chunks))
		}
		if body := strings.TrimPrefix(got, "\uFEFF"); body != "" && !strings.HasSuffix(body, "\n") {
			t.Fatalf("%q does not end in a newline", got)
		}
		checkUntouched(t, file, got, ops[0].Chunks)
	})
}

// checkUntouched fails unless the result is the old file, in order and byte by byte, less as many
// lines as the chunks remove and plus the lines they add.
func checkUntouched(t *testing.T, file, got string, chunks []Chunk) {
	t.Helper()
	removed, added := 0, 0
	plus := map[string]int{}
	for _, c := range chunks {
		for _, l := range c.Lines {
			switch l.Op {
			case '-':
				removed++
			case '+':
				added++
				plus[strings.TrimSpace(l.Text)]++ // It may be indented as the file is.
			}
		}
	}
	before, after := split(strings.TrimPrefix(file, "\uFEFF")), split(strings.TrimPrefix(got,
		"\uFEFF"))
	// A trailing empty line of a chunk that the file lacks may be a removed one.
	if n := len(before) - removed + added; len(after) < n || len(after) > n+len(chunks) {
		t.Fatalf("%d lines became %d with %d removed and %d added", len(before), len(after), removed,
			added)
	}
	dominant := ending(before)
	if n := len(before); n > 0 && before[n-1].end == "" {
		// A carriage return at the end becomes a part of the line's ending.
		before = append(before[:n-1], split(before[n-1].text+dominant)...)
	}
	// Walk the result: each line is the next old line that is kept, or an added one.
	kept := longestCommon(before, after)
	if missing := len(before) - kept; missing > removed {
		t.Fatalf("%d old lines are gone, but the patch removes %d\n%q\n%q", missing, removed, file, got)
	}
	for _, l := range after {
		if plus[strings.TrimSpace(l.text)] > 0 && l.end == dominant {
			continue
		}
		found := false
		for _, b := range before {
			found = found || b == l
		}
		if !found {
			t.Fatalf("the line %q is neither old nor added", l)
		}
	}
}

// longestCommon returns the length of the longest common subsequence.
func longestCommon(a, b []line) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
