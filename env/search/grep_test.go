package search_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func TestGrepLines(t *testing.T) {
	type opts = search.GrepOptions
	long := strings.Repeat("x", 300<<10)
	for _, tt := range []struct {
		name, content string
		opts          search.GrepOptions
		want          []string // line:text
	}{
		{"plain", "one\ntwo\nthree\n", opts{Pattern: "t"}, []string{"2:two", "3:three"}},
		{"no line ending at the end", "a\nb", opts{Pattern: "b$"}, []string{"2:b"}},
		{"an empty file", "", opts{Pattern: ""}, nil},
		{"empty lines", "\n\na\n", opts{Pattern: "^$"}, []string{"1:", "2:"}},
		{"anchors", "ab\nba\n", opts{Pattern: "^a|^b$"}, []string{"1:ab"}},
		{"text anchors", "ab\nba\n", opts{Pattern: `\Ab.*a\z`}, []string{"2:ba"}},
		{"CRLF", "a\r\nb\r\n\r\n", opts{Pattern: "[ab]?$"}, []string{"1:a", "2:b", "3:"}},
		{"a lone CR", "a\rb\nc\r", opts{Pattern: "[ac]\r"}, []string{"1:a\rb", "2:c\r"}},
		{"two carriage returns", "a\r\r\n", opts{Pattern: "a\r$"}, []string{"1:a\r"}},
		{
			"case", "Foo\nBar\nfoo\nSTRASSE\n",
			opts{Pattern: "FOO|bar", IgnoreCase: true},
			[]string{"1:Foo", "2:Bar", "3:foo"},
		},
		{"a byte order mark", "\xef\xbb\xbfa\n\xef\xbb\xbfa\n", opts{Pattern: "^a"}, []string{"1:a"}},
		{
			"invalid UTF-8", "a\xffb\n\xc3\n",
			opts{Pattern: "a.b|^.$"},
			[]string{"1:a\xffb", "2:\xc3"},
		},
		{"unicode", "größe\n", opts{Pattern: `gr\pLße`}, []string{"1:größe"}},
		{"classes do not span lines", "a\nb\n", opts{Pattern: `a\sb|a[^x]b|(?s)a.b`}, nil},
		{"a cut line", "aéé\n", opts{Pattern: "a", MaxLineBytes: 4}, []string{"1:aé…"}},
		{"a line of the limit", "aéé\n", opts{Pattern: "a", MaxLineBytes: 5}, []string{"1:aéé"}},
		{
			"cut invalid bytes", strings.Repeat("\x80", 9),
			opts{Pattern: "", MaxLineBytes: 4},
			[]string{"1:\x80\x80\x80\x80…"},
		},
		{
			"cut by default", strings.Repeat("é", 300),
			opts{Pattern: "é"},
			[]string{"1:" + strings.Repeat("é", 250) + "…"},
		},
		{
			"a long line, at its start", "a\nb" + long + "\nc\n",
			opts{Pattern: "^b|^c", MaxLineBytes: 3},
			[]string{"2:bxx…", "3:c"},
		},
		{
			"a long line, at its end", "a\n" + long + "b\r\nc\n",
			opts{Pattern: "xb$|c", MaxLineBytes: 3},
			[]string{"2:xxx…", "3:c"},
		},
		{
			"much of a long line", long,
			opts{Pattern: "x", MaxLineBytes: 1 << 30},
			[]string{"1:" + long[:64<<10] + "…"},
		},
		{"NUL after the first 8 KiB", long + "\x00\nb\n", opts{Pattern: "b"}, []string{"2:b"}},
		{
			"all", strings.Repeat("a\n", 150),
			opts{Pattern: "a", MaxMatches: -1},
			numbered(150),
		},
		{"the default limit", strings.Repeat("a\n", 150), opts{Pattern: "a"}, numbered(100)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFakeReader(t, map[string]string{"f": tt.content})
			tt.opts.Path = "f"
			got, stats := grepLines(t, d, tt.opts)
			want := []string{}
			for _, line := range tt.want {
				want = append(want, "f:"+line)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%.2000s", diff)
			}
			wantStats := search.GrepStats{
				Files: 1, Matches: len(want), Truncated: tt.name == "the default limit",
			}
			if diff := cmp.Diff(wantStats, stats); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func numbered(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("%d:a", i+1))
	}
	return lines
}

func TestGrepDir(t *testing.T) {
	d := newFakeReader(t, map[string]string{
		".gitignore": "*.log\n/out/", "a.log": "hit", "out/x": "hit", "b.go": "hit",
		"b/c.go": "hit\nhit", "b/d.ts": "hit", "b/e/f.tsx": "hit", "bin": "hit\x00", ".hidden": "hit",
		".git/g": "hit", "link": "-> b.go", "to": "-> b", "empty": "",
		"b/utf16": "\xff\xfeh\x00i\x00t\x00",
	})
	type opts = search.GrepOptions
	for _, tt := range []struct {
		name  string
		opts  search.GrepOptions
		want  string // names and numbers of lines
		stats search.GrepStats
	}{
		{
			"everything",
			opts{},
			".hidden:1 b/c.go:1 b/c.go:2 b/d.ts:1 b/e/f.tsx:1 b/utf16:1 b.go:1",
			search.GrepStats{Files: 8, SkippedBinary: 1},
		},
		{
			"base name",
			opts{Glob: "*.go"},
			"b/c.go:1 b/c.go:2 b.go:1",
			search.GrepStats{Files: 2},
		},
		{
			"alternatives",
			opts{Glob: "*.{ts,tsx}"},
			"b/d.ts:1 b/e/f.tsx:1",
			search.GrepStats{Files: 2},
		},
		{"whole name", opts{Glob: "b/**/*.tsx"}, "b/e/f.tsx:1", search.GrepStats{Files: 1}},
		{
			"one of two directories",
			opts{Glob: "{b/e/,missing/}"},
			"b/e/f.tsx:1",
			search.GrepStats{Files: 1},
		},
		{"whole name at the top", opts{Glob: "./*.go"}, "b.go:1", search.GrepStats{Files: 1}},
		{"a directory", opts{Path: "b", Glob: "e/*"}, "b/e/f.tsx:1", search.GrepStats{Files: 1}},
		{
			"a directory with a slash",
			opts{Path: "b/", Glob: "*.ts"},
			"b/d.ts:1",
			search.GrepStats{Files: 1},
		},
		{"a file", opts{Path: "b/d.ts", Glob: "*.go"}, "b/d.ts:1", search.GrepStats{Files: 1}},
		{"an ignored file", opts{Path: "a.log"}, "a.log:1", search.GrepStats{Files: 1}},
		{"an ignored directory", opts{Path: "out"}, "out/x:1", search.GrepStats{Files: 1}},
		{"a symlink to a file", opts{Path: "link"}, "link:1", search.GrepStats{Files: 1}},
		{
			"a symlink to a directory",
			opts{Path: "to", Glob: "*.ts"},
			"to/d.ts:1",
			search.GrepStats{Files: 1},
		},
		{"a binary file", opts{Path: "bin"}, "", search.GrepStats{SkippedBinary: 1}},
		{
			"no ignore",
			opts{NoIgnore: true, Glob: "{g,x,a.log}"},
			".git/g:1 a.log:1 out/x:1",
			search.GrepStats{Files: 3},
		},
		{
			"one too many",
			opts{MaxMatches: 2, Glob: "*.go"},
			"b/c.go:1 b/c.go:2",
			search.GrepStats{Files: 2, Truncated: true},
		},
		{
			"just enough",
			opts{MaxMatches: 3, Glob: "*.go"},
			"b/c.go:1 b/c.go:2 b.go:1",
			search.GrepStats{Files: 2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Pattern = "hit"
			got, stats := grepLines(t, fakeEnvironment{d}, tt.opts)
			want := []string{}
			for _, line := range strings.Fields(tt.want) {
				want = append(want, line+":hit")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			tt.stats.Matches = len(want)
			if diff := cmp.Diff(tt.stats, stats); diff != "" {
				t.Error(diff)
			}
		})
	}
	// Every name can be opened, an absolute one too.
	root := filepath.ToSlash(d.root) + "/b"
	lines, _ := grepLines(t, d, search.GrepOptions{Pattern: "hit", Path: root})
	if len(lines) != 5 || lines[0] != root+"/c.go:1:hit" {
		t.Errorf("absolute: %q", lines)
	}
}

func TestGrepErrors(t *testing.T) {
	d := newFakeReader(t, map[string]string{"f": "x", "d/f": "x"})
	d.deny["d/f"] = fs.ErrPermission
	type opts = search.GrepOptions
	bad := search.ErrBadPattern
	for _, tt := range []struct {
		opts search.GrepOptions
		want error
		text string // a part of the message
	}{
		{opts{Pattern: "a(b"}, bad, `missing closing ): "a(b"`},
		{opts{Pattern: "a)", IgnoreCase: true}, bad, `unexpected ): "a)"`},
		{opts{Pattern: "a[z-b]c"}, bad, `"z-b"`},
		{opts{Pattern: "x[a"}, bad, `"[a"`},
		{opts{Pattern: "a**"}, bad, `"**"`},
		{opts{Pattern: `x\8y`}, bad, `"\\8"`},
		{opts{Pattern: "x(?<=y)"}, bad, "(?<=y)"},
		{opts{Pattern: "a{1001}"}, bad, `"{1001}"`},
		{opts{Pattern: `((a{100}){100}){100}`}, bad, ""},
		{opts{Pattern: `\p{Nothing}`}, bad, `range: "\\p{Nothing}"`},
		{opts{Pattern: "\xff"}, bad, "UTF-8"},
		{opts{Pattern: `a(b|c\n)`}, bad, "line ending"},
		{opts{Pattern: "a\nb", Literal: true}, bad, "line ending"},
		{opts{Pattern: "a", Glob: "{a", Path: "missing"}, bad, `"{a"`},
		{opts{Pattern: "a", Exclude: "x/../y"}, bad, `".."`},
		{opts{Pattern: "a", Types: []string{"golang"}}, bad, `"golang"`},
		{opts{Pattern: "a", Path: "missing"}, fs.ErrNotExist, "missing"},
		{opts{Pattern: "a", Path: "a\x00"}, fs.ErrInvalid, ""},
		{opts{Pattern: "a", Path: "d/f"}, fs.ErrPermission, "d/f"},
		{opts{Pattern: "a", Path: "d"}, fs.ErrPermission, "d/f"},
	} {
		t.Run(tt.opts.Pattern+" in "+tt.opts.Path, func(t *testing.T) {
			stats, err := search.Grep(t.Context(), d, tt.opts, func(m search.GrepMatch) error {
				t.Errorf("match %v", m)
				return nil
			})
			if !errors.Is(err, tt.want) || stats != (search.GrepStats{}) {
				t.Fatalf("got %+v, %v", stats, err)
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v does not contain %s", err, tt.text)
			}
			var unreadable *search.UnreadableError
			if got := errors.As(err, &unreadable); got != (tt.opts.Path == "d") {
				t.Errorf("%v is an UnreadableError: %v", err, got)
			}
		})
	}
}

func TestGrepUnreadable(t *testing.T) {
	d := newFakeReader(t, tree("a=hit b=hit c/x=hit d=hit e=hit"))
	d.deny["a"], d.deny["c"], d.deny["d"] = fs.ErrPermission, fs.ErrPermission, fs.ErrNotExist
	var got []string
	stats, err := search.Grep(t.Context(), d, search.GrepOptions{Pattern: "hit"},
		func(m search.GrepMatch) error {
			got = append(got, m.Name)
			return nil
		})
	var unreadable *search.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Count != 2 {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff([]string{"b", "e"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(search.GrepStats{Files: 2, Matches: 2}, stats); diff != "" {
		t.Error(diff)
	}
	d.deny["b"] = env.ErrGone
	_, err = search.Grep(t.Context(), d, search.GrepOptions{Pattern: "hit"},
		func(search.GrepMatch) error { return nil })
	if !errors.Is(err, env.ErrGone) || errors.As(err, &unreadable) {
		t.Errorf("error is %v", err)
	}
}

// otherContent is a file with the content of r.
type otherContent struct {
	fs.File
	r io.Reader
}

func (o otherContent) Read(p []byte) (int, error) { return o.r.Read(p) }

// brokenFile returns an error after its content.
type brokenFile struct {
	*fakeReader
	content string
	err     error
}

func (b brokenFile) Open(ctx context.Context, name string) (fs.File, error) {
	f, err := b.fakeReader.Open(ctx, name)
	if err != nil || path.Base(name) != "broken" {
		return f, err
	}
	return otherContent{f, io.MultiReader(strings.NewReader(b.content), iotest.ErrReader(b.err))}, nil
}

func TestGrepReadError(t *testing.T) {
	d := newFakeReader(t, map[string]string{"broken": "", "z": "hit"})
	for name, content := range map[string]string{
		"at once":         "",
		"in the probe":    "hit",
		"after it":        "hit\n" + strings.Repeat("\n", 10<<10) + "hit",
		"in a long line":  "hit\n" + strings.Repeat("hit", 100<<10),
		"after long line": strings.Repeat("hit", 100<<10) + "\nhit",
	} {
		t.Run(name, func(t *testing.T) {
			e := brokenFile{d, content, errors.New("input/output error")}
			var got []string
			stats, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "hit$"},
				func(m search.GrepMatch) error {
					got = append(got, fmt.Sprintf("%s:%d", m.Name, m.Line))
					return nil
				})
			var unreadable *search.UnreadableError
			if !errors.As(err, &unreadable) || unreadable.Count != 1 || !errors.Is(err, e.err) {
				t.Errorf("error is %v", err)
			}
			want := []string{"z:1"}
			if len(content) > 8<<10 {
				want = []string{"broken:1", "z:1"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if stats.Matches != len(want) {
				t.Errorf("stats are %+v", stats)
			}
			e.err = fs.ErrClosed
			if _, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "q"}, nil); !errors.Is(err,
				fs.ErrClosed) || errors.As(err, &unreadable) {
				t.Errorf("closed: error is %v", err)
			}
		})
	}
}

func TestGrepStops(t *testing.T) {
	d := newFakeReader(t, map[string]string{"a": "hit\nhit", "b": "hit"})
	stop := errors.New("stop")
	for _, end := range []error{stop, fs.SkipAll} {
		for _, at := range []string{"", "a"} {
			calls := 0
			stats, err := search.Grep(t.Context(), d, search.GrepOptions{Pattern: "hit", Path: at},
				func(search.GrepMatch) error {
					calls++
					return end
				})
			if calls != 1 || stats.Matches != 1 || errors.Is(end, stop) != errors.Is(err, stop) ||
				errors.Is(err, fs.SkipAll) {
				t.Errorf("%v in %q: %d calls, %+v, %v", end, at, calls, stats, err)
			}
		}
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	stats, err := search.Grep(ctx, d, search.GrepOptions{Pattern: "hit"},
		func(search.GrepMatch) error {
			cancel(cause)
			return nil
		})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || stats.Matches != 1 {
		t.Errorf("canceled: %+v, %v", stats, err)
	}
}
