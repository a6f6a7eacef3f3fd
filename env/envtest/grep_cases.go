package envtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// grepCases are the cases of the options of a search.
func grepCases() []testCase {
	return []testCase{
		{name: "grep_context", rule: ruleSearch, run: grepContext},
		{name: "grep_context_limits", rule: ruleSearch, run: grepContextLimits},
		{name: "grep_multiline", rule: ruleSearch, run: grepMultiline},
		{name: "grep_multiline_large", rule: ruleSearch, run: grepMultilineLarge},
		{name: "grep_literal", rule: ruleSearch, run: grepLiteral},
		{name: "grep_types", rule: ruleSearch, run: grepTypes},
		{name: "grep_exclude", rule: ruleSearch, run: grepExclude},
		{name: "grep_files", rule: ruleSearch, run: grepFiles},
		{name: "grep_counts", rule: ruleSearch, run: grepCounts},
		{name: "grep_file_limit", rule: ruleSearch, run: grepFileLimit},
		{name: "glob_ignore_case", rule: ruleSearch, run: globIgnoreCase},
	}
}

// grepTree makes the files that the cases search.
func (c *caseT) grepTree() {
	for name, content := range map[string]string{
		"log.txt":          "one\nneedle 1\nthree\nfour\nfive\nneedle 2\nneedle 3\neight",
		"crlf.txt":         "before\r\nneedle\r\nafter\r\n",
		"Makefile":         "needle:\n\ttrue\n",
		"sub/code.go":      "package sub\n\nfunc Needle(\n\ta int, // needle\n) {\n}\n",
		"sub/code_test.go": "package sub // needle\n",
		"sub/view.ts":      "const needle = 1\nneedle(needle)\n",
		"sub/view.tsx":     "<needle a.b(c*>\nneedle axb(c*\n",
	} {
		c.write(c.name(name), content)
	}
}

type grepOptions = search.GrepOptions

// grepCase is a search with its results.
type grepCase struct {
	opts grepOptions
	want []string
	// stats are compared unless they are zero.
	stats search.GrepStats
}

// finds returns a case. Wanted lines that match have colons, others dashes; files have their name,
// and their count.
func finds(opts grepOptions, want ...string) grepCase { return grepCase{opts: opts, want: want} }

func (g grepCase) with(stats search.GrepStats) grepCase {
	g.stats = stats
	return g
}

func (c *caseT) grepAll(
	e env.Environment, opts grepOptions,
) ([]string, search.GrepStats, error) {
	opts.Path = c.name(opts.Path)
	var got []string
	stats, err := search.Grep(c.ctx, e, opts, func(m search.GrepMatch) error {
		name := strings.TrimPrefix(strings.TrimPrefix(m.Name, c.name("")), "/")
		switch {
		case m.Count > 0:
			got = append(got, fmt.Sprintf("%s has %d%s", name, m.Count, m.Text))
		case m.Line == 0:
			got = append(got, name+m.Text)
		case m.Context:
			got = append(got, fmt.Sprintf("%s-%d-%s", name, m.Line, m.Text))
		default:
			got = append(got, fmt.Sprintf("%s:%d:%s", name, m.Line, m.Text))
		}
		return nil
	})
	return got, stats, err
}

// greps searches the tree.
func (c *caseT) greps(cases ...grepCase) {
	c.grepTree()
	c.both(func(what string, e env.Environment) {
		for _, tc := range cases {
			what := fmt.Sprintf("Grep%s of %+v", what, tc.opts)
			got, stats, err := c.grepAll(e, tc.opts)
			c.wantList(what, err, got, tc.want...)
			if tc.stats != (search.GrepStats{}) && stats != tc.stats {
				c.errorf("%s: %+v, want %+v", what, stats, tc.stats)
			}
		}
	})
}

func grepContext(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "needle", Path: "log.txt", Before: 1, After: 1},
			"log.txt-1-one", "log.txt:2:needle 1", "log.txt-3-three", "log.txt-5-five",
			"log.txt:6:needle 2", "log.txt:7:needle 3",
			"log.txt-8-eight").with(search.GrepStats{Files: 1, Matches: 3}),
		finds(grepOptions{Pattern: "needle 2", Path: "log.txt", Before: 2},
			"log.txt-4-four", "log.txt-5-five", "log.txt:6:needle 2"),
		finds(grepOptions{Pattern: "one|needle 3", Path: "log.txt", After: 1},
			"log.txt:1:one", "log.txt-2-needle 1", "log.txt:7:needle 3", "log.txt-8-eight"),
		finds(grepOptions{Pattern: "three", Path: "log.txt", Before: 100, After: 100},
			"log.txt-1-one", "log.txt-2-needle 1", "log.txt:3:three", "log.txt-4-four", "log.txt-5-five",
			"log.txt-6-needle 2", "log.txt-7-needle 3", "log.txt-8-eight"),
		finds(grepOptions{Pattern: "needle", Path: "crlf.txt", Before: 1, After: 1},
			"crlf.txt-1-before", "crlf.txt:2:needle", "crlf.txt-3-after"),
		finds(grepOptions{Pattern: "a int|package sub //|const", Path: "sub", Before: 1, After: 1},
			"sub/code.go-3-func Needle(", "sub/code.go:4:\ta int, // needle", "sub/code.go-5-) {",
			"sub/code_test.go:1:package sub // needle", "sub/view.ts:1:const needle = 1",
			"sub/view.ts-2-needle(needle)").with(search.GrepStats{Files: 4, Matches: 3}),
	)
}

