package tool

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/tool/internal/v4a"
)

// styles are the encodings that a text can have in a file.
var styles = map[string]func(string) string{
	"plain": func(s string) string { return s },
	"crlf":  func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
	"bom":   func(s string) string { return "\uFEFF" + s },
	"bom and crlf": func(s string) string {
		return "\uFEFF" + strings.ReplaceAll(s, "\n", "\r\n")
	},
	"no final newline": func(s string) string { return strings.TrimSuffix(s, "\n") },
}

// TestEditFileLoosely edits files in every style at every level of matching.
func TestEditFileLoosely(t *testing.T) {
	const (
		trailing    = "ignoring trailing white space"
		space       = "ignoring leading and trailing white space"
		punctuation = "ignoring white space and typographic punctuation"
	)
	for _, tt := range []struct {
		name, file, old, new, level string
		want                        string
	}{
		{"exact", "a\nb\nc\n", "b", "x", "", "a\nx\nc\n"},
		{"trailing space in the file", "a\nb  \nc\n", "a\nb\nc", "a\nx\nc", trailing, "a\nx\nc\n"},
		{"trailing space in old", "a\nb\nc\n", "b \nc", "x\nc", trailing, "a\nx\nc\n"},
		{
			"lines that stay keep their space", "a\t\nb\nc  \n", "a\nb\nc", "a\nx\nc", trailing,
			"a\t\nx\nc  \n",
		},
		{
			"tabs for spaces", "f {\n\tif a {\n\t\tb\n\t}\n}\n", "    if a {\n        b\n    }",
			"    if a {\n        c\n        d\n    }", space, "f {\n\tif a {\n\t\tc\n\t\td\n\t}\n}\n",
		},
		{"empty lines stay empty", "f {\n\ta\n}\n", "  a", "  a\n\n  b", space, "f {\n\ta\n\n\tb\n}\n"},
		{"at the start of the file", "\ta\nb\n", "    a\n", "    c\n", space, "\tc\nb\n"},
		{"at the end of the file", "a\n\tb\n", "  b\n", "  c\n", space, "a\n\tc\n"},
		{"deletion", "a\n\tb\n\tc\nd\n", "  b\n  c\n", "", space, "a\nd\n"},
		{"deletion without the line break", "a\n\tb\nd\n", "  b", "", space, "a\n\nd\n"},
		{"line break only in new", "a\n\tb\nd\n", "  b", "  c\n", space, "a\n\tc\n\nd\n"},
		{"line break only in old", "a\n\tb\nd\n", "  b\n", "  c", space, "a\n\tc\nd\n"},
		{
			"quotes", "x\nsay “a” – ‘b’\u00a0c\ny\n", "say \"a\" - 'b' c", "tell \"a\"", punctuation,
			"x\ntell \"a\"\ny\n",
		},
		{"quotes that stay", "say “a”\nb\n", "say \"a\"\nb", "say \"a\"\nc", punctuation, "say “a”\nc\n"},
		{
			"quotes and indentation", "x\n\tsay “a”\n", "  say \"a\"", "  tell \"a\"", punctuation,
			"x\n\ttell \"a\"\n",
		},
		{"an exact match counts", "\ta\na\nb\n", "a\n", "b\n", "twice", ""},
		{"the closer level counts", "\ta\na \n", "a\nx", "", "first", ""},
		{"twice at a level", "\ta\n  a\nb\n", "    a\n", "    c\n", "several", ""},
		{"indentation unclear", "f {\n\ta\n\t\tb\n}\n", "a\nb", "a\nb\nc", "unclear", ""},
		{"only white space", "a\n\nb\n", "\t \n", "x\n", "none", ""},
		{"no change", "a\n\tb\nc\n", "  b", "\tb", "same", ""},
	} {
		for style, in := range styles {
			t.Run(tt.name+"/"+style, func(t *testing.T) {
				file := in(tt.file)
				e, err := edit("f", file, tt.old, tt.new, false)
				if tt.want == "" {
					message := map[string]string{
						"several": "several times", "unclear": "is ambiguous", "none": "no line is similar",
						"first": "Its first line is at", "same": "would not change", "twice": "occurs 2 times",
					}[tt.level]
					if err == nil || !strings.Contains(err.Error(), message) {
						t.Fatalf("got %q, %v", e.content, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := in(tt.want)
				if diff := cmp.Diff(want, e.content); diff != "" {
					t.Error(diff)
				}
				if loose := e.remark != ""; loose != (tt.level != "") || !strings.Contains(e.remark, tt.level) {
					t.Errorf("the remark is %q, want %q", e.remark, tt.level)
				}
			})
		}
	}
}

func TestEditFileLooselySpecialFiles(t *testing.T) {
	for _, tt := range []struct {
		name, file, old, new string
		all                  bool
		want, remark         string
		wantErr              string
	}{
		{
			"mixed line endings", "a\r\nb\nc\nd\r\ne\r\nf\r\n", "a\nb\nc", "x\nb\nz", false,
			"x\nb\nz\nd\r\ne\r\nf\r\n", "with other line endings", "",
		},
		{"crlf in old", "a\nb\n", "a\r\nb", "x\r\ny", false, "x\ny\n", "with other line endings", ""},
		{
			"newline in old, none in the file", "a\nb", "a\nb\n", "a\nc\n", false, "a\nc",
			"with other line endings", "",
		},
		{"the mark of old and new", "\uFEFFa\nb\n", "\uFEFFa", "\uFEFFx", false, "\uFEFFx\nb\n", "", ""},
		{"no mark is added", "a\nb\n", "a", "\uFEFFx", false, "x\nb\n", "", ""},
		{"no mark is lost", "\uFEFFa\nb\n", "\uFEFFa", "x", false, "\uFEFFx\nb\n", "", ""},
		{"only the mark", "\uFEFFa\n", "\uFEFF", "x", false, "", "", "only a byte order mark"},
		{"everywhere, loosely", "\ta\n", "  a", "b", true, "", "", "replace_all needs exact text"},
		{
			"everywhere, loosely, twice", "\ta\n\ta\n", "  a", "b", true, "", "",
			"several times, at lines 1, 2",
		},
		{"everywhere, overlapping", "aaaa", "aa", "b", true, "bb", "", ""},
		{"once, overlapping", "aaa", "aa", "b", false, "", "", "occurs 2 times"},
		{
			"very often", strings.Repeat("a\n", 101), "a", "b", false, "", "",
			"occurs at least 100 times in f, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 90 more",
		},
		{
			"very often, everywhere", strings.Repeat("a\n", 101), "a", "b", true, strings.Repeat("b\n", 101),
			"", "",
		},
		{
			"a first line in several places", "a\nb\na\nc\n", "a\nd", "x", false, "", "",
			"Its first line is at lines 1, 3, but",
		},
		{
			"invalid bytes stay", "\xff\n\ta \xfe\nb\xff\n", "b\xff", "c", false, "\xff\n\ta \xfe\nc\n", "",
			"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := edit("f", tt.file, tt.old, tt.new, tt.all)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("got %q, %v", e.content, err)
				}
				return
			}
			if err != nil || e.content != tt.want || (e.remark != "") != (tt.remark != "") ||
				!strings.Contains(e.remark, tt.remark) {
				t.Errorf("got %q, %q, %v", e.content, e.remark, err)
			}
		})
	}
}

