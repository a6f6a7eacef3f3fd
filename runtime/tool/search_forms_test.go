package tool

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"
)

// formsTree has files for the variants of grep and glob.
func formsTree() *memory {
	return newMemory(map[string]string{
		"log":           "one\nneedle 1\nthree\nfour\nfive\nneedle 2\nneedle 3\neight\n",
		"sub/a.go":      "// needle a.b\nfunc F(\n\tx int,\n) {}\n",
		"sub/a_test.go": "// needle aXb\n",
		"sub/v.ts":      "needle\n",
		"sub/w.ts":      "first\nlast\n",
		"out/x":         "needle out\n", ".gitignore": "out/\n",
		"large": strings.Repeat("no match\n", 500_000),
	})
}

func TestAnthropicGrep(t *testing.T) {
	all := "log:2:needle 1\nlog:6:needle 2\nlog:7:needle 3\nsub/a.go:1:// needle " +
		"a.b\nsub/a_test.go:1:// needle aXb\nsub/v.ts:1:needle\n"
	lines := strings.SplitAfter(all, "\n")
	more := func(n, offset int) string {
		return fmt.Sprintf("[stopped after %d results, more match: narrow the pattern or the "+
			"path, or go on with offset %d]\n", n, offset)
	}
	checkCalls(t, AnthropicGrep(), formsTree(), []callCase{
		{"lines by default", `{"pattern": "needle"}`, "", all},
		{"all", `{"pattern": "needle", "head_limit": 0}`, "", all},
		{
			"native names", `{"pattern": "NEEDLE A", "glob": "*.go", "-i": true, "head_limit": 1}`, "",
			lines[3] + more(1, 1),
		},
		{
			"around", `{"pattern": "needle [12]", "path": "log", "-C": 1}`, "",
			"log-1-one\nlog:2:needle 1\nlog-3-three\n--\nlog-5-five\nlog:6:needle 2\nlog-7-needle 3\n",
		},
		{
			"context for around", `{"pattern": "one", "path": "log", "context": 1}`, "",
			"log:1:one\nlog-2-needle 1\n",
		},
		{
			"groups that touch", `{"pattern": "needle [12]", "path": "log", "-A": 1, "-B": 2}`, "",
			"log-1-one\nlog:2:needle 1\nlog-3-three\nlog-4-four\nlog-5-five\nlog:6:needle " +
				"2\nlog-7-needle 3\n",
		},
		{"before", `{"pattern": "three", "path": "log", "-B": 1}`, "", "log-2-needle 1\nlog:3:three\n"},
		{
			"after, in several files",
			`{"pattern": "needle (3|a)", "-A": 1, "glob_filter": "{log,*.go}"}`,
			"", "log:7:needle 3\nlog-8-eight\n--\nsub/a.go:1:// needle a.b\nsub/a.go-2-func " +
				"F(\n--\nsub/a_test.go:1:// needle aXb\n",
		},
		{
			"groups of several files whose numbers follow each other",
			`{"pattern": "^needle$|^last$", "-A": 1}`, "", "sub/v.ts:1:needle\n--\nsub/w.ts:2:last\n",
		},
		{
			"no numbers", `{"pattern": "needle 2", "path": "log", "-n": false, "-B": 1}`, "",
			"log-five\nlog:needle 2\n",
		},
		{"numbers", `{"pattern": "needle 2", "path": "log", "-n": true}`, "", "log:6:needle 2\n"},
		{
			"no separators without lines around", `{"pattern": "one|eight", "path": "log", "-C": 0}`, "",
			"log:1:one\nlog:8:eight\n",
		},
		{"type", `{"pattern": "needle", "type": "ts"}`, "", lines[5]},
		{
			"several lines", `{"pattern": "F\\(.*int", "multiline": true, "path": "sub"}`, "",
			"sub/a.go:2:func F(\nsub/a.go:3:\tx int,\n",
		},
		{"offset", `{"pattern": "needle", "offset": 4}`, "", lines[4] + lines[5]},
		{"offset and limit", `{"pattern": "needle", "offset": 1, "head_limit": 2}`, "", lines[1] +
			lines[2] + more(2, 3)},
		{
			"offset at the end", `{"pattern": "needle", "offset": 6}`, "",
			"[6 results match, and offset leaves out 6]\n",
		},
		{
			"offset of nothing", `{"pattern": "nothing", "path": "sub", "offset": 6}`, "",
			"[no matches in 4 files]\n",
		},
		{
			"offset with lines around", `{"pattern": "needle", "path": "log", "offset": 2, "-C": 2}`, "",
			"log-5-five\nlog-6-needle 2\nlog:7:needle 3\nlog-8-eight\n",
		},
		{
			"offset with lines after", `{"pattern": "needle", "path": "log", "offset": 1, "-A": 1}`, "",
			"log:6:needle 2\nlog:7:needle 3\nlog-8-eight\n",
		},
		{
			"offset with lines before in another file",
			`{"pattern": "needle", "offset": 3, "-B": 9, "head_limit": 1}`, "", lines[3] + more(1, 4),
		},
		{
			"files",
			`{"pattern": "needle", "output_mode": "files_with_matches", "offset": 1, "head_limit": 2, ` +
				`"-n": false}`,
			"", "sub/a.go\nsub/a_test.go\n" + more(2, 3),
		},
		{
			"counts", `{"pattern": "needle", "output_mode": "count", "offset": 0, "head_limit": 2}`, "",
			"log:3\nsub/a.go:1\n" + more(2, 2),
		},
		{
			"counts from the second", `{"pattern": "needle", "output_mode": "count", "offset": 3}`, "",
			"sub/v.ts:1\n",
		},
		{"around the names of files", `{"pattern": "needle", "output_mode": "files_with_matches", ` +
			`"-C": 1}`, KindValidation, "lines around matches can only be shown with the matching lines, " +
			"but the output is files_with_matches; leave them out, or use output_mode content"},
		{
			"around in two ways", `{"pattern": "x", "-C": 1, "-A": 2}`, KindValidation,
			"-C 1 and -A 2 contradict each other; give -C alone, or -B and -A",
		},
		{
			"around in the same way", `{"pattern": "one", "path": "log", "-C": 1, "-A": 1}`, "",
			"log:1:one\nlog-2-needle 1\n",
		},
		{
			"two names of one parameter", `{"pattern": "x", "glob": "*", "glob_filter": "*.go"}`,
			KindValidation, "the arguments do not fit grep:\n- additional properties 'glob' not allowed",
		},
		{
			"wrong types", `{"pattern": "x", "-A": "3", "multiline": 1, "offset": -1}`, KindValidation,
			"the arguments do not fit grep:\n- -A: got string, want integer\n- multiline: got number, " +
				"want boolean\n- offset: minimum: got -1, want 0",
		},
		{
			"Gemini's names", `{"pattern": "x", "names_only": true}`, KindValidation,
			"the arguments do not fit grep:\n- additional properties 'names_only' not allowed",
		},
		{
			"too large for several lines", `{"pattern": "needle", "multiline": true, "path": "large"}`,
			KindOther, "read large: the file has more than 4 MiB, too many for a multiline search",
		},
	})
	checkCalls(t, AnthropicGrep(), newMemory(map[string]string{"n": strings.Repeat("x\n", 150)}),
		[]callCase{
			{"no limit", `{"pattern": "x", "head_limit": 0, "offset": 149}`, "", "n:150:x\n"},
			{"the usual limit", `{"pattern": "x", "offset": 49, "-n": false}`, "", strings.Repeat("n:x\n",
				100) + more(100, 149)},
		})
	o := registry(t, AnthropicGrep()).Run(t.Context(), Scope{Env: formsTree()}, call(t, "grep",
		`{"pattern": "x", "type": "golang"}`))
	if text := o.Result.Text(); kind(o) != KindValidation || !strings.HasPrefix(text,
		"unknown type of files golang; use glob_filter, or one of these: ada, ") ||
		!strings.Contains(text, ", go, ") {
		t.Errorf("%s: %s", kind(o), text)
	}
}

