package integration_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// parityProofs prove 9.12, each line with each provider.
var parityProofs = map[string]func(*testing.T){
	"9.12.1":  withEach(proveCreation),
	"9.12.2":  withEach(proveReadThenEdit),
	"9.12.3":  withEach(proveSeveralFiles),
	"9.12.4":  withEach(proveShell),
	"9.12.5":  withEach(proveShellTimeout),
	"9.12.6":  withEach(proveSearch),
	"9.12.7":  withEach(proveRecovery),
	"9.12.8":  withEach(proveLargeFile),
	"9.12.9":  withEach(proveParallelCalls),
	"9.12.10": withEach(proveSteeringMidTask),
	"9.12.11": withEach(proveEffortChange),
	"9.12.12": withEach(proveSpawnAndWait),
	"9.12.13": withEach(proveLoopWarning),
	"9.12.14": withEach(proveRecovery),
	"9.12.15": withEach(proveEditFormat),
}

// create makes a file with the tool that the provider's agents use.
func (p provider) create(name, content string) llmtest.Call {
	if p.name != "openai" {
		return use("write_file", map[string]any{"file_path": name, "content": content})
	}
	var b strings.Builder
	for line := range strings.Lines(content) {
		b.WriteString("+" + line)
	}
	return patch("*** Add File: " + name + "\n" + b.String())
}

// edit replaces a line of a file in the way of the provider's own agents.
func (p provider) edit(name, from, to string) llmtest.Call {
	if p.name != "openai" {
		return use("edit_file", map[string]any{"file_path": name, "old_string": from, "new_string": to})
	}
	return patch("*** Update File: " + name + "\n@@\n-" + from + "\n+" + to + "\n")
}

func patch(operations string) llmtest.Call {
	return use("apply_patch", map[string]any{"patch": "*** Begin Patch\n" + operations +
		"*** End Patch"})
}

func readFile(name string) llmtest.Call {
	return use("read_file", map[string]any{"file_path": name})
}

// wantResults checks how many results a request ends with, and which of them are marked as failures
// on the wires that have a mark.
func (p provider) wantResults(t *testing.T, r *llmtest.Request, failed ...bool) {
	t.Helper()
	var got []bool
	for _, res := range results(r) {
		got = append(got, res.IsError)
	}
	want := failed
	if p.name == "openai" {
		want = make([]bool, len(failed))
	}
	if !slices.Equal(got, want) {
		t.Errorf("request %d ends with results that are failures: %v, want %v", r.Number, got, want)
	}
}

