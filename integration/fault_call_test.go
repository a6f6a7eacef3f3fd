package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// wantPairs checks that request n ends with an answer of calls and exactly one result for each, in
// order, and returns the results.
func wantPairs(t *testing.T, s *session, n, calls int) []string {
	t.Helper()
	messages := s.request(n).Messages
	if len(messages) < 2 || messages[len(messages)-1].Role != llm.RoleTool {
		t.Fatalf("request %d ends with no results", n)
	}
	asked, results := messages[len(messages)-2].ToolCalls(), messages[len(messages)-1].Parts
	if len(asked) != calls || len(results) != calls {
		t.Fatalf("request %d holds %d calls and %d results, want %d", n, len(asked), len(results), calls)
	}
	seen := map[string]bool{}
	var texts []string
	for i, p := range results {
		id := p.ToolResult.CallID
		if id != asked[i].ID || seen[id] || p.ToolResult.Text() == "" {
			t.Errorf("result %d answers %q, the call was %q; it is %.100q", i, id, asked[i].ID,
				p.ToolResult.Text())
		}
		seen[id] = true
		texts = append(texts, p.ToolResult.Text())
	}
	return texts
}

// failed reports for each call whether it is an error.
func failed(s *session) map[string]bool {
	out := map[string]bool{}
	for _, e := range data[event.ToolCallEnd](s) {
		out[e.CallID] = e.IsError
	}
	return out
}

func proveBadCalls(t *testing.T, w wire) {
	run := func(args string) llmtest.Call { return llmtest.Call{Name: "shell", Arguments: args} }
	type badCall struct {
		call llmtest.Call
		text string
	}
	calls := []badCall{
		{run(`{"command": "echo x >> ran"`), "not valid JSON"},
		{run(`{"command": "echo x >> ran",}`), "not valid JSON"},
		{run(`{"command": "echo x >> ran"}{"command": "echo y >> ran"}`), "not valid JSON"},
		{run(`{"command": "echo x >> ran", "command": "echo y >> ran"}`), "twice"},
		{run(`{command: 'echo x >> ran'}`), "not valid JSON"},
		{run(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)), "levels deep"},
		{run(``), "command"},
		{run(`null`), "object"},
		{run(`[]`), "object"},
		{run(`"echo x >> ran"`), "object"},
		{run("\x00"), "not valid JSON"},
		{run(`{"command": 5}`), "want string"},
		{run(`{"command": ["echo x >> ran"]}`), "want string"},
		{run(`{"command": {"a": 1}}`), "want string"},
		{run(`{"command": null}`), "want string"},
		{run(`{"command": "echo x >> ran", "timeout_ms": "soon"}`), "want integer"},
		{run(`{"command": "echo x >> ran", "timeout_ms": 1e99999}`), "range"},
		{run(`{"command": "echo x >> ran", "timeout_ms": -1}`), "minimum"},
		{run(`{"command": "echo x >> ran", "sudo": true}`), "sudo"},
		{run(`{"command": "echo x >> ran\u0000"}`), "NUL"},
		{llmtest.Call{Name: "no_such_tool", Arguments: `{}`}, "no_such_tool"},
		{llmtest.Call{Name: "Shell", Arguments: `{"command": "echo x >> ran"}`}, "Shell"},
		{shell("echo good >> good"), "[exit code 0"},
	}
	// A call that the service does not send takes its answer with it, and the calls before it.
	var replies []llmtest.Reply
	var one []llmtest.Call
	calls = slices.DeleteFunc(calls, func(c badCall) bool {
		if !w.passes(c.call) {
			replies = append(replies, llmtest.Use(shell("echo x >> ran"), c.call))
			return true
		}
		one = append(one, c.call)
		return false
	})
	lost := len(replies)
	replies = append(replies, llmtest.Use(one...), llmtest.Text("I go on"))
	s := wireSession(t, w, llmtest.Sequence(replies...),
		func(c *agent.Config) { c.Retry.MaxRetries = lost + 1 })
	res := s.submit("go")
	if res.Final != "I go on" || len(res.ToolCalls) != len(calls) ||
		len(res.Failures) != len(calls)-1 || res.ModelCalls != 2 {
		t.Errorf("%q after %d answers, %d calls and %d failures", res.Final, res.ModelCalls,
			len(res.ToolCalls), len(res.Failures))
	}
	if n := len(data[event.Retry](s)); n != lost {
		t.Errorf("%d retries of %d lost answers", n, lost)
	}
	errs := failed(s)
	for i, text := range wantPairs(t, s, 1+lost, len(calls)) {
		if !strings.Contains(text, calls[i].text) {
			t.Errorf("call %d, %.60q: %q is missing in %.400q", i, calls[i].call.Arguments, calls[i].text,
				text)
		}
		if id := res.ToolCalls[i].CallID; errs[id] != (i < len(calls)-1) {
			t.Errorf("call %d is an error: %v", i, errs[id])
		}
	}
	if s.read("good") != "good\n" {
		t.Error("the good call did not run once")
	}
	if res, err := s.env.Stat(t.Context(), "ran"); err == nil {
		t.Errorf("a bad call ran: %v", res)
	}
}