func TestGeminiGrep(t *testing.T) {
	const more = "[stopped after 2 results, more match: narrow the pattern or the path, or " +
		"raise max_results]\n"
	checkCalls(t, GeminiGrep(), formsTree(), []callCase{
		{
			"native names",
			`{"pattern": "needle", "dir_path": "sub", "include_pattern": "*.{go,ts}", ` +
				`"exclude_pattern": "*_test.go", "total_max_matches": 2}`,
			"", "sub/a.go:1:// needle a.b\nsub/v.ts:1:needle\n",
		},
		{
			"more than allowed", `{"pattern": "needle", "total_max_matches": 2}`, "",
			"log:2:needle 1\nlog:6:needle 2\n" + more,
		},
		{
			"names", `{"pattern": "needle", "names_only": true, "path": "sub"}`, "",
			"sub/a.go\nsub/a_test.go\nsub/v.ts\n",
		},
		{
			"names in two ways",
			`{"pattern": "needle 1", "names_only": true, "output_mode": "files_with_matches"}`, "", "log\n",
		},
		{
			"no names", `{"pattern": "needle 1", "names_only": false, "output_mode": "count"}`, "",
			"log:1\n",
		},
		{"case counts", `{"pattern": "NEEDLE 1", "path": "log"}`, "", "[no matches in 1 files]\n"},
		{
			"case does not count", `{"pattern": "NEEDLE 1", "case_sensitive": false}`, "",
			"log:2:needle 1\n",
		},
		{"nor does it so", `{"pattern": "NEEDLE 1", "case_insensitive": true}`, "", "log:2:needle 1\n"},
		{
			"case in both ways",
			`{"pattern": "NEEDLE 1", "case_insensitive": true, "case_sensitive": false}`, "",
			"log:2:needle 1\n",
		},
		{"a text", `{"pattern": "a.b", "fixed_strings": true}`, "", "sub/a.go:1:// needle a.b\n"},
		{
			"no text", `{"pattern": "a.b", "fixed_strings": false}`, "",
			"sub/a.go:1:// needle a.b\nsub/a_test.go:1:// needle aXb\n",
		},
		{
			"around", `{"pattern": "four", "path": "log", "context": 1}`, "",
			"log-3-three\nlog:4:four\nlog-5-five\n",
		},
		{
			"before and after", `{"pattern": "four", "path": "log", "before": 2, "after": 1}`, "",
			"log-2-needle 1\nlog-3-three\nlog:4:four\nlog-5-five\n",
		},
		{"ignored", `{"pattern": "needle out", "no_ignore": true}`, "", "out/x:1:needle out\n"},
		{"not ignored", `{"pattern": "needle o", "path": "."}`, "", "[no matches in 7 files]\n"},
		{
			"a limit for files",
			`{"pattern": "needle", "max_matches_per_file": 1, "exclude_pattern": "sub/**"}`, "",
			"log:2:needle 1\n",
		},
		{
			"context and before", `{"pattern": "x", "context": 3, "before": 1}`, KindValidation,
			"context 3 and before 1 contradict each other; give context alone, or before and after",
		},
		{
			"names and lines", `{"pattern": "x", "names_only": true, "output_mode": "content"}`,
			KindValidation, "names_only and output_mode content contradict each other; give one of them",
		},
		{
			"names and lines around", `{"pattern": "x", "names_only": true, "after": 1}`, KindValidation,
			"lines around matches can only be shown with the matching lines, but the output is " +
				"files_with_matches; leave them out, or use output_mode content",
		},
		{
			"contradicting cases",
			`{"pattern": "x", "case_insensitive": true, "case_sensitive": true}`,
			KindValidation, "case_sensitive and case_insensitive are both true, which contradict each " +
				"other; give one of them",
		},
		{
			"bad pattern of what to leave out", `{"pattern": "x", "exclude_pattern": "[a"}`, KindValidation,
			`the pattern is malformed: grep: glob "[a": syntax error in pattern`,
		},
		{
			"no matches of a file", `{"pattern": "x", "max_matches_per_file": 0}`, KindValidation,
			"the arguments do not fit grep:\n- max_matches_per_file: minimum: got 0, want 1",
		},
	})
}