// wantFile checks the content of a file of the session's environment.
func (s *session) wantFile(name, want string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.read(name)); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// wantChanges checks the changes that the result and the events report.
func (s *session) wantChanges(res agent.RunResult, want ...event.FileChange) {
	s.t.Helper()
	sorted := cmp.Transformer("sorted", func(list []event.FileChange) []string {
		var out []string
		for _, c := range list {
			out = append(out, fmt.Sprintf("%s %s", c.Kind, c.Path))
		}
		slices.Sort(out)
		return out
	})
	var reported []event.FileChange
	for _, end := range data[event.ToolCallEnd](s) {
		reported = append(reported, end.Changes...)
	}
	if diff := cmp.Diff(want, res.Changes, sorted); diff != "" {
		s.t.Errorf("changes of the result (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, reported, sorted); diff != "" {
		s.t.Errorf("changes of the events (-want +got):\n%s", diff)
	}
}

func proveCreation(t *testing.T, p provider) {
	const content = "grüße\n\tan alle\n"
	s := p.session(t, llmtest.Sequence(llmtest.Use(p.create("new/directory/hello.txt", content)),
		llmtest.Text("It is there.")))
	res := s.submit("make new/directory/hello.txt")
	s.wantFile("new/directory/hello.txt", content)
	s.wantChanges(res, event.FileChange{Path: "new/directory/hello.txt", Kind: event.FileCreated})
	wantContains(t, "the result", s.shown(1)[0], "hello.txt")
	p.wantResults(t, s.request(1), false)
	if first := s.request(0).Messages; len(first) != 1 || first[0].Role != llm.RoleUser ||
		first[0].Text() != "make new/directory/hello.txt" {
		t.Errorf("the model got %+v", first)
	}
	if res.Final != "It is there." || s.request(0).Model != p.profile.Model ||
		!strings.HasPrefix(s.request(0).System, "You are a software engineer") {
		t.Errorf("%s answered %q", s.request(0).Model, res.Final)
	}
	inOrder(t, s.kinds(), event.KindUserInput, event.KindToolCallStart, event.KindToolCallEnd,
		event.KindTextDelta, event.KindTextEnd, event.KindProcessingEnd)
}

func proveReadThenEdit(t *testing.T, p provider) {
	t.Run("text", func(t *testing.T) {
		numbered := regexp.MustCompile(`(?m)^ *2 \| (.*)$`)
		s := p.session(t, func(r *llmtest.Request) llmtest.Reply {
			switch r.Number {
			case 0:
				return llmtest.Use(readFile("list.txt"))
			case 1:
				line := numbered.FindStringSubmatch(shown(r)[0])
				if line == nil {
					return llmtest.Reply{Violation: fmt.Sprintf("the file is shown as %q", shown(r)[0])}
				}
				return llmtest.Use(p.edit("list.txt", line[1], strings.ToUpper(line[1])))
			}
			return llmtest.Text("It is loud now.")
		})
		s.write("list.txt", "one\r\n  two \"2\" | ü\r\nthree\r\n")
		res := s.submit("make the second line loud")
		s.wantFile("list.txt", "one\r\n  TWO \"2\" | Ü\r\nthree\r\n")
		s.wantChanges(res, event.FileChange{Path: "list.txt", Kind: event.FileModified})
		p.wantResults(t, s.request(2), false)
	})
	t.Run("image", func(t *testing.T) { proveImage(t, p) })
}

// proveImage reads a picture, which the model must be sent as one.
func proveImage(t *testing.T, p provider) {
	var b bytes.Buffer
	dot := image.NewRGBA(image.Rect(0, 0, 2, 2))
	dot.Set(1, 1, color.RGBA{R: 200, G: 30, A: 255})
	if err := png.Encode(&b, dot); err != nil {
		t.Fatal(err)
	}
	s := p.session(t, llmtest.Sequence(llmtest.Use(readFile("dot.png"), readFile("about.txt")),
		llmtest.Text("I see a red dot.")))
	s.write("dot.png", b.String())
	s.write("about.txt", "a red dot\n")
	s.submit("what is on the picture?")
	r := s.request(1)
	var images []*llm.Image
	for _, m := range r.Messages {
		parts := slices.Clone(m.Parts)
		for _, part := range m.Parts {
			if part.ToolResult != nil {
				parts = append(parts, part.ToolResult.Parts...)
			}
		}
		for _, part := range parts {
			if part.Image != nil {
				images = append(images, part.Image)
			}
		}
	}
	if len(images) != 1 || images[0].MIME != "image/png" || !bytes.Equal(images[0].Data, b.Bytes()) {
		t.Errorf("the model was sent %d images: %+v", len(images), images)
	}
	if n := strings.Count(string(r.Body), base64.StdEncoding.EncodeToString(b.Bytes())); n != 1 {
		t.Errorf("the picture is %d times in the request", n)
	}
	wantContains(t, "the results", strings.Join(shown(r), "\n"), "dot.png: image/png", "a red dot")
}

// TestImages shows a picture through interfaces that take it in another field than those of
// TestDoD.
func TestImages(t *testing.T) {
	t.Parallel()
	all := families()
	chat, newer := all[0], all[2]
	chat.client = wires()[1].client
	newer.profile = newer.profile.WithModel("gemini-3-pro-preview")
	for name, p := range map[string]provider{"chat": chat, "gemini 3": newer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proveImage(t, p)
		})
	}
}