// proveNames has names that no tool can have, and that the service refuses in a request; the
// session must go on.
func proveNames(t *testing.T, w wire) {
	var calls []llmtest.Call
	for _, name := range []string{
		"functions.shell", "bad name!\x1b[2J", strings.Repeat("long", 50), "", "ü",
	} {
		calls = append(calls, llmtest.Call{Name: name, Arguments: `{"command": "echo x >> ran"}`})
	}
	s := wireSession(t, w, llmtest.Sequence(llmtest.Use(append(calls, shell("echo good >> good"))...),
		llmtest.Text("I go on")))
	if res := s.submit("go"); res.Final != "I go on" || len(res.ToolCalls) != len(calls)+1 {
		t.Errorf("%q after %d calls", res.Final, len(res.ToolCalls))
	}
	for i, text := range wantPairs(t, s, 1, len(calls)+1) {
		if i < len(calls) && (!strings.Contains(text, "list_dir") || controls(text) >= 0) {
			t.Errorf("result %d does not list the tools, or has control characters: %q", i, text)
		}
	}
	if _, err := s.env.Stat(t.Context(), "ran"); err == nil || s.read("good") != "good\n" {
		t.Error("a bad call ran, or the good one did not")
	}
}

// proveIDs has ids that are missing, repeated in an answer, repeated in the next answer, and odd.
func proveIDs(t *testing.T, w wire) {
	with := func(id, command string) llmtest.Call {
		c := shell(command)
		c.ID, c.NoID = id, id == ""
		return c
	}
	s := wireSession(t, w, llmtest.Sequence(
		llmtest.Use(with("", "echo a >> f"), with("", "echo b >> f"), with("x", "echo c >> f"),
			with("x", "echo twice >> f"), with("x_2", "echo d >> f")),
		llmtest.Use(with("x", "echo e >> f"), with("", "echo f >> f"), with("../../é\x1b\n",
			"echo g >> f"), with(strings.Repeat("i", 300), "echo h >> f")),
		llmtest.Text("done"),
	))
	s.submit("go")
	texts := wantPairs(t, s, 1, 5)
	wantPairs(t, s, 2, 4)
	if got := s.read("f"); got != "a\nb\nc\nd\ne\nf\ng\nh\n" {
		t.Errorf("the commands that ran wrote %q", got)
	}
	wantContains(t, "the result of the repeated call", texts[3], "was not run: its ID")
	ends := data[event.ToolCallEnd](s)
	seen := map[string]bool{}
	for i, e := range ends {
		if seen[e.CallID] || e.CallID == "" || e.IsError != (i == 3) {
			t.Errorf("call %d: %+v", i, e)
		}
		seen[e.CallID] = true
	}
}

func proveManyCalls(t *testing.T, w wire) {
	const n = 200
	var calls []llmtest.Call
	var want strings.Builder
	bad, wrong := w.bad("shell")
	for i := range n {
		switch i % 4 {
		case 0:
			calls = append(calls, shell(fmt.Sprintf("echo %d >> f", i)))
			fmt.Fprintf(&want, "%d\n", i)
		case 1:
			calls = append(calls, bad)
		default:
			calls = append(calls, use("read_file", map[string]any{"file_path": fmt.Sprintf("in/%d", i)}))
		}
	}
	reply := llmtest.Use(calls...)
	reply.Fault = llmtest.Fault{Interleave: true}
	s := wireSession(t, w, llmtest.Sequence(reply, llmtest.Text("done")))
	for i := range n {
		s.write(fmt.Sprintf("in/%d", i), fmt.Sprintf("content of %d.\n", i))
	}
	if res := s.submit("go"); len(res.ToolCalls) != n {
		t.Errorf("%d calls", len(res.ToolCalls))
	}
	for i, text := range wantPairs(t, s, 1, n) {
		part := []string{
			"[exit code 0", wrong, fmt.Sprintf("content of %d.", i), fmt.Sprintf("content of %d.", i),
		}[i%4]
		if !strings.Contains(text, part) {
			t.Errorf("result %d lacks %q: %.200q", i, part, text)
		}
	}
	if got := s.read("f"); got != want.String() {
		t.Errorf("the commands ran as %q", got)
	}
}

// proveLongArguments has arguments of an allowed length, incomplete ones, and some of five
// megabytes, which end the run before a call of their answer.
func proveLongArguments(t *testing.T, w wire) {
	content := func(size int) string { return strings.Repeat("0123456789abcdeü", size/17) + "\n" }
	write := func(name string, size int) llmtest.Call {
		return use("write_file", map[string]any{"file_path": name, "content": content(size)})
	}
	half := write("half", 256<<10)
	half.Arguments = half.Arguments[:200<<10]
	wrong := "not valid JSON"
	if !w.passes(half) {
		half, wrong = w.bad("write_file")
	}
	calls := []llmtest.Call{
		write("taken", 256<<10), half, shell("ls; wc -c < taken"),
	}
	s := wireSession(t, w, llmtest.Sequence(llmtest.Use(calls...), llmtest.Text("done")))
	s.submit("go")
	texts := wantPairs(t, s, 1, len(calls))
	if s.read("taken") != content(256<<10) {
		t.Error("the file has other content")
	}
	wantContains(t, "the result of the half", texts[1], wrong)
	wantContains(t, "the size", texts[2], fmt.Sprint(len(content(256<<10))))
	if strings.Contains(texts[2], "half") {
		t.Errorf("a refused call wrote a file: %s", texts[2])
	}
	for i, text := range texts {
		if len(text) > 2000 {
			t.Errorf("result %d has %d bytes", i, len(text))
		}
	}
	s = wireSession(t, w, llmtest.Sequence(llmtest.Use(write("early", 10), write("refused", 5<<20))))
	res, err := s.Submit(t.Context(), "go")
	if res.Status != agent.StatusModelError || !errors.Is(err, llm.ErrArgumentsTooLarge) {
		t.Errorf("five megabytes ended with %s, %v", res.Status, err)
	}
	if n := len(s.server.Requests()); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
	for _, name := range []string{"early", "refused"} {
		if _, err := s.env.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was written: %v", name, err)
		}
	}
}
