package integration_test

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// truncationProofs prove 9.5.
var truncationProofs = map[string]func(*testing.T){
	"9.5.1": proveMarker,
	"9.5.2": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(
			llmtest.Use(shell("seq 1000")),
			llmtest.Use(use("grep", map[string]any{
				"pattern": "line", "path": "lines.txt", "max_results": 1000,
			})),
			llmtest.Use(use("glob", map[string]any{"pattern": "many/*"})),
			llmtest.Text("long"),
		))
		s.write("lines.txt", strings.Repeat("a line\n", 1000))
		for i := range 700 {
			s.write(fmt.Sprintf("many/f%d", i), "")
		}
		s.submit("go")
		for i, want := range []int{256, 200, 500} {
			text := s.shown(i + 1)[0]
			if n := strings.Count(text, "\n"); n < want-2 || n > want+6 {
				t.Errorf("call %d shows %d lines, want about %d", i, n, want)
			}
		}
		wantContains(t, "the shell's result", s.shown(1)[0], "\n1\n2\n"[1:], "\n999\n1000\n")
	},
	"9.5.3": proveMarker,
	"9.5.4": proveFullOutput,
	"9.5.5": func(t *testing.T) {
		want := map[string]tool.Limit{
			"read_file":       {Chars: 50_000, Keep: tool.KeepHeadTail},
			"read_many_files": {Chars: 50_000, Keep: tool.KeepHeadTail},
			"shell":           {Chars: 30_000, Lines: 256, Keep: tool.KeepHeadTail},
			"grep":            {Chars: 20_000, Lines: 200, Keep: tool.KeepHead},
			"glob":            {Chars: 20_000, Lines: 500, Keep: tool.KeepHead},
			"apply_patch":     {Chars: 10_000, Keep: tool.KeepTail},
			"edit_file":       {Chars: 10_000, Keep: tool.KeepTail},
			"write_file":      {Chars: 1_000, Keep: tool.KeepTail},
		}
		seen := map[string]bool{}
		for _, p := range families() {
			for _, tl := range p.profile.Tools {
				if w, ok := want[tl.Name]; ok && tl.Limit != w {
					t.Errorf("%s: %s has the limit %+v, want %+v", p.name, tl.Name, tl.Limit, w)
				}
				seen[tl.Name] = true
			}
		}
		for name := range want {
			if !seen[name] {
				t.Errorf("no profile has the tool %s", name)
			}
		}
		proveDefaultLimits(t)
		long := custom("long", strings.Repeat("é", 100_000))
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("long", map[string]any{"target": "x"})),
			llmtest.Text("ok")),
			func(c *agent.Config) { c.Tools = []tool.Tool{long} })
		s.submit("go")
		if n := strings.Count(s.shown(1)[0], "é"); n < 29_000 || n > 30_000 {
			t.Errorf("the model sees %d characters of a tool without a limit", n)
		}
	},
	"9.5.6": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(shell("seq 100; printf '€%.0s' $(seq 2000)")),
			llmtest.Text("ok")), func(c *agent.Config) {
			c.Settings.ToolLimits = map[string]tool.Limit{"shell": {Chars: 1001, Lines: 20}}
		})
		s.submit("go")
		text := s.shown(1)[0]
		if n := utf8.RuneCountInString(text); n > 1600 || strings.Count(text, "\n") > 30 {
			t.Errorf("the model sees %d characters in %d lines", n, strings.Count(text, "\n"))
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
			t.Errorf("a character was cut: %q", text)
		}
	},
}

// proveMarker prints one long line: the model sees its ends and how much was removed.
func proveMarker(t *testing.T) {
	s := newSession(t, llmtest.Sequence(llmtest.Use(shell("head -c 10000000 /dev/zero | tr '\\0' x")),
		llmtest.Text("long")))
	s.submit("print one long line")
	text := s.shown(1)[0]
	if n := utf8.RuneCountInString(text); n < 30_000 || n > 31_000 {
		t.Errorf("of a line of 10 MB the model sees %d characters", n)
	}
	m := regexp.MustCompile(`(\d[\d,]*) characters`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no marker in %.200q…", text)
	}
	removed, err := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
	full := data[event.ToolCallEnd](s)[0].Output.Size
	if err != nil || int64(removed) < full-31_000 || int64(removed) > full-29_000 {
		t.Errorf("the marker counts %d removed characters of %d", removed, full)
	}
	wantContains(t, "the marker", text, "output://")
}

