package v4a

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wrap puts body between the markers of a patch.
func wrap(body string) string { return "*** Begin Patch\n" + body + "*** End Patch\n" }

func TestParse(t *testing.T) {
	del := []Op{{Kind: Delete, Path: "a"}}
	chunk := func(pos int, lines ...Line) []Chunk { return []Chunk{{Pos: pos, Lines: lines}} }
	for _, tt := range []struct {
		name, patch string
		want        []Op
	}{
		{"delete", wrap("*** Delete File: a\n"), del},
		{"surrounding space", "\n \t" + wrap("*** Delete File: a\n") + "\n\n", del},
		{"spaces around markers", " *** Begin Patch \n  *** Delete File:   a  \n\t*** End Patch", del},
		{"crlf", strings.ReplaceAll(wrap("*** Delete File: a\n"), "\n", "\r\n"), del},
		{"heredoc", "<<EOF\n" + wrap("*** Delete File: a\n") + "EOF", del},
		{"heredoc in single quotes", "<<'EOF'\n" + wrap("*** Delete File: a\n") + "EOF\n", del},
		{"heredoc in double quotes", "<<\"EOF\"\n\n" + wrap("*** Delete File: a\n") + "\nEOF", del},
		{"heredoc with another word", "<<'PATCH'\n" + wrap("*** Delete File: a\n") + "PATCH", del},
		{"heredoc of a command", "apply_patch <<'EOF'\n" + wrap("*** Delete File: a\n") + "EOF", del},
		{
			"blank lines between operations", wrap("\n*** Delete File: a\n\n \n*** Delete File: b\n\n"),
			[]Op{{Kind: Delete, Path: "a"}, {Kind: Delete, Path: "b"}},
		},
		{"add", wrap("*** Add File: d/a b.txt\n+one\n+\n+ two\n"), []Op{{
			Kind: Add, Path: "d/a b.txt", Content: "one\n\n two\n",
		}}},
		{"add an empty file", wrap("*** Add File: a\n*** Delete File: b\n"), []Op{
			{Kind: Add, Path: "a"},
			{Kind: Delete, Path: "b"},
		}},
		{
			"add with an empty line that lacks its plus", wrap("*** Add File: a\n+one\n\n\n+two\n\n"),
			[]Op{{Kind: Add, Path: "a", Content: "one\n\n\ntwo\n"}},
		},
		{
			"add markers as content", wrap("*** Add File: a\n+*** End Patch\n+@@\n"),
			[]Op{{Kind: Add, Path: "a", Content: "*** End Patch\n@@\n"}},
		},
		{"add with crlf content", wrap("*** Add File: a\n+one\r\n+two\r\n"), []Op{{
			Kind: Add, Path: "a", Content: "one\r\ntwo\r\n",
		}}},
		{"update", wrap("*** Update File: a\n@@\n x\n-y\n+z\n"), []Op{{
			Kind: Update, Path: "a", Chunks: chunk(3, Line{' ', "x"}, Line{'-', "y"}, Line{'+', "z"}),
		}}},
		{"first chunk without @@", wrap("*** Update File: a\n x\n-y\n"), []Op{{
			Kind: Update, Path: "a", Chunks: chunk(3, Line{' ', "x"}, Line{'-', "y"}),
		}}},
		{
			"blank line before the first chunk", wrap("*** Update File: a\n\n@@\n-y\n"),
			[]Op{{Kind: Update, Path: "a", Chunks: chunk(4, Line{'-', "y"})}},
		},
		{"empty context line", wrap("*** Update File: a\n@@\n x\n\n-y\n"), []Op{{
			Kind: Update, Path: "a", Chunks: chunk(3, Line{' ', "x"}, Line{Op: ' '}, Line{'-', "y"}),
		}}},
		{
			"markers as context", wrap("*** Update File: a\n@@\n *** End Patch\n- @@\n"),
			[]Op{{Kind: Update, Path: "a", Chunks: chunk(3, Line{' ', "*** End Patch"}, Line{'-', " @@"})}},
		},
		{"end of file", wrap("*** Update File: a\n@@\n-y\n*** End of File\n*** Delete File: b\n"), []Op{
			{Kind: Update, Path: "a", Chunks: []Chunk{{Pos: 3, Lines: []Line{{'-', "y"}}, AtEnd: true}}},
			{Kind: Delete, Path: "b"},
		}},
		{
			"hints", wrap("*** Update File: a\n@@ class A\n@@   def f():  \n-y\n@@ g\n-z\n"),
			[]Op{{Kind: Update, Path: "a", Chunks: []Chunk{
				{Hints: []string{"class A", "  def f():"}, Pos: 3, Lines: []Line{{'-', "y"}}},
				{Hints: []string{"g"}, Pos: 6, Lines: []Line{{'-', "z"}}},
			}}},
		},
		{"ranges of a unified diff", wrap("*** Update File: a\n@@ -1,5 +1,6 @@\n-y\n@@ -10 +11 @@ " +
			"func f\n-z\n"), []Op{{Kind: Update, Path: "a", Chunks: []Chunk{
			{Pos: 3, Lines: []Line{{'-', "y"}}},
			{Hints: []string{"func f"}, Pos: 5, Lines: []Line{{'-', "z"}}},
		}}}},
		{"move", wrap("*** Update File: a\n*** Move to: b/c\n@@\n-y\n"), []Op{{
			Kind: Update, Path: "a", MoveTo: "b/c", Chunks: chunk(4, Line{'-', "y"}),
		}}},
		{"only a move", wrap("*** Update File: a\n*** Move to: b\n"), []Op{{
			Kind: Update, Path: "a", MoveTo: "b",
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.patch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		name, patch string
		line        int
		message     string
	}{
		{"empty", " \n", 1, "the patch is empty"},
		{"no begin", "*** Delete File: a\n*** End Patch", 1, "the first line must be *** Begin Patch"},
		{"no end", "*** Begin Patch\n*** Delete File: a", 2, "the last line must be *** End Patch"},
		{"only begin", "\n*** Begin Patch\n", 2, "the last line must be *** End Patch"},
		{"no operation", wrap(""), 1, "no operation between"},
		{
			"heredoc not closed", "<<'EOF'\n" + wrap("*** Delete File: a\n"), 4,
			"the here-document around the patch is not closed",
		},
		{"only a heredoc", "<<EOF", 1, "the here-document around the patch is not closed"},
		{
			"unknown operation", wrap("*** Rename File: a\n"), 2, `"*** Rename File: a" is not an operation`,
		},
		{"no file name", wrap("*** Add File:\n+x\n"), 2, "the file name is missing"},
		{
			"no new name", wrap("*** Update File: a\n*** Move to: \n@@\n-x\n"), 3,
			"the new file name is missing",
		},
		{"text in an added file", wrap("*** Add File: a\n+x\ny\n"), 4, `"y" is not an operation`},
		{"text after a deletion", wrap("*** Delete File: a\n-x\n"), 3, `"-x" is not an operation`},
		{"update without a chunk", wrap("*** Update File: a\n"), 2, `the update of "a" has no chunk`},
		{
			"chunk without lines", wrap("*** Update File: a\n@@ f\n@@ g\n*** Delete File: b\n"), 4,
			"the chunk has no lines",
		},
		{"chunk without lines at the end", wrap("*** Update File: a\n@@\n"), 3, "the chunk has no lines"},
		{
			"end of file without lines", wrap("*** Update File: a\n@@\n*** End of File\n"), 4,
			"the chunk has no lines",
		},
		{
			"line without a mark", wrap("*** Update File: a\n@@\n x\nfunc f() {\n"), 5,
			`"func f() {" starts with none of space, - and +`,
		},
		{
			"first line without a mark", wrap("*** Update File: a\nfunc f() {\n"), 3,
			`"func f() {" starts with none of space, - and +`,
		},
		{
			"line after the end of the file", wrap("*** Update File: a\n@@\n x\n*** End of File\n y\n"), 6,
			`" y" is not an operation`,
		},
		{
			"very long line", wrap("*** Update File: a\n@@\n x\nf" + strings.Repeat("é", 1e6) + "\n"), 5,
			`ééé…" starts with none`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.patch)
			var parse *ParseError
			if !errors.As(err, &parse) {
				t.Fatalf("got %v, want a *ParseError", err)
			}
			if parse.Line != tt.line || !strings.Contains(parse.Message, tt.message) {
				t.Errorf("got line %d: %s\nwant line %d: %s", parse.Line, parse.Message, tt.line, tt.message)
			}
			if len(err.Error()) > 600 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}