func grepContextLimits(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "needle", Path: "log.txt", Before: 1, After: 1, MaxMatches: 1},
			"log.txt-1-one", "log.txt:2:needle 1",
			"log.txt-3-three").with(search.GrepStats{Files: 1, Matches: 1, Truncated: true}),
		finds(grepOptions{Pattern: "one|five", Path: "log.txt", Before: 3, MaxMatches: 1},
			"log.txt:1:one").with(search.GrepStats{Files: 1, Matches: 1, Truncated: true}),
		finds(grepOptions{Pattern: "needle [23]", Path: "log.txt", After: 2, MaxMatches: 2},
			"log.txt:6:needle 2", "log.txt:7:needle 3",
			"log.txt-8-eight").with(search.GrepStats{Files: 1, Matches: 2}),
	)
}

func grepMultiline(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: `func Needle\([^)]*\)`, Multiline: true},
			"sub/code.go:3:func Needle(", "sub/code.go:4:\ta int, // needle",
			"sub/code.go:5:) {").with(search.GrepStats{Files: 7, Matches: 3}),
		finds(grepOptions{Pattern: `Needle.*int`, Multiline: true, Before: 1, After: 1},
			"sub/code.go-2-", "sub/code.go:3:func Needle(", "sub/code.go:4:\ta int, // needle",
			"sub/code.go-5-) {"),
		finds(grepOptions{Pattern: `^three$`, Multiline: true}, "log.txt:3:three"),
		finds(grepOptions{Pattern: "THREE\nFOUR", Multiline: true, IgnoreCase: true, Literal: true},
			"log.txt:3:three", "log.txt:4:four"),
		finds(grepOptions{Pattern: "needle", Path: "sub/view.ts", Multiline: true},
			"sub/view.ts:1:const needle = 1", "sub/view.ts:2:needle(needle)"),
		finds(grepOptions{Pattern: "four\nfive", Multiline: true, Mode: search.GrepFiles}, "log.txt"),
		finds(grepOptions{Pattern: "no such\ntext", Multiline: true}),
	)
	c.both(func(what string, e env.Environment) {
		_, _, err := c.grepAll(e, grepOptions{Pattern: "four\nfive"})
		c.is("Grep"+what+" line by line for a pattern of two lines", err, search.ErrBadPattern)
	})
}

func grepMultilineLarge(c *caseT) {
	c.write(c.name("large"), strings.Repeat("needle\n", 4<<20/7+1))
	c.write(c.name("small"), "needle\n")
	c.both(func(what string, e env.Environment) {
		got, _, err := c.grepAll(e, grepOptions{Pattern: "needle", Multiline: true})
		var unreadable *search.UnreadableError
		if !errors.As(err, &unreadable) || unreadable.Count != 1 {
			c.errorf("Grep%s for matches of several lines in a file of more than 4 MiB: error %v", what, err)
		}
		c.wantList("Grep"+what+" for matches of several lines", nil, got, "small:1:needle")
	})
}

func grepLiteral(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "a.b(c*", Literal: true}, "sub/view.tsx:1:<needle a.b(c*>"),
		finds(grepOptions{Pattern: "A.B(C*", Literal: true, IgnoreCase: true},
			"sub/view.tsx:1:<needle a.b(c*>"),
		finds(grepOptions{Pattern: "A.B(C*", Literal: true}),
	)
}

func grepTypes(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "needle", Types: []string{"go"}},
			"sub/code.go:4:\ta int, // needle",
			"sub/code_test.go:1:package sub // needle").with(search.GrepStats{Files: 2, Matches: 2}),
		finds(grepOptions{Pattern: "needle", Types: []string{"go", "make"}, Glob: "[!c]*"},
			"Makefile:1:needle:"),
		finds(grepOptions{Pattern: "needle 1", Path: "log.txt", Types: []string{"go"}},
			"log.txt:2:needle 1"),
	)
	c.both(func(what string, e env.Environment) {
		_, _, err := c.grepAll(e, grepOptions{
			Pattern: "needle", Types: []string{"go", "no-such-type"},
		})
		c.is("Grep"+what+" of an unknown type of files", err, search.ErrBadPattern)
	})
}

