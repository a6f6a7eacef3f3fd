package tool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func searchable() *memory {
	m := newMemory(map[string]string{
		"a.go": "package a\n\nfunc A() {}\nfunc a() {}\n", "sub/b.go": "func B() {}\n",
		"sub/c.txt": "func in text\n",
		"bin":       "func\x00", ".gitignore": "ignored/\n", "ignored/d.go": "func D() {}\n",
		"empty/":        "",
		"link":          "-> a.go",
		"two\nlines.go": "func E() {}\n", "wide": "needle" + strings.Repeat("x", 5000) + "\n",
	})
	for name, age := range map[string]time.Duration{
		"a.go": 3, "sub/b.go": 1, "two\nlines.go": 2,
		"ignored/d.go": 0,
	} {
		m.nodes["/work/"+name].time = time.Unix(1e9, 0).Add(-age * time.Hour)
	}
	return m
}

func TestGrep(t *testing.T) {
	checkCalls(t, Grep(), searchable(), []callCase{
		{
			"all", `{"pattern": "^func [A-Z]"}`, "",
			"a.go:3:func A() {}\nsub/b.go:1:func B() {}\n\"two\\nlines.go\":1:func E() {}\n[1 binary " +
				"files were not searched]\n",
		},
		{"filter", `{"pattern": "func", "glob_filter": "*.txt"}`, "", "sub/c.txt:1:func in text\n"},
		{
			"any case", `{"pattern": "FUNC A", "case_insensitive": true, "path": "a.go"}`, "",
			"a.go:3:func A() {}\na.go:4:func a() {}\n",
		},
		{
			"directory", `{"pattern": "func", "path": "sub"}`, "",
			"sub/b.go:1:func B() {}\nsub/c.txt:1:func in text\n",
		},
		{
			"absolute directory", `{"pattern": "B", "path": "/work/sub"}`, "",
			"/work/sub/b.go:1:func B() {}\n",
		},
		{
			"ignored directory by name", `{"pattern": "D", "path": "ignored"}`, "",
			"ignored/d.go:1:func D() {}\n",
		},
		{
			"as many as allowed", `{"pattern": "func", "path": "a.go", "max_results": 2}`, "",
			"a.go:3:func A() {}\na.go:4:func a() {}\n",
		},
		{
			"more than allowed", `{"pattern": "func", "path": "a.go", "max_results": 1}`, "",
			"a.go:3:func A() {}\n[stopped after 1 results, more match: narrow the pattern or the " +
				"path, or raise max_results]\n",
		},
		{"none", `{"pattern": "nothing", "path": "sub"}`, "", "[no matches in 2 files]\n"},
		{"long line", `{"pattern": "needle", "path": "wide"}`, "", "wide:1:needle" + strings.Repeat("x",
			494) + " [line cut]\n"},
		{
			"files", `{"pattern": "func", "output_mode": "files_with_matches", "glob_filter": "*.{go,txt}"}`,
			"", "a.go\nsub/b.go\nsub/c.txt\n\"two\\nlines.go\"\n",
		},
		{"more files than allowed", `{"pattern": "func", "output_mode": "files_with_matches", ` +
			`"glob_filter": "*.{go,txt}", "max_results": 2}`, "", "a.go\nsub/b.go\n[stopped after 2 " +
			"results, more match: narrow the pattern or the path, or raise max_results]\n"},
		{
			"count", `{"pattern": "func", "output_mode": "count", "glob_filter": "*.go"}`, "",
			"a.go:2\nsub/b.go:1\n\"two\\nlines.go\":1\n",
		},
		{
			"count with a limit of files",
			`{"pattern": "func", "output_mode": "count", "path": "a.go", "max_results": 1}`, "", "a.go:2\n",
		},
		{
			"content", `{"pattern": "B", "output_mode": "content", "path": "sub"}`, "",
			"sub/b.go:1:func B() {}\n",
		},
		{
			"bad mode", `{"pattern": "B", "output_mode": "x"}`, KindValidation,
			"the arguments do not fit grep:\n- output_mode: value must be one of 'content', " +
				"'files_with_matches', 'count'",
		},
		{"missing path", `{"pattern": "B", "path": "nope"}`, KindNotFound, "nope does not exist"},
	})
	t.Run("bad pattern", func(t *testing.T) {
		o := use(t, searchable(), "grep", args{"pattern": "a(" + strings.Repeat("b", 10_000)})
		if text := o.Result.Text(); kind(o) != KindValidation ||
			!strings.HasPrefix(text, "the pattern is malformed: ") || len(text) > 600 {
			t.Errorf("%s: %s", kind(o), text)
		}
	})
	t.Run("200 lines", func(t *testing.T) {
		m := newMemory(map[string]string{"n": numbered(1000)})
		text := use(t, m, "grep", `{"pattern": ".", "max_results": 900}`).Result.Text()
		if !strings.HasPrefix(text, "n:1:1\n") || !strings.Contains(text, "n:199:199\n") ||
			strings.Contains(text, "n:201:") || !strings.Contains(text, "Output shortened") ||
			!strings.Contains(text, "stopped after 900") {
			t.Errorf("got %q", text)
		}
	})
}

