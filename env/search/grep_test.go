package search_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func TestGrepLines(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	tests := []struct {
		name    string
		content string
		opts    search.GrepOptions
		want    []string // line:text
	}{
		{"plain", "one\ntwo\nthree\n", search.GrepOptions{Pattern: "t"}, []string{"2:two", "3:three"}},
		{"no line ending at the end", "a\nb", search.GrepOptions{Pattern: "b$"}, []string{"2:b"}},
		{"an empty file", "", search.GrepOptions{Pattern: ""}, nil},
		{"empty lines", "\n\na\n", search.GrepOptions{Pattern: "^$"}, []string{"1:", "2:"}},
		{"anchors", "ab\nba\n", search.GrepOptions{Pattern: "^a|^b$"}, []string{"1:ab"}},
		{"text anchors", "ab\nba\n", search.GrepOptions{Pattern: `\Ab.*a\z`}, []string{"2:ba"}},
		{"CRLF", "a\r\nb\r\n\r\n", search.GrepOptions{Pattern: "[ab]?$"}, []string{"1:a", "2:b", "3:"}},
		{"a lone carriage return", "a\rb\nc\r", search.GrepOptions{Pattern: "[ac]\r"}, []string{
			"1:a\rb",
			"2:c\r",
		}},
		{"two carriage returns", "a\r\r\n", search.GrepOptions{Pattern: "a\r$"}, []string{"1:a\r"}},
		{
			"case", "Foo\nfoo\nSTRASSE\n",
			search.GrepOptions{Pattern: "FOO", IgnoreCase: true},
			[]string{"1:Foo", "2:foo"},
		},
		{
			"case and alternatives", "Foo\nBar\n",
			search.GrepOptions{Pattern: "foo|bar", IgnoreCase: true},
			[]string{"1:Foo", "2:Bar"},
		},
		{
			"a byte order mark", "\xef\xbb\xbfa\n\xef\xbb\xbfa\n",
			search.GrepOptions{Pattern: "^a"},
			[]string{"1:a"},
		},
		{"invalid UTF-8", "a\xffb\n\xc3\n", search.GrepOptions{Pattern: "a.b|^.$"}, []string{
			"1:a\xffb",
			"2:\xc3",
		}},
		{"unicode", "größe\n", search.GrepOptions{Pattern: `gr\pLße`}, []string{"1:größe"}},
		{"classes do not span lines", "a\nb\n", search.GrepOptions{Pattern: `a\sb|a[^x]b|(?s)a.b`}, nil},
		{"a cut line", "aéé\n", search.GrepOptions{Pattern: "a", MaxLineBytes: 4}, []string{"1:aé…"}},
		{
			"a line of just the limit", "aéé\n",
			search.GrepOptions{Pattern: "a", MaxLineBytes: 5},
			[]string{"1:aéé"},
		},
		{
			"cut invalid bytes", strings.Repeat("\x80", 9),
			search.GrepOptions{Pattern: "", MaxLineBytes: 4},
			[]string{"1:\x80\x80\x80\x80…"},
		},
		{"cut by default", strings.Repeat("é", 300), search.GrepOptions{Pattern: "é"}, []string{"1:" +
			strings.Repeat("é", 250) + "…"}},
		{"a long line, at its start", "a\nb" + long + "\nc\n", search.GrepOptions{
			Pattern:      "^b|^c",
			MaxLineBytes: 3,
		}, []string{"2:bxx…", "3:c"}},
		{"a long line, at its end", "a\n" + long + "b\r\nc\n", search.GrepOptions{
			Pattern:      "xb$|c",
			MaxLineBytes: 3,
		}, []string{"2:xxx…", "3:c"}},
		{"a long line at the end of the file", "a\n" + long + "b", search.GrepOptions{
			Pattern:      "xb$",
			MaxLineBytes: 3,
		}, []string{"2:xxx…"}},
		{
			"a long line that does not match", long + "\n" + long + "\nb\n",
			search.GrepOptions{Pattern: "b"},
			[]string{"3:b"},
		},
		{
			"much of a long line", long,
			search.GrepOptions{Pattern: "x", MaxLineBytes: 1 << 30},
			[]string{"1:" + long[:64<<10] + "…"},
		},
		{
			"NUL after the first 8 KiB", long + "\x00\nb\n",
			search.GrepOptions{Pattern: "b"},
			[]string{"2:b"},
		},
		{
			"all", strings.Repeat("a\n", 150),
			search.GrepOptions{Pattern: "a", MaxMatches: -1},
			numbered(150),
		},
		{
			"the default limit", strings.Repeat("a\n", 150),
			search.GrepOptions{Pattern: "a"},
			numbered(100),
		},
	}
	for _, tt := range tests {
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
				Files: 1, Matches: len(want),
				Truncated: tt.name == "the default limit",
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

// TestGrepPieces moves a line ending and a character across the boundaries of reads.
func TestGrepPieces(t *testing.T) {
	for size := 128<<10 - 4; size < 128<<10+2; size++ {
		content := "€" + strings.Repeat("a", size-3) + "é\r\nb\r\n"
		d := newFakeReader(t, map[string]string{"f": content})
		got, _ := grepLines(t, d, search.GrepOptions{Pattern: "^€a+é$|^b$", MaxLineBytes: 4})
		if diff := cmp.Diff([]string{"f:1:€a…", "f:2:b"}, got); diff != "" {
			t.Errorf("%d bytes: %s", size, diff)
		}
		if got, _ := grepLines(t, d, search.GrepOptions{Pattern: "\r"}); len(got) != 0 {
			t.Errorf("%d bytes: a line ending matches", size)
		}
	}
}

func TestGrepDir(t *testing.T) {
	d := newFakeReader(t, map[string]string{
		".gitignore": "*.log\n/out/", "a.log": "hit", "out/x": "hit", "b.go": "hit", "b/c.go": "hit\nhit",
		"b/d.ts": "hit", "b/e/f.tsx": "hit",
		"bin": "hit\x00", ".hidden": "hit", ".git/g": "hit", "link": "-> b.go", "to": "-> b", "empty": "",
		"b/utf16": "\xff\xfeh\x00i\x00t\x00",
	})
	tests := []struct {
		name  string
		opts  search.GrepOptions
		want  []string
		stats search.GrepStats
	}{
		{
			"everything",
			search.GrepOptions{},
			[]string{
				".hidden:1:hit", "b/c.go:1:hit", "b/c.go:2:hit", "b/d.ts:1:hit", "b/e/f.tsx:1:hit",
				"b/utf16:1:hit", "b.go:1:hit",
			},
			search.GrepStats{Files: 8, Matches: 7, SkippedBinary: 1},
		},
		{"base name", search.GrepOptions{Glob: "*.go"}, []string{
			"b/c.go:1:hit", "b/c.go:2:hit",
			"b.go:1:hit",
		}, search.GrepStats{Files: 2, Matches: 3}},
		{"alternatives", search.GrepOptions{Glob: "*.{ts,tsx}"}, []string{
			"b/d.ts:1:hit",
			"b/e/f.tsx:1:hit",
		}, search.GrepStats{Files: 2, Matches: 2}},
		{
			"whole name",
			search.GrepOptions{Glob: "b/**/*.tsx"},
			[]string{"b/e/f.tsx:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"one of two directories",
			search.GrepOptions{Glob: "{b/e/,missing/}"},
			[]string{"b/e/f.tsx:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"whole name at the top",
			search.GrepOptions{Glob: "./*.go"},
			[]string{"b.go:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"a directory",
			search.GrepOptions{Path: "b", Glob: "e/*"},
			[]string{"b/e/f.tsx:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"a directory with a slash",
			search.GrepOptions{Path: "b/", Glob: "*.ts"},
			[]string{"b/d.ts:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"a file",
			search.GrepOptions{Path: "b/d.ts", Glob: "*.go"},
			[]string{"b/d.ts:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"an ignored file",
			search.GrepOptions{Path: "a.log"},
			[]string{"a.log:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"an ignored directory",
			search.GrepOptions{Path: "out"},
			[]string{"out/x:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"a link to a file",
			search.GrepOptions{Path: "link"},
			[]string{"link:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"a link to a directory",
			search.GrepOptions{Path: "to", Glob: "*.ts"},
			[]string{"to/d.ts:1:hit"},
			search.GrepStats{Files: 1, Matches: 1},
		},
		{
			"a binary file",
			search.GrepOptions{Path: "bin"},
			[]string{},
			search.GrepStats{SkippedBinary: 1},
		},
		{"no ignore", search.GrepOptions{NoIgnore: true, Glob: "{g,x,a.log}"}, []string{
			".git/g:1:hit",
			"a.log:1:hit", "out/x:1:hit",
		}, search.GrepStats{Files: 3, Matches: 3}},
		{"one too many", search.GrepOptions{MaxMatches: 2, Glob: "*.go"}, []string{
			"b/c.go:1:hit",
			"b/c.go:2:hit",
		}, search.GrepStats{Files: 2, Matches: 2, Truncated: true}},
		{"just enough", search.GrepOptions{MaxMatches: 3, Glob: "*.go"}, []string{
			"b/c.go:1:hit",
			"b/c.go:2:hit", "b.go:1:hit",
		}, search.GrepStats{Files: 2, Matches: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Pattern = "hit"
			got, stats := grepLines(t, fakeEnvironment{d}, tt.opts)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
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
	tests := []struct {
		name string
		opts search.GrepOptions
		want error
	}{
		{"an open group", search.GrepOptions{Pattern: "(a"}, search.ErrBadPattern},
		{"a closed group", search.GrepOptions{Pattern: "a)", IgnoreCase: true}, search.ErrBadPattern},
		{"a back reference", search.GrepOptions{Pattern: `(a)\1`}, search.ErrBadPattern},
		{"a look-ahead", search.GrepOptions{Pattern: `(?=a)`}, search.ErrBadPattern},
		{"a huge repeat", search.GrepOptions{Pattern: `((a{100}){100}){100}`}, search.ErrBadPattern},
		{"invalid UTF-8", search.GrepOptions{Pattern: "\xff"}, search.ErrBadPattern},
		{"a line ending", search.GrepOptions{Pattern: `a(b|c\n)`}, search.ErrBadPattern},
		{
			"a bad glob",
			search.GrepOptions{Pattern: "a", Glob: "[", Path: "missing"},
			search.ErrBadPattern,
		},
		{"a missing path", search.GrepOptions{Pattern: "a", Path: "missing"}, fs.ErrNotExist},
		{"a path with NUL", search.GrepOptions{Pattern: "a", Path: "a\x00"}, fs.ErrInvalid},
		{"a closed file", search.GrepOptions{Pattern: "a", Path: "d/f"}, fs.ErrPermission},
		{"a closed file below", search.GrepOptions{Pattern: "a", Path: "d"}, fs.ErrPermission},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stats, err := search.Grep(t.Context(), d, tt.opts, func(m search.GrepMatch) error {
				t.Errorf("match %v", m)
				return nil
			})
			if !errors.Is(err, tt.want) || stats != (search.GrepStats{}) {
				t.Errorf("got %+v, %v", stats, err)
			}
			var unreadable *search.UnreadableError
			if got := errors.As(err, &unreadable); got != (tt.opts.Path == "d") {
				t.Errorf("%v is an UnreadableError: %v", err, got)
			}
		})
	}
}

func TestGrepUnreadable(t *testing.T) {
	d := newFakeReader(t, map[string]string{
		"a": "hit", "b": "hit", "c/x": "hit", "d": "hit",
		"e": "hit",
	})
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

// endless is a file without a line ending or an end. It cancels after a while.
type endless struct {
	*fakeReader
	cancel func()
	read   int
}

func (e *endless) Open(ctx context.Context, name string) (fs.File, error) {
	f, err := e.fakeReader.Open(ctx, name)
	return otherContent{f, e}, err
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	if e.read += len(p); e.read > 16<<20 {
		e.cancel()
	}
	return len(p), nil
}

// TestGrepLongLineMemory searches a line of 16 MiB, until the context ends.
func TestGrepLongLineMemory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := &endless{fakeReader: newFakeReader(t, map[string]string{"f": ""}), cancel: cancel}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := search.Grep(ctx, e, search.GrepOptions{Pattern: "b"}, nil)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes of memory for a line of %d", grown, e.read)
	}
}

// TestGrepAgainstSplit compares with a search of the whole content line by line.
func TestGrepAgainstSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b", "\n", "\r\n", "\r", "é", "\xff", "ab", "\xc3", " ", "\n"}
	patterns := []string{
		"a", "^", "$", "a$", "^b", `\bab\b`, "[^a]$", ".", "^.?$", "é|b\r",
		"(a|b)+ab", `^\s`,
	}
	for range 150 {
		var s strings.Builder
		for range r.IntN(80) {
			s.WriteString(pieces[r.IntN(len(pieces))])
			if r.IntN(150) == 0 {
				s.WriteString(strings.Repeat(pieces[r.IntN(2)], 128<<10-r.IntN(4)))
			}
		}
		content, pattern := s.String(), patterns[r.IntN(len(patterns))]
		d := newFakeReader(t, map[string]string{"f": content})
		re := regexp.MustCompile(pattern)
		want := []string{}
		for i, line := range strings.Split(strings.TrimSuffix(content, "\n"), "\n") {
			if i < strings.Count(content, "\n") {
				line = strings.TrimSuffix(line, "\r")
			}
			if content == "" || !re.MatchString(line) {
				continue
			}
			if len(line) > 40 {
				end := 40
				for !utf8.RuneStart(line[end]) {
					end--
				}
				line = line[:end] + "…"
			}
			want = append(want, fmt.Sprintf("f:%d:%s", i+1, line))
		}
		got, _ := grepLines(t, d, search.GrepOptions{Pattern: pattern, MaxLineBytes: 40, MaxMatches: -1})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %.3000s", pattern, diff)
		}
	}
}