// The result reports a loose match, and a loose match that is not unique changes nothing.
func TestEditFileReportsLevel(t *testing.T) {
	m := newMemory(map[string]string{"f": "x\n\ta\n", "g": "\ta\n  a\n"})
	o := use(t, m, "edit_file", `{"file_path": "f", "old_string": "    a", "new_string": "    b"}`)
	want := "made 1 replacement in f, at line 2\n[old_string matched only ignoring leading and " +
		"trailing white space; whole lines were replaced and indented as in the file, and unchanged " +
		"lines were kept as they are]"
	if diff := cmp.Diff(want, o.Result.Text()); diff != "" || m.files()["f"] != "x\n\tb\n" {
		t.Errorf("%s\n%q", diff, m.files()["f"])
	}
	o = use(t, m, "edit_file", `{"file_path": "g", "old_string": "    a", "new_string": "    b"}`)
	if kind(o) != KindEditConflict || m.files()["g"] != "\ta\n  a\n" || len(o.Changes) > 0 {
		t.Errorf("%s: %s", kind(o), o.Result.Text())
	}
}

// Loose edits and patches keep a file's mode and byte order mark.
func TestLocalEditsKeepModeAndMark(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits for programs")
	}
	for _, tt := range []struct {
		tool string
		args args
	}{
		{"edit_file", args{
			"file_path": "run.sh", "old_string": "    say \"a\"", "new_string": "    say \"b\"",
		}},
		{"apply_patch", patch("*** Update File: run.sh\n@@\n-    say \"a\"\n+\tsay \"b\"\n")},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			e, dir := here(t, map[string]string{"run.sh": "\uFEFFf {\r\n\tsay “a”\r\n}\r\n"})
			full := filepath.Join(dir, "run.sh")
			if err := os.Chmod(full, 0o751); err != nil {
				t.Fatal(err)
			}
			if o := use(t, e, tt.tool, tt.args); o.Err != nil {
				t.Fatal(o.Err)
			}
			if got, want := read(t, full), "\uFEFFf {\r\n\tsay \"b\"\r\n}\r\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			info, err := os.Stat(full)
			if err != nil || info.Mode().Perm() != fs.FileMode(0o751) {
				t.Errorf("the mode is %v, %v", info.Mode(), err)
			}
		})
	}
}