// The core has no parameters of one provider.
func TestGrepIsStrict(t *testing.T) {
	for _, name := range []string{"-C", "glob", "dir_path", "context", "offset"} {
		if o := use(t, formsTree(), "grep", args{"pattern": "x", name: 1}); kind(o) != KindValidation ||
			!strings.Contains(o.Result.Text(), name) {
			t.Errorf("%s: %s", name, o.Result.Text())
		}
	}
}

// Whole outputs of earlier calls are searched as files are.
func TestGrepOutputs(t *testing.T) {
	outputs := func(id string) (io.ReadCloser, error) {
		if id != "c1" {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(bytes.NewReader([]byte("a\x1b[1mb\nneedle\nc\nneedle\n"))), nil
	}
	for _, tt := range []struct {
		tool Tool
		args args
		want string
	}{
		{
			AnthropicGrep(),
			args{"pattern": "needle", "path": "output://c1", "-B": 1, "head_limit": 1},
			"output://c1-1-ab\noutput://c1:2:needle\n[stopped after 1 results, more match: narrow " +
				"the pattern or the path, or go on with offset 1]\n",
		},
		{
			AnthropicGrep(),
			args{"pattern": "b.needle", "path": "output://c1", "multiline": true},
			"output://c1:1:ab\noutput://c1:2:needle\n",
		},
		{AnthropicGrep(), args{
			"pattern": "needle", "path": "output://c1", "type": "go",
			"output_mode": "count",
		}, "output://c1:2\n"},
		{
			GeminiGrep(),
			args{"pattern": "needle", "dir_path": "output://c1", "names_only": true},
			"output://c1\n",
		},
	} {
		o := registry(t, tt.tool).Run(t.Context(), Scope{Env: formsTree(), Outputs: outputs},
			call(t, "grep", tt.args))
		checkText(t, o, "", tt.want)
	}
}

func TestGeminiGlob(t *testing.T) {
	m := newMemory(map[string]string{
		"A.Go": "", "sub/b.go": "", "out/c.go": "", ".gitignore": "out/\n",
	})
	for name, age := range map[string]time.Duration{"A.Go": 3, "sub/b.go": 1, "out/c.go": 2} {
		m.nodes["/work/"+name].time = time.Unix(1e9, 0).Add(-age * time.Hour)
	}
	checkCalls(t, GeminiGlob(), m, []callCase{
		{"case does not count", `{"pattern": "**/*.GO"}`, "", "sub/b.go\nA.Go\n"},
		{"case counts", `{"pattern": "**/*.go", "case_sensitive": true}`, "", "sub/b.go\n"},
		{"a directory", `{"pattern": "B.*", "dir_path": "sub"}`, "", "sub/b.go\n"},
		{
			"ignored", `{"pattern": "**/*.go", "respect_git_ignore": false}`, "",
			"sub/b.go\nout/c.go\nA.Go\n",
		},
		{"not ignored", `{"pattern": "**/c.go", "respect_git_ignore": true}`, "", "[no files match]\n"},
		{
			"wrong type", `{"pattern": "x", "case_sensitive": "yes"}`, KindValidation,
			"the arguments do not fit glob:\n- case_sensitive: got string, want boolean",
		},
	})
	checkCalls(t, Glob(), m, []callCase{
		{"case counts in the core", `{"pattern": "**/*.go"}`, "", "sub/b.go\n"},
		{
			"the core is strict", `{"pattern": "*", "dir_path": "sub"}`, KindValidation,
			"the arguments do not fit glob:\n- additional properties 'dir_path' not allowed",
		},
	})
}

func TestAnthropicGlob(t *testing.T) {
	files := map[string]string{}
	for i := range 101 {
		files[fmt.Sprintf("f%03d", i)] = ""
	}
	m := newMemory(files)
	for i := range 101 {
		m.nodes[fmt.Sprintf("/work/f%03d", i)].time = time.Unix(int64(i), 0)
	}
	newest := func(from, to int) string {
		var list strings.Builder
		for i := from; i >= to; i-- {
			_, _ = fmt.Fprintf(&list, "f%03d\n", i)
		}
		return list.String()
	}
	checkCalls(t, AnthropicGlob(), m, []callCase{
		{"one too many", `{"pattern": "f*"}`, "", newest(100, 1) +
			"[these are the 100 newest files, more match: narrow the pattern or the path]\n"},
		{"just enough", `{"pattern": "f0*"}`, "", newest(99, 0)},
		{"case counts", `{"pattern": "F09*"}`, "", "[no files match]\n"},
	})
	if o := registry(t, Glob()).Run(t.Context(), Scope{Env: m}, call(t, "glob",
		`{"pattern": "f*"}`)); strings.Count(o.Result.Text(), "\n") != 101 {
		t.Errorf("the core shows %d files of 101", strings.Count(o.Result.Text(), "\n"))
	}
}