func grepExclude(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "needle", Exclude: "*_test.go", Types: []string{"go"}},
			"sub/code.go:4:\ta int, // needle"),
		finds(grepOptions{Pattern: "needle$|needle:", Exclude: "sub/**"},
			"Makefile:1:needle:", "crlf.txt:2:needle"),
		finds(grepOptions{Pattern: "needle$|needle:", Exclude: "sub"},
			"Makefile:1:needle:", "crlf.txt:2:needle"),
		finds(grepOptions{Pattern: "const|axb", Glob: "sub/*", Exclude: "*.{tsx,go}"},
			"sub/view.ts:1:const needle = 1"),
	)
	c.both(func(what string, e env.Environment) {
		_, _, err := c.grepAll(e, grepOptions{Pattern: "needle", Exclude: "["})
		c.is("Grep"+what+" with a bad Exclude", err, search.ErrBadPattern)
	})
}

func grepFiles(c *caseT) {
	all := []string{
		"Makefile", "crlf.txt", "log.txt", "sub/code.go", "sub/code_test.go",
		"sub/view.ts", "sub/view.tsx",
	}
	c.greps(
		finds(grepOptions{Pattern: "needle", Mode: search.GrepFiles},
			all...).with(search.GrepStats{Files: 7, Matches: 7}),
		finds(grepOptions{Pattern: "needle", Mode: search.GrepFiles, Before: 2, After: 2, MaxMatches: 7},
			all...).with(search.GrepStats{Files: 7, Matches: 7}),
		finds(grepOptions{
			Pattern: "NEEDLE \\d", IgnoreCase: true, Path: "log.txt", Mode: search.GrepFiles,
		}, "log.txt"),
	)
	c.both(func(what string, e env.Environment) {
		opts := grepOptions{Pattern: "needle", Mode: search.GrepFiles, MaxMatches: 2}
		got, stats, err := c.grepAll(e, opts)
		c.wantList("Grep"+what+" for two files", err, got, all[:2]...)
		if stats.Matches != 2 || !stats.Truncated {
			c.errorf("Grep%s for two files of seven: %+v", what, stats)
		}
	})
}

func grepCounts(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "needle", Mode: search.GrepCounts, Exclude: "*.go"},
			"Makefile has 1", "crlf.txt has 1", "log.txt has 3", "sub/view.ts has 2", "sub/view.tsx has 2"),
		finds(grepOptions{
			Pattern: "needle", Path: "log.txt", Mode: search.GrepCounts, Before: 1, MaxMatches: 1,
		}, "log.txt has 3"),
		finds(grepOptions{Pattern: "needle", Glob: "*.txt", Mode: search.GrepCounts, MaxFileMatches: 2},
			"crlf.txt has 1", "log.txt has 2"),
		finds(grepOptions{Pattern: "no such text", Mode: search.GrepCounts}),
	)
	c.write(c.name("many"), strings.Repeat("needle\nother\n", 50_000))
	c.both(func(what string, e env.Environment) {
		got, _, err := c.grepAll(e, grepOptions{Pattern: "needle", Mode: search.GrepCounts, Path: "many"})
		c.wantList("Grep"+what+" that counts many lines", err, got, "many has 50000")
	})
}

func grepFileLimit(c *caseT) {
	c.greps(
		finds(grepOptions{Pattern: "needle", Glob: "*.{txt,ts}", MaxFileMatches: 1},
			"crlf.txt:2:needle", "log.txt:2:needle 1",
			"sub/view.ts:1:const needle = 1").with(search.GrepStats{Files: 3, Matches: 3}),
		finds(grepOptions{Pattern: "needle", Path: "log.txt", MaxFileMatches: 2, Before: 1, After: 1},
			"log.txt-1-one", "log.txt:2:needle 1", "log.txt-3-three", "log.txt-5-five",
			"log.txt:6:needle 2", "log.txt-7-needle 3"),
		finds(grepOptions{Pattern: "needle", Path: "log.txt", MaxFileMatches: 1, Before: 1},
			"log.txt-1-one", "log.txt:2:needle 1"),
	)
}

func globIgnoreCase(c *caseT) {
	for _, name := range []string{"Read.ME", "Src/Main.GO", "src2/x", "Übung.txt"} {
		c.write(c.name(name), "")
	}
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct {
			pattern string
			want    []string
		}{
			{"rEAD.*", []string{"Read.ME"}},
			{"SRC/*.go", []string{"Src/Main.GO"}},
			{"**/[l-n]ain.[!a-f]o", []string{"Src/Main.GO"}},
			{"übung.TXT", []string{"Übung.txt"}},
			{"readme", nil},
		} {
			got, err := c.glob(e, search.GlobOptions{Pattern: tc.pattern, Dir: c.dir, IgnoreCase: true})
			slices.Sort(got)
			c.wantList(fmt.Sprintf("Glob%s of %s in any case", what, tc.pattern), err, got, tc.want...)
		}
		got, err := c.glob(e, search.GlobOptions{Pattern: "src/*", Dir: c.dir})
		c.wantList("Glob"+what+" where case counts", err, got)
	})
}