// A large text that occurs again and again, each time a byte further, is not counted to the end:
// that would take minutes.
func TestEditFileStopsCounting(t *testing.T) {
	if _, err := edit("f", strings.Repeat("a", 8<<20), strings.Repeat("a", 4<<20), "x",
		false); err == nil || !strings.Contains(err.Error(), "occurs at least 100 times") {
		t.Error(err)
	}
}

// FuzzEditFile checks that an edit changes nothing outside the lines that it names.
func FuzzEditFile(f *testing.F) {
	f.Add("a\n\tb\nc\n", "  b", "  x\n    y", false)
	f.Add("\uFEFFa\r\nb \r\nc", "b\nc", "b\nd\n", false)
	f.Add("say “a”\n\n", "say \"a\"\n", "", false)
	f.Add("aaa", "aa", "b", true)
	f.Fuzz(func(t *testing.T, content, old, replacement string, all bool) {
		if old == "" || old == replacement {
			t.Skip("the tool refuses it before")
		}
		e, err := edit("f", content, old, replacement, all)
		if err != nil {
			if !utf8.ValidString(old) {
				return
			}
			if utf8.ValidString(content) && !utf8.ValidString(err.Error()) {
				t.Errorf("the message is not text: %q", err)
			}
			return
		}
		if e.content == content {
			t.Fatal("nothing was changed, and no error reports it")
		}
		if all {
			return
		}
		before, after := strings.SplitAfter(content, "\n"), strings.SplitAfter(e.content, "\n")
		first := e.lines[0] - 1
		if diff := cmp.Diff(before[:first], after[:min(first, len(after))]); diff != "" {
			t.Fatalf("lines above the match were changed:\n%s", diff)
		}
		// The text after the replaced lines is still the end of the file.
		last := first + strings.Count(strings.TrimSuffix(strings.TrimPrefix(old, "\uFEFF"), "\n"), "\n") +
			1
		if last < len(before) && e.remark != "" &&
			!strings.HasSuffix(e.content, strings.Join(before[last:], "")) {
			t.Fatalf("lines below the match were changed: %q", e.content)
		}
		if strings.HasPrefix(content, "\uFEFF") != strings.HasPrefix(e.content, "\uFEFF") &&
			!strings.HasPrefix(strings.TrimPrefix(content, "\uFEFF"), "\uFEFF") {
			t.Fatalf("the byte order mark was lost or made: %q", e.content)
		}
		if places, level := v4a.Find(strings.TrimPrefix(content, "\uFEFF"), strings.TrimPrefix(old,
			"\uFEFF")); e.remark != "" && len(places) != 1 {
			t.Fatalf("found %s at %v, and yet it was applied", level, places)
		}
	})
}