func proveSeveralFiles(t *testing.T, p provider) {
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(p.edit("a.txt", "port = 80", "port = 8080"), p.edit("sub/b.txt", "host: old",
			"host: new"), p.create("sub/c.txt", "made\n")),
		llmtest.Text("Three files are done."),
		llmtest.Use(p.edit("sub/c.txt", "made", "made and changed"), p.edit("a.txt", "port = 8080",
			"port = 443")),
		llmtest.Text("And two again."),
	))
	s.write("a.txt", "name = a\nport = 80\n")
	s.write("sub/b.txt", "host: old\nhost2: old2\n")
	s.write("untouched.txt", "port = 80\n")
	res := s.submit("change all of them")
	s.wantFile("a.txt", "name = a\nport = 8080\n")
	s.wantFile("sub/b.txt", "host: new\nhost2: old2\n")
	s.wantFile("sub/c.txt", "made\n")
	s.wantChanges(res, event.FileChange{Path: "a.txt", Kind: event.FileModified},
		event.FileChange{Path: "sub/b.txt", Kind: event.FileModified},
		event.FileChange{Path: "sub/c.txt", Kind: event.FileCreated})
	p.wantResults(t, s.request(1), false, false, false)
	s.submit("and now again")
	s.wantFile("a.txt", "name = a\nport = 443\n")
	s.wantFile("sub/c.txt", "made and changed\n")
	s.wantFile("untouched.txt", "port = 80\n")
	p.wantResults(t, s.request(3), false, false)
}

func proveShell(t *testing.T, p provider) {
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(shell("pwd; printf 'to %s\\n' out; printf 'to %s\\n' err >&2; exit 3")),
		llmtest.Use(shell("cd / && printf '%s' $((6 * 7)) >\"$OLDPWD/answer\"")),
		llmtest.Use(shell("cat answer")),
		llmtest.Text("42"),
	))
	res := s.submit("compute it")
	wantContains(t, "the first result", s.shown(1)[0], s.env.Info().WorkDir+"\n", "to out\n",
		"to err\n", "[exit code 3 after ")
	wantContains(t, "the second result", s.shown(2)[0], "[exit code 0 after ")
	// the directory of the second did not stay
	wantContains(t, "the third result", s.shown(3)[0], "42\n[exit code 0 after ")
	s.wantFile("answer", "42")
	p.wantResults(t, s.request(1), true)
	p.wantResults(t, s.request(2), false)
	if diff := cmp.Diff([]bool{false, true, true}, []bool{
		res.ToolCalls[0].Success, res.ToolCalls[1].Success, res.ToolCalls[2].Success,
	}); diff != "" {
		t.Errorf("success (-want +got):\n%s", diff)
	}
	var live strings.Builder
	for _, d := range data[event.ToolOutputDelta](s) {
		live.WriteString(d.Text)
	}
	wantContains(t, "the output while the commands ran", live.String(), "to out\n", "to err\n", "42")
}

// proveShellTimeout has a command with descendants that ignores SIGTERM.
func proveShellTimeout(t *testing.T, p provider) {
	marker := fmt.Sprint("slow-", time.Now().UnixNano())
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(use("shell", map[string]any{
			"command": "trap 'echo got TERM' TERM; echo before; " +
				"(sleep 300; : " + marker + ") & while :; do sleep 0.2; : " + marker + "; done; echo after",
			"timeout_ms": 3000,
		})),
		llmtest.Use(shell("echo still here")),
		llmtest.Text("It took too long."),
	))
	w := watchFor(t, marker)
	res := s.submit("wait for it")
	text := s.shown(1)[0]
	wantContains(t, "the result", text, "before\n", "got TERM\n", "more than 3000 ms",
		"larger timeout_ms, at most 600000")
	if strings.Contains(text, "after\n") {
		t.Errorf("the command went on: %s", text)
	}
	// The contract of environments has the exact time.
	if d := res.ToolCalls[0].Duration - 3*time.Second; d < env.GraceTime*4/5 {
		t.Errorf("SIGKILL came %s after the timeout, within the grace time", d)
	}
	w.gone()
	end := data[event.ToolCallEnd](s)[0]
	if !end.IsError || end.ErrorKind != string(tool.KindShellTimeout) ||
		res.Failures[0].Source != event.FailureTimeout || len(res.Failures) != 1 {
		t.Errorf("%+v, failures %+v", end, res.Failures)
	}
	p.wantResults(t, s.request(1), true)
	wantContains(t, "the next command's result", s.shown(2)[0], "still here\n")
}

