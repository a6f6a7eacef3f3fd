package search_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func TestGlobPatterns(t *testing.T) {
	d := newFakeReader(t, tree("a.go b.txt .hidden.go src/c.go src/x/d.go src/x/y/e.ts lib/f.tsx "+
		"lib/{g} lib/[h] src/go/ .gitignore=*.log a.log é.go -n .git/i.go"))
	tests := []struct {
		pattern string
		want    []string
	}{
		{"*.go", []string{".hidden.go", "a.go", "é.go"}},
		{"**/*.go", []string{".hidden.go", "a.go", "src/c.go", "src/x/d.go", "é.go"}},
		{"./**/*.go", []string{".hidden.go", "a.go", "src/c.go", "src/x/d.go", "é.go"}},
		{".//a.go", []string{"a.go"}},
		{"src//c.go", []string{"src/c.go"}},
		{"src/./x//.//d.go", []string{"src/x/d.go"}},
		{"src/**", []string{"src/c.go", "src/x/d.go", "src/x/y/e.ts"}},
		{"src/**/*", []string{"src/c.go", "src/x/d.go", "src/x/y/e.ts"}},
		{"src/*", []string{"src/c.go"}},
		{"*/*", []string{"lib/[h]", "lib/f.tsx", "lib/{g}", "src/c.go"}},
		{"**/x/**/*.ts", []string{"src/x/y/e.ts"}},
		{"{src,lib}/**/*.{ts,tsx}", []string{"lib/f.tsx", "src/x/y/e.ts"}},
		{"{a.go,src/{c,q}.go,{lib/f,q}.tsx}", []string{"a.go", "lib/f.tsx", "src/c.go"}},
		{"[ab].*", []string{"a.go", "b.txt"}},
		{"[!a].*", []string{"b.txt", "é.go"}},
		{"?.go", []string{"a.go", "é.go"}},
		{"{[,a].go,b.txt}", []string{"a.go", "b.txt"}},
		{"src[!x]c.go", []string{}},
		{"**/src[!x]c.go", []string{}},
		{"src**/c.go", []string{"src/c.go"}},
		{"**c.go", []string{}},
		{`**a**.**go***`, []string{"a.go"}},
		{"b[**.]***", []string{"b.txt"}},
		{"**/**/c.go", []string{"src/c.go"}},
		{"**/src/**/x/*", []string{"src/x/d.go"}},
		{"a.go/**", []string{}},
		{"**/a.go/**", []string{}},
		{"src/*/**", []string{"src/x/d.go", "src/x/y/e.ts"}},
		{`lib/\{g\}`, []string{"lib/{g}"}},
		{`lib/[{]g[}]`, []string{"lib/{g}"}},
		{`lib/\[h\]`, []string{"lib/[h]"}},
		{"*.log", []string{}},
		{"**/i.go", []string{}},
		{"src", []string{}},
		{"-n", []string{"-n"}},
		{"nothing/**", []string{}},
		{"SRC/*", []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			got := globNames(t, d, search.GlobOptions{Pattern: tt.pattern})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	got := globNames(t, d, search.GlobOptions{Pattern: "**", Dir: "src/x"})
	if diff := cmp.Diff([]string{"d.go", "y/e.ts"}, got); diff != "" {
		t.Error("a directory: ", diff)
	}
	got = globNames(t, d, search.GlobOptions{Pattern: "**/i.go", NoIgnore: true})
	if diff := cmp.Diff([]string{".git/i.go"}, got); diff != "" {
		t.Error("no ignore: ", diff)
	}
}

func TestGlobIgnoreCase(t *testing.T) {
	d := newFakeReader(t, map[string]string{
		"Read.ME": "", "Src/Main.GO": "", "Src/x/Y.go": "", "ÄB.txt": "", "\u212aelvin": "",
		"σ_ς_Σ": "", "-": "", "a]": "", "xAyAz": "", "ß": "",
	})
	for pattern, want := range map[string][]string{
		"read.me":           {"Read.ME"},
		"READ*":             {"Read.ME"},
		"src/**/*.go":       {"Src/Main.GO", "Src/x/Y.go"},
		"SRC/X/?.GO":        {"Src/x/Y.go"},
		"{SRC,nothing}/*":   {"Src/Main.GO"},
		"**/main.*":         {"Src/Main.GO"},
		"äb.TXT":            {"ÄB.txt"},
		"kelvin":            {"\u212aelvin"},
		"Σ_ς_σ":             {"σ_ς_Σ"},
		"SS":                {}, // not one letter
		"[q-s]ead.me":       {"Read.ME"},
		"[Q-S]ead.me":       {"Read.ME"},
		"[!r]ead.me":        {},
		"[^a-q]ead.me":      {"Read.ME"},
		"[^a-z]*":           {"-", "ÄB.txt", "ß", "σ_ς_Σ"},
		"[[\\-]":            {"-"},
		`A\]`:               {"a]"},
		`?[\]]`:             {"a]"},
		"[a-]*":             {"-", "a]"},
		"x*a*a*Z":           {"xAyAz"},
		"x*a*a*a*z":         {},
		"*Y*":               {"xAyAz"},
		"Src/**/Nothing/**": {},
	} {
		got := globNames(t, d, search.GlobOptions{Pattern: pattern, IgnoreCase: true})
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", pattern, diff)
		}
	}
	if got := globNames(t, d, search.GlobOptions{Pattern: "read.me"}); len(got) != 0 {
		t.Errorf("without IgnoreCase: %q", got)
	}
	d.calls = nil
	globNames(t, d, search.GlobOptions{Pattern: "sRC/*", IgnoreCase: true})
	if diff := cmp.Diff([]string{"readdir .", "readdir Src"}, d.calls); diff != "" {
		t.Error("directories in which nothing can match: ", diff)
	}
}

func TestGlobOrder(t *testing.T) {
	d := newFakeReader(t, tree("old=1 b=22 a=333 d/a=4444 new=55555"))
	d.touch("old", 1)
	d.touch("b", 5)
	d.touch("a", 5)
	d.touch("d/a", 5)
	d.touch("new", 9)
	entries, err := search.Glob(t.Context(), d, search.GlobOptions{Pattern: "**"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%s %d %d %v", e.Name, e.Size, e.ModTime.Second(),
			e.Mode.IsRegular()))
	}
	want := []string{"new 5 9 true", "a 3 5 true", "b 2 5 true", "d/a 4 5 true", "old 1 1 true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	limited := globNames(t, d, search.GlobOptions{Pattern: "**", Limit: 2})
	if diff := cmp.Diff([]string{"new", "a"}, limited); diff != "" {
		t.Error(diff)
	}
}

func TestGlobSymlinks(t *testing.T) {
	d := newFakeReader(t, tree("f d/g to-f=>f to-d=>d to-itself=>to-itself to-nothing=>x"))
	got := globNames(t, d, search.GlobOptions{Pattern: "**"})
	slices.Sort(got)
	if diff := cmp.Diff([]string{"d/g", "f", "to-f"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestGlobErrors(t *testing.T) {
	d := newFakeReader(t, map[string]string{"file": ""})
	tests := []struct {
		pattern, dir string
		want         error
	}{
		{"[", "", search.ErrBadPattern},
		{"[]", "", search.ErrBadPattern},
		{"{a", "", search.ErrBadPattern},
		{"a}", "", search.ErrBadPattern},
		{`a\`, "", search.ErrBadPattern},
		{"{[,a}", "", search.ErrBadPattern},
		{"[a/b]", "", search.ErrBadPattern},
		{`a\/b`, "", search.ErrBadPattern},
		{"", "", search.ErrBadPattern},
		{"./", "", search.ErrBadPattern},
		{"directory/", "", search.ErrBadPattern},
		{"{,a}", "", search.ErrBadPattern},
		{"{a/,file}", "", search.ErrBadPattern},
		{"/etc/*", "", search.ErrBadPattern},
		{"{a,/etc}/*", "", search.ErrBadPattern},
		{"C:/*", "", search.ErrBadPattern},
		{"a/../b", "", search.ErrBadPattern},
		{"{.,}./b", "", search.ErrBadPattern},
		{strings.Repeat("a", 5000), "", search.ErrBadPattern},
		{strings.Repeat("{a,b}", 20), "", search.ErrBadPattern},
		{strings.Repeat("{a,b}", 9) + strings.Repeat("{a}", 1340), "", search.ErrBadPattern},
		{"[", "missing", search.ErrBadPattern},
		{"*", "missing", fs.ErrNotExist},
		{"*", "file", env.ErrNotDir},
		{"*", "\x00", fs.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%.20q in %q", tt.pattern, tt.dir), func(t *testing.T) {
			entries, err := search.Glob(t.Context(), d, search.GlobOptions{Pattern: tt.pattern, Dir: tt.dir})
			if !errors.Is(err, tt.want) || entries != nil {
				t.Errorf("got %v, %v", entries, err)
			}
			if errors.Is(tt.want, search.ErrBadPattern) && !errors.Is(err, path.ErrBadPattern) {
				t.Errorf("%v does not wrap path.ErrBadPattern", err)
			}
		})
	}
}

func TestGlobUnreadable(t *testing.T) {
	d := newFakeReader(t, map[string]string{"a/x": "", "b/x": "", "c/x": "", "d/x": ""})
	d.deny["a"], d.deny["c"], d.deny["d"] = fs.ErrPermission, errors.New("input/output error"),
		fs.ErrNotExist
	entries, err := search.Glob(t.Context(), d, search.GlobOptions{Pattern: "**"})
	if len(entries) != 1 || entries[0].Name != "b/x" {
		t.Errorf("got %v", entries)
	}
	var unreadable *search.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Count != 2 || !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("error is %v", err)
	}
	if !strings.HasSuffix(err.Error(), "(and 1 more could not be read)") {
		t.Errorf("error is %v", err)
	}
	d.deny["b"] = fs.ErrClosed
	entries, err = search.Glob(t.Context(), d, search.GlobOptions{Pattern: "**"})
	if !errors.Is(err, fs.ErrClosed) || entries != nil {
		t.Errorf("closed: got %v, %v", entries, err)
	}
}

// TestGlobCost: Glob lists no directory in which nothing can match.
func TestGlobCost(t *testing.T) {
	for pattern, want := range map[string]string{
		"*":               ".",
		"a/b/**":          ". a a/b a/b/c",
		"a/b/c/d":         ". a a/b a/b/c",
		"*/*":             ". a q",
		"{q,a/b}/*/{x,y}": ". a a/b a/b/c q q/r",
		"?/b/*/d":         ". a a/b a/b/c q",
		"a/**/q":          ". a a/b a/b/c a/x a/x/y",
	} {
		d := newFakeReader(t, tree("a/b/c/d a/x/y/z q/r/s"))
		globNames(t, d, search.GlobOptions{Pattern: pattern})
		var calls []string
		for _, dir := range strings.Fields(want) {
			calls = append(calls, "readdir "+dir)
		}
		if diff := cmp.Diff(calls, d.calls); diff != "" {
			t.Errorf("%s: %s", pattern, diff)
		}
	}
}

func TestGlobCanceled(t *testing.T) {
	d := newFakeReader(t, map[string]string{"a/b": "", "c": ""})
	ctx, cancel := context.WithCancel(t.Context())
	d.after = func(call string) {
		if call == "readdir a" {
			cancel()
		}
	}
	entries, err := search.Glob(ctx, d, search.GlobOptions{Pattern: "**"})
	if !errors.Is(err, context.Canceled) || entries != nil {
		t.Errorf("got %v, %v", entries, err)
	}
}

// mapReader lists directories of a map.
type mapReader struct {
	env.FileReader
	files fstest.MapFS
}

func (m mapReader) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	return m.files.ReadDir(name)
}

// TestGlobLimit: Glob returns the newest of many files, and with a small limit holds few of them.
func TestGlobLimit(t *testing.T) {
	const files = 20_000
	d := mapReader{files: fstest.MapFS{}}
	for i := range files {
		at := time.Unix(int64(i)*7919%1_000_003, 0)
		d.files[fmt.Sprintf("%06d", i)] = &fstest.MapFile{ModTime: at}
	}
	opts := search.GlobOptions{Pattern: "*", NoIgnore: true}
	all, err := search.Glob(t.Context(), d, opts)
	if err != nil || len(all) != files {
		t.Fatalf("%d files, error %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b search.Entry) int { return b.ModTime.Compare(a.ModTime) }) {
		t.Error("they are not in order")
	}
	for _, limit := range []int{1, 100, 1000, files - 1, files, math.MaxInt} {
		opts.Limit = limit
		got, err := search.Glob(t.Context(), d, opts)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all[:min(limit, len(all))], got); diff != "" {
			t.Errorf("limit %d: %.500s", limit, diff)
		}
		if limit <= 1000 && cap(got) > 4000 {
			t.Errorf("limit %d: as many as %d were held", limit, cap(got))
		}
	}
}

// FuzzGlob compares with a regular expression, for patterns that are simple to translate.
func FuzzGlob(f *testing.F) {
	f.Add("**/*.go", "a/b.go")
	f.Add("{a,b/{c,d}}/[!x]*", "b/c/y")
	f.Add(`\{a\,b}`, "{a,b}")
	f.Add("a{b", "ab")
	f.Add("{b}[!/}]", "b")
	f.Add("[{]}", "{}")
	f.Add("a/**", "a")
	f.Add("?*/**/B*{c,D}", "Ä/aa/bxc")
	f.Add("a/**/{b*,c?/d}", "a/x/cd/d")
	hard := regexp.MustCompile(`[\[\\]|\*\*[{},]|[{},]\*\*|//|/$|/[,{}]|[,{}]/|/\.|^\.`)
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !fs.ValidPath(name) || name == "." || len(name) > 100 || len(pattern) > 100 ||
			!utf8.ValidString(pattern) || !utf8.ValidString(name) {
			t.Skip("not a name, or nothing to learn from it")
		}
		opts := search.GlobOptions{Pattern: pattern, NoIgnore: true, IgnoreCase: len(name)%2 == 0}
		entries, err := search.Glob(t.Context(), mapReader{files: fstest.MapFS{name: {}}}, opts)
		if err != nil {
			if !errors.Is(err, search.ErrBadPattern) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		if hard.MatchString(pattern) {
			return
		}
		expr := globExpr(pattern)
		if opts.IgnoreCase {
			expr = "(?i)" + expr
		}
		if got, want := len(entries) == 1, regexp.MustCompile(expr).MatchString(name); got != want {
			t.Errorf("%q on %q: got %v, want %v by %s", pattern, name, got, want, expr)
		}
	})
}

// globExpr translates a pattern without classes and quotes to a regular expression.
func globExpr(pattern string) string {
	expr := "(?s)^(?:"
	depth := 0
	for i := 0; i < len(pattern); {
		rest := pattern[i:]
		start := i == 0 || pattern[i-1] == '/'
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case start && strings.HasPrefix(rest, "**/"):
			expr, size = expr+"(?:[^/]+/)*", 3
		case start && rest == "**":
			expr, size = expr+".+", 2
		case r == '*':
			expr += "[^/]*"
		case r == '?':
			expr += "[^/]"
		case r == '{':
			expr, depth = expr+"(?:", depth+1
		case r == '}':
			expr, depth = expr+")", depth-1
		case r == ',' && depth > 0:
			expr += "|"
		default:
			expr += regexp.QuoteMeta(rest[:size])
		}
		i += size
	}
	return expr + ")$"
}