func proveFullOutput(t *testing.T) {
	s := newSession(t, func(r *llmtest.Request) llmtest.Reply {
		switch r.Number {
		case 0:
			small, large := shell("head -c 500000 /dev/zero | tr '\\0' s"), shell("seq 400000")
			small.ID, large.ID = "small", "large"
			return llmtest.Use(small, large)
		case 1:
			return llmtest.Use(
				use("read_file", map[string]any{"file_path": "output://large", "offset": 200_000, "limit": 2}),
				use("grep", map[string]any{"pattern": "^123456$", "path": "output://large"}),
			)
		}
		return llmtest.Text("ok")
	})
	s.submit("go")
	ends := data[event.ToolCallEnd](s)
	small, large := ends[0].Output, ends[1].Output
	if small.File != "" || strings.Count(string(small.Inline), "s") < 500_000 {
		t.Errorf("an output of %d bytes is kept in %q", small.Size, small.File)
	}
	if large.File == "" || large.Inline != nil || !strings.HasPrefix(large.File, s.Dir()) {
		t.Errorf("an output of %d bytes is kept in %q", large.Size, large.File)
	}
	r, err := large.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != large.Size || !strings.Contains(string(b), "\n123456\n") {
		t.Errorf("the file holds %d of %d bytes, %v", len(b), large.Size, err)
	}
	wantContains(t, "read_file of the output", strings.Join(s.shown(2), "\n"), "200000 | 200000",
		"123456")
}

// proveDefaultLimits has outputs that are longer than the limits of the tools. Those of edit_file
// and write_file are made by other functions, since theirs are never as long.
func proveDefaultLimits(t *testing.T) {
	t.Helper()
	var patch strings.Builder
	patch.WriteString("*** Begin Patch\n")
	for i := range 300 {
		fmt.Fprintf(&patch, "*** Add File: added/%s%d.txt\n+x\n", strings.Repeat("a", 60), i)
	}
	patch.WriteString("*** End Patch\n")
	long := strings.Repeat("long ", 20_000)
	edit, write := tool.EditFile(), tool.WriteFile()
	for _, tl := range []*tool.Tool{&edit, &write} {
		tl.Run = func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{Text: "first " + long + " last"}, nil
		}
	}
	grep := func(pattern string) llmtest.Call {
		return use("grep", map[string]any{"pattern": pattern, "max_results": 1000})
	}
	root := llmtest.Sequence(
		llmtest.Use(
			readFile("long.txt"), use("read_many_files", map[string]any{"paths": []string{"long.txt"}}),
			shell("seq 1000"), shell("echo first; head -c 60000 /dev/zero | tr '\\0' x; echo last"),
			grep("short"), use("glob", map[string]any{"pattern": "many/*"}),
			grep("wide"), use("glob", map[string]any{"pattern": "names/*"}),
			use("apply_patch", map[string]any{"patch": patch.String()}),
			use("edit_file", map[string]any{"file_path": "f", "old_string": "a", "new_string": "b"}),
			use("write_file", map[string]any{"file_path": "f", "content": "a"}),
			use("spawn_agent", map[string]any{"task": "talk"}),
			use("wait", map[string]any{"agent_id": "agent_1"}),
		),
		llmtest.Text("ok"),
	)
	s := newSession(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Messages[0].Text() == "talk" {
			return llmtest.Text("first " + long + " last")
		}
		return root(r)
	}, func(c *agent.Config) { c.Tools = append(c.Tools, tool.ReadManyFiles(), edit, write) })
	s.write("long.txt", strings.Repeat("a line of short text that is long enough\n", 4000))
	var wide strings.Builder
	for i := range 600 {
		s.write(fmt.Sprintf("many/%03d", i), "")
		s.write(fmt.Sprintf("names/%0100d", i), "")
		fmt.Fprintf(&wide, "%03d wide %s\n", i, strings.Repeat("-", 300))
	}
	s.write("wide.txt", wide.String())
	s.submit("go")
	shown := s.shown(2) // request 1 is that of the agent
	for i, c := range []struct {
		name   string
		limit  int
		count  string // what is counted instead of characters
		has    string
		hasNot string
	}{
		{"read_file", 50_000, "", "\n2000 | a line", ""},
		{"read_many_files", 50_000, "", "\n2000 | a line", ""},
		{"shell, lines", 256, "\n", "\n1000\n", "\n500\n"},
		{"shell", 30_000, "", "xlast", ""},
		{"grep, lines", 200, "long.txt:", "long.txt:1:", "long.txt:900:"},
		{"glob, lines", 500, "many/", "", ""},
		{"grep", 20_000, "", "000 wide", "599 wide"},
		{"glob", 20_000, "", "names/0", ""},
		{"apply_patch", 10_000, "", "a299.txt", "a0.txt"},
		{"edit_file", 10_000, "", " last", "first"},
		{"write_file", 1_000, "", " last", "first"},
		{"spawn_agent", 0, "", "agent_1", ""},
		{"wait", 20_000, "", "output:\nfirst long", ""},
	} {
		got := utf8.RuneCountInString(shown[i])
		if c.count != "" {
			got = strings.Count(shown[i], c.count)
		}
		// The marker comes on top of the limit.
		if c.limit > 0 && (got > c.limit+600 || got < c.limit*3/4) {
			t.Errorf("%s shows %d, the limit is %d: %.200s", c.name, got, c.limit, shown[i])
		}
		if !strings.Contains(shown[i], c.has) || c.hasNot != "" && strings.Contains(shown[i], c.hasNot) {
			t.Errorf("%s shows %.300s … %s", c.name, shown[i], tail(shown[i]))
		}
	}
	wantContains(t, "the text of the agent", tail(shown[12]), "long  last")
}