func proveSearch(t *testing.T, p provider) {
	find := map[string]any{"pattern": "^func [A-Z]", "path": "src", "glob_filter": "*.go"}
	calls := []llmtest.Call{
		use("grep", find), use("glob", map[string]any{"pattern": "src/**/*.go"}),
		use("grep", map[string]any{"pattern": "FUNC beta", "case_insensitive": true}), use("glob",
			map[string]any{"pattern": "**/*.rs"}),
	}
	if p.name == "anthropic" {
		for _, mode := range []string{"files_with_matches", "count"} {
			calls = append(calls, use("grep", map[string]any{
				"pattern": "func", "output_mode": mode, "path": "src",
			}))
		}
	}
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(shell("touch -t 202001010000 src/a.go; touch -t 202201010000 src/deep/b.go; touch "+
			"-t 202101010000 src/c.go")),
		llmtest.Use(calls...), llmtest.Text("found"),
	))
	s.write("src/a.go", "package a\n\nfunc Alpha() {}\n")
	s.write("src/deep/b.go", "package b\nfunc beta() {}\nfunc Beta() {}\n")
	s.write("src/c.go", "package c\n")
	s.write("src/notes.md", "func In a text\n")
	s.write("other.go", "func Other() {}\n")
	s.submit("find the exported functions")
	got := s.shown(2)
	if diff := cmp.Diff([]string{"src/a.go:3:func Alpha() {}", "src/deep/b.go:3:func Beta() {}"},
		sortedLines(got[0])); diff != "" {
		t.Errorf("grep (-want +got):\n%s", diff)
	}
	if want := "src/deep/b.go\nsrc/c.go\nsrc/a.go\n"; got[1] != want {
		t.Errorf("glob found %q, want the newest first: %q", got[1], want)
	}
	if want := []string{
		"src/deep/b.go:2:func beta() {}", "src/deep/b.go:3:func Beta() {}",
	}; !slices.Equal(sortedLines(got[2]), want) {
		t.Errorf("grep for any case found %q", got[2])
	}
	wantContains(t, "glob for nothing", got[3], "[no files match]")
	if p.name == "anthropic" {
		if want := []string{
			"src/a.go", "src/deep/b.go", "src/notes.md",
		}; !slices.Equal(sortedLines(got[4]), want) {
			t.Errorf("grep for files found %q", got[4])
		}
		if want := []string{
			"src/a.go:1", "src/deep/b.go:2", "src/notes.md:1",
		}; !slices.Equal(sortedLines(got[5]), want) {
			t.Errorf("grep for counts found %q", got[5])
		}
	}
}

func sortedLines(s string) []string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	slices.Sort(lines)
	return lines
}

// proveLargeFile reads more than a model is shown, and then lines of the removed part.
func proveLargeFile(t *testing.T, p provider) {
	var b strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&b, "%04d %s\n", i+1, strings.Repeat("ä", 60))
	}
	reference := regexp.MustCompile(`output://[A-Za-z0-9_.:-]*[A-Za-z0-9_]`)
	s := p.session(t, func(r *llmtest.Request) llmtest.Reply {
		switch r.Number {
		case 0:
			return llmtest.Use(readFile("big.txt"))
		case 1:
			name := reference.FindString(shown(r)[0])
			return llmtest.Use(use("read_file", map[string]any{
				"file_path": name, "offset": 750, "limit": 1,
			}), use("grep", map[string]any{"pattern": "0800", "path": name}))
		}
		return llmtest.Text("I have seen it.")
	})
	s.write("big.txt", b.String())
	s.submit("read big.txt")
	first := s.shown(1)[0]
	if n := len([]rune(first)); n < 50_000 || n > 50_500 {
		t.Errorf("the model is shown %d characters", n)
	}
	wantContains(t, "the cut file", first, "1 | 0001 ", "1500 | 1500 ", "output://")
	removed := regexp.MustCompile(`([\d,]+) characters`).FindString(first)
	if strings.Contains(first, "| 0750 ") || removed == "" {
		t.Errorf("the middle is shown, or no marker: %q", removed)
	}
	end := data[event.ToolCallEnd](s)[0]
	if full := string(end.Output.Inline); !end.Truncated || strings.Count(full, "\n") < 1500 ||
		!strings.Contains(full, "| 0750 ") || int64(len(full)) != end.Output.Size {
		t.Errorf("the event holds %d of %d bytes", len(full), end.Output.Size)
	}
	wantContains(t, "the result of read_file", s.shown(2)[0], "0750 ")
	wantContains(t, "the result of grep", s.shown(2)[1], "0800 ")
	p.wantResults(t, s.request(2), false, false)
}