func TestGlob(t *testing.T) {
	checkCalls(t, Glob(), searchable(), []callCase{
		{"newest first", `{"pattern": "**/*.go"}`, "", "sub/b.go\n\"two\\nlines.go\"\na.go\n"},
		{"directory", `{"pattern": "*", "path": "sub/"}`, "", "sub/b.go\nsub/c.txt\n"},
		{"absolute directory", `{"pattern": "*.go", "path": "/work/sub"}`, "", "/work/sub/b.go\n"},
		{"none", `{"pattern": "*.rs"}`, "", "[no files match]\n"},
		{
			"bad pattern", `{"pattern": "[a"}`, KindValidation,
			`the pattern is malformed: glob "[a": syntax error in pattern`,
		},
		{"missing path", `{"pattern": "*", "path": "nope"}`, KindNotFound, "nope does not exist"},
	})
}

func TestListDir(t *testing.T) {
	checkCalls(t, ListDir(), searchable(), []callCase{
		{"one level", `{"path": "."}`, "", ".gitignore  file  9 bytes\na.go  file  35 bytes\nbin  " +
			"file  5 bytes\nempty/  directory\nignored/  directory\nlink  symlink\nsub/  directory\n" +
			"\"two\\nlines.go\"  file  12 bytes\nwide  file  5007 bytes\n"},
		{
			"two levels", `{"path": "/work", "depth": 2}`, "",
			".gitignore  file  9 bytes\na.go  file  35 bytes\nbin  file  5 bytes\nempty/  directory\n" +
				"link  symlink\nsub/  directory\nsub/b.go  file  12 bytes\nsub/c.txt  file  13 " +
				"bytes\n\"two\\nlines.go\"  file  12 bytes\nwide  file  5007 bytes\n",
		},
		{"empty", `{"path": "empty"}`, "", "[the directory is empty]\n"},
		{"missing", `{"path": "nope"}`, KindNotFound, "nope does not exist"},
		{
			"file", `{"path": "a.go"}`, KindOther,
			"a.go is not a directory, or a directory in its path is a file",
		},
	})
	t.Run("many", func(t *testing.T) {
		files := map[string]string{}
		for i := range maxListed + 1 {
			files[fmt.Sprintf("f%06d", i)] = ""
		}
		text := use(t, newMemory(files), "list_dir", `{"path": "."}`).Result.Text()
		if !strings.HasSuffix(text, "[stopped after 2000 entries; list a subdirectory, or use glob]\n") {
			t.Errorf("got … %q", text[len(text)-200:])
		}
	})
}

func TestAskUser(t *testing.T) {
	o := use(t, nil, "ask_user", args{"question": "Which?", "options": []string{"this", "that"}})
	if o.Question != "Which?\n1. this\n2. that" || o.Err != nil || o.Exit != nil {
		t.Errorf("%+v", o)
	}
	if o := use(t, nil, "ask_user", `{"question": " "}`); kind(o) != KindValidation ||
		o.Question != "" {
		t.Errorf("%+v", o)
	}
}

func TestExit_E5(t *testing.T) {
	for _, code := range []int{0, 1, 2, -1} {
		o := use(t, nil, "exit", args{"code": code, "reason": "because"})
		if diff := cmp.Diff(&Exit{Code: code, Reason: "because"}, o.Exit); diff != "" || o.Err != nil {
			t.Errorf("%v\n%s", o.Err, diff)
		}
	}
	for _, a := range []args{
		{"code": 3, "reason": "x"},
		{"code": 0},
		{"reason": "x"},
		{"code": 0, "reason": ""},
	} {
		if o := use(t, nil, "exit", a); kind(o) != KindValidation || o.Exit != nil {
			t.Errorf("%v: %+v", a, o)
		}
	}
}
