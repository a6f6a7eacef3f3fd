package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
)

func parse(t *testing.T, script string) *replay.Script {
	t.Helper()
	s, err := replay.ParseScript([]byte(script), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseScriptErrors(t *testing.T) {
	tests := map[string]struct{ script, want string }{
		"empty":         {"", "s.yaml: the script is empty"},
		"comment only":  {"# nothing\n", "s.yaml: the script is empty"},
		"no turns":      {"model: m\n", "s.yaml: the script has no turns"},
		"syntax":        {"turns:\n  - text: 'x\n", "s.yaml:"},
		"unknown field": {"turns:\n  - text: x\n    txet: y\n", `s.yaml:3: unknown field "txet"`},
		"unknown in expect": {
			"turns:\n  - text: x\n    expect: {result: {containing: y}}\n",
			`s.yaml:3: unknown field "containing"`,
		},
		"unknown in call": {
			"turns:\n  - calls:\n      - tool: x\n        arg: y\n", `s.yaml:4: unknown field "arg"`,
		},
		"wrong type": {"turns:\n  - calls: {tool: x}\n", "s.yaml:2: cannot unmarshal"},
		"two documents": {
			"turns: [{text: x}]\n---\nturns: [{text: x}]\n", "s.yaml: a script is a single YAML document",
		},
		"nothing answered": {
			"turns:\n  - text: x\n  - expect: {user: {contains: x}}\n",
			"s.yaml:3: turn 2: the turn answers nothing",
		},
		"call without tool": {
			"turns:\n  - text: x\n  - calls: [{args: {}}]\n", "s.yaml:3: turn 2: call 1: tool is missing",
		},
		"args of a list": {
			"turns:\n  - calls:\n    - {tool: x, args: [1]}\n",
			"s.yaml:3: args must be a mapping or a string",
		},
		"args of a number": {
			"turns:\n  - calls: [{tool: x, args: 1}]\n", "s.yaml:2: args must be a mapping or a string",
		},
		"args without JSON": {
			"turns:\n  - calls: [{tool: x, args: {a: .nan}}]\n", "s.yaml:2: args cannot be written as JSON",
		},
		"args with odd key": {"turns:\n  - calls: [{tool: x, args: {a: {[1]: 2}}}]\n", "s.yaml"},
		"bad duration":      {"turns:\n  - {text: x, delay: 5}\n", `s.yaml:2: "5" is not a duration`},
		"negative duration": {"turns:\n  - {text: x, delay: -5s}\n", `s.yaml:2: "-5s" is not a duration`},
		"bad regexp": {
			"turns:\n  - {text: x, expect: {user: {matches: '('}}}\n",
			"s.yaml:2: turn 1: expect: user: matches: error parsing regexp",
		},
		"bad finish": {
			"turns:\n  - {text: x, finish: done}\n", `s.yaml:2: turn 1: finish "done" is not one of`,
		},
		"bad kind": {
			"turns:\n  - error: {kind: nope}\n",
			`s.yaml:2: turn 1: error: kind "nope" is not one of network,`,
		},
		"kind not simulated": {"turns:\n  - error: {kind: canceled}\n", `kind "canceled" is not one of`},
		"error without kind": {"turns:\n  - error: {message: x}\n", `error: kind "" is not one of`},
		"bad status": {
			"turns:\n  - error: {kind: server, status: 42}\n", "error: 42 is not an HTTP status",
		},
		"error and calls": {
			"turns:\n  - {error: {status: 500}, calls: [{tool: x}]}\n",
			"a turn with error has neither calls nor finish",
		},
		"several at once": {
			"turns:\n  - {text: x, a: 1}\n  - {text: x, b: 1}\n", "s.yaml:3: unknown field \"b\"",
		},
		"recursive alias": {"turns: &t\n  - *t\n", "s.yaml"},
		"alias bomb": {
			"turns:\n  - calls:\n    - tool: x\n      args:\n" + bomb(), "excessive aliasing",
		},
		"not a mapping": {"- text: x\n", "s.yaml:1: cannot unmarshal"},
		"contains a mapping": {
			"turns:\n  - {text: x, expect: {user: {contains: {a: b}}}}\n", "s.yaml:2: cannot unmarshal",
		},
		"model is a sequence": {"model: [a]\nturns: [{text: x}]\n", "s.yaml:1: cannot unmarshal"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := replay.ParseScript([]byte(tt.script), "s.yaml")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// bomb is a mapping of a few lines that would become gigabytes.
func bomb() string {
	s := "        l0: &l0 [x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 10; i++ {
		s += fmt.Sprintf("        l%d: &l%d [%s*l%d]\n", i, i, strings.Repeat(fmt.Sprintf("*l%d, ", i-1),
			8), i-1)
	}
	return s
}

func TestParseScriptTooLong(t *testing.T) {
	if _, err := replay.ParseScript(make([]byte, 16<<20+1), "s.yaml"); err == nil {
		t.Error("no error")
	}
}

func TestArguments(t *testing.T) {
	tests := map[string]struct{ yaml, want string }{
		"left out": {"", `{}`},
		"mapping": {
			"args: {b: [1, 2.5, true, null], a: {x: 'y'}}", `{"a":{"x":"y"},"b":[1,2.5,true,null]}`,
		},
		"dates are texts": {
			"args: {day: 2001-02-03, list: [2001-02-03]}", `{"day":"2001-02-03","list":["2001-02-03"]}`,
		},
		"large number":  {"args: {n: 9007199254740993}", `{"n":9007199254740993}`},
		"text as it is": {"args: '{\"a\": '", `{"a": `},
		"empty text":    {"args: ''", ``},
		"not an object": {"args: '[1]'", `[1]`},
		"block":         {"args: |-\n          {\"a\":1}", `{"a":1}`},
		"anchor": {
			"args: {a: &x {day: 2001-02-03}, b: *x}", `{"a":{"day":"2001-02-03"},"b":{"day":"2001-02-03"}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := parse(t, "turns:\n  - calls:\n      - tool: x\n        "+tt.yaml+"\n")
			if got := s.Turns[0].Calls[0].Arguments; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func user(text string) llm.Request {
	return llm.Request{Model: "asked", Messages: []llm.Message{llm.UserText(text)}}
}

// results is a request with the results of calls.
func results(rs ...llm.ToolResult) llm.Request {
	req := user("go")
	call := llm.Message{Role: llm.RoleAssistant}
	result := llm.Message{Role: llm.RoleTool}
	for i, r := range rs {
		r.CallID = fmt.Sprint("c", i)
		call.Parts = append(call.Parts, llm.Part{
			Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{ID: r.CallID, Name: r.Name},
		})
		result.Parts = append(result.Parts, llm.Part{Kind: llm.PartToolResult, ToolResult: &r})
	}
	// An older round comes first, which the newest results are not mixed with.
	old := llm.Part{Kind: llm.PartToolResult, ToolResult: &llm.ToolResult{
		CallID: "old", Name: "old", Parts: []llm.Part{llm.Text("old")},
	}}
	req.Messages = append(req.Messages,
		llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{
			Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{ID: "old", Name: "old"},
		}}},
		llm.Message{Role: llm.RoleTool, Parts: []llm.Part{old}}, call, result)
	return req
}

func result(tool, text string, isError bool) llm.ToolResult {
	return llm.ToolResult{Name: tool, Parts: []llm.Part{llm.Text(text)}, IsError: isError}
}

func TestExpect(t *testing.T) {
	tools := user("x")
	tools.Tools = []llm.ToolSpec{{Name: "a"}, {Name: "b"}}
	system := user("x")
	system.System = "be brief"
	long := strings.Repeat("é", 300)
	tests := map[string]struct {
		expect string
		req    llm.Request
		// want is a part of the message, empty if the expectation is met.
		want string
	}{
		"user contains": {"user: {contains: world}", user("hello world"), ""},
		"user lacks": {
			"user: {contains: moon}", user("hello\nthe moo is big\n"),
			`expects the user messages to contain "moon"; the nearest there: "the moo is big"`,
		},
		"user lacks in nothing": {"user: {contains: moon}", user(""), "(empty)"},
		"all of a list":         {"user: {contains: [hello, moon]}", user("hello world"), `"moon"`},
		"not contains": {
			"user: {not_contains: world}", user("a\nhello world\nb"),
			`not to contain "world"; it does: "hello world"`,
		},
		"matches": {"user: {matches: '^h.*d$'}", user("hello world"), ""},
		"matches not": {
			"user: {matches: '^w'}", user("hello world"), `to match "^w"; it is: "hello world"`,
		},
		"system": {
			"system: {contains: long}", system, `expects the system prompt to contain "long"`,
		},
		"tools offered":    {"tools: [b, a]", tools, ""},
		"tool not offered": {"tools: c", tools, "expects the tool c to be offered; offered are: a, b"},
		"no tools":         {"tools: c", user("x"), "offered are: (none)"},
		"result": {"result: {tool: b, contains: two}", results(result("a", "one", false),
			result("b", "two", false)), ""},
		"result of another": {"result: {tool: a}", results(result("a", "one", false),
			result("b", "two", false)), `to be of a; it is of b: "two"`},
		"no result": {
			"result: {contains: x}", user("x"), "expects a tool result, but the request has none",
		},
		"result is error": {"result: {is_error: true}", results(result("a", "one", true)), ""},
		"result is no error": {
			"result: {is_error: true}", results(result("a", "one", false)),
			`to be an error; it is a success: "one"`,
		},
		"result must succeed": {
			"result: {is_error: false}", results(result("a", "one", true)),
			`to be a success; it is an error: "one"`,
		},
		"results": {
			"results: [{contains: one}, {contains: two}]",
			results(result("a", "one", false), result("b", "two", false)), "",
		},
		"results in order": {
			"results: [{contains: two}, {contains: one}]",
			results(result("a", "one", false), result("b", "two",
				false)), `expects tool result 1 to contain "two"`,
		},
		"results of other count": {"results: [{}]", results(result("a", "one", false), result("b", "two",
			false)), "expects 1 tool results, but the request has 2: a, b"},
		"long texts are cut": {"user: {matches: x}", user(long), "é\"… (600 bytes)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := parse(t, "turns:\n  - text: ok\n    expect:\n      "+tt.expect+"\n")
			_, err := llm.Complete(t.Context(), replay.NewScript(s), tt.req)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if llm.KindOf(err) != llm.KindReplay {
				t.Fatalf("got %v, want kind %s", err, llm.KindReplay)
			}
			if msg := err.Error(); !strings.Contains(msg, tt.want) ||
				!strings.Contains(msg, "s.yaml:2: turn 1 ") {
				t.Errorf("got %q, want %q", msg, tt.want)
			}
		})
	}
}

func TestPlay(t *testing.T) {
	s := parse(t, `
turns:
  - reasoning: hm
    text: two words
    calls: [{tool: x, args: {a: 1}}, {tool: y, id: same}, {tool: z, id: ""}]
    usage: {input: 1, output: 2, reasoning: 3, cache_read: 4, cache_write: 5}
  - {text: half, finish: length}
`)
	c := replay.NewScript(s)
	got, err := llm.Complete(t.Context(), c, user("x"))
	if err != nil {
		t.Fatal(err)
	}
	call := func(id, name, args string) llm.Part {
		return llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
			ID: id, Name: name, Arguments: args,
		}}
	}
	want := llm.Response{
		Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: "hm"}},
			llm.Text("two words"),
			call("call_1_1", "x", `{"a":1}`), call("same", "y", "{}"), call("", "z", "{}"),
		}},
		Finish: llm.FinishToolCalls, Usage: llm.Usage{
			Input: 1, Output: 2, Reasoning: 3, CacheRead: 4, CacheWrite: 5,
		},
		ResponseID: "turn_3", Model: "asked",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	if got, err := llm.Complete(t.Context(), c, user("x")); err != nil ||
		got.Finish != llm.FinishLength {
		t.Errorf("second turn: %+v, %v", got, err)
	}
	_, err = llm.Complete(t.Context(), c, user("once more"))
	if llm.KindOf(err) != llm.KindReplay ||
		!strings.Contains(err.Error(), `no turn is left after the last of 2`) ||
		!strings.Contains(err.Error(), `role user: "once more"`) {
		t.Errorf("after the last turn: %v", err)
	}
}

func TestPlayErrors(t *testing.T) {
	s := parse(t, `
turns:
  - error: {status: 429, message: slow, code: c, retry_after: 2s}
  - {text: partly, error: {kind: stream}}
  - text: whole
`)
	c := replay.NewScript(s)
	_, err := llm.Complete(t.Context(), c, user("x"))
	var e *llm.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := llm.Error{
		Kind: llm.KindRateLimit, Provider: "script", Status: 429, Code: "c", Message: "slow",
		HasRetryAfter: true, RetryAfter: 2 * time.Second,
	}
	if diff := cmp.Diff(want, *e); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	resp, err := llm.Complete(t.Context(), llm.Retry(c,
		llm.RetryPolicy{Rand: func() float64 { return 0 }}), user("x"))
	if err != nil || resp.Message.Text() != "whole" {
		t.Errorf("after a retry: %q, %v", resp.Message.Text(), err)
	}
}

func TestUnmetTurnIsNotUsedUp(t *testing.T) {
	p := replay.NewPlayer(parse(t, "turns: [{text: ok, expect: {user: {contains: yes}}}]"))
	if _, err := p.Next(user("no")); llm.KindOf(err) != llm.KindReplay {
		t.Errorf("got %v", err)
	}
	if n := p.Remaining(); n != 1 {
		t.Errorf("%d turns remain, want 1", n)
	}
	if _, err := p.Next(user("yes")); err != nil || p.Remaining() != 0 {
		t.Errorf("got %v, %d remain", err, p.Remaining())
	}
}

func TestDelayEndsWithTheContext(t *testing.T) {
	c := replay.NewScript(parse(t, "turns: [{text: late, delay: 1h}]"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := llm.Complete(ctx, c, user("x")); llm.KindOf(err) != llm.KindCanceled ||
		!errors.Is(err, cause) {
		t.Errorf("got %v, want kind %s around the cause", err, llm.KindCanceled)
	}
}

// The example of the documentation is valid.
func TestExampleScript(t *testing.T) {
	data, err := os.ReadFile("testdata/fix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := replay.ParseScript(data, "fix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := llm.Retry(replay.NewScript(s), llm.RetryPolicy{Rand: func() float64 { return 0 }})
	outputs := map[string]string{
		"shell": "--- FAIL: TestAdd\nexit code: 1\n", "read_file": "3 | return a - b\n",
		"edit_file": "1 replacement\n",
	}
	req := user("please fix the failing test")
	req.Tools = []llm.ToolSpec{{Name: "shell"}, {Name: "read_file"}, {Name: "edit_file"}}
	for range 5 {
		resp, err := llm.Complete(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		calls := resp.Message.ToolCalls()
		if len(calls) == 0 {
			want := "Add subtracted where it should add. The tests pass now.\n"
			if resp.Message.Text() != want || resp.Model != "scripted-1" {
				t.Errorf("got %q by %s", resp.Message.Text(), resp.Model)
			}
			return
		}
		answer := llm.Message{Role: llm.RoleTool}
		for _, call := range calls {
			if !json.Valid([]byte(call.Arguments)) {
				t.Errorf("arguments %s", call.Arguments)
			}
			r := result(call.Name, outputs[call.Name], false)
			if call.Name == "edit_file" {
				outputs["shell"] = "ok\n"
			}
			answer.Parts = append(answer.Parts, llm.Part{Kind: llm.PartToolResult, ToolResult: &r})
		}
		req.Messages = append(req.Messages, resp.Message, answer)
	}
	t.Error("the script does not end")
}

func FuzzParseScript(f *testing.F) {
	data, err := os.ReadFile("testdata/fix.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add("turns: &t\n  - *t\n")
	f.Add("turns: [{calls: [{tool: x, args: {<<: {a: 1}, b: 2001-02-03, c: &d [*d]}}]}]")
	f.Add("turns: [{error: {status: 500, retry_after: 1s}}, {text: x, delay: 1ms, expect: " +
		"{results: [{is_error: true}]}}]")
	f.Fuzz(func(t *testing.T, script string) {
		s, err := replay.ParseScript([]byte(script), "s.yaml")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "s.yaml") {
				t.Errorf("error %q does not name the script", err)
			}
			return
		}
		for _, turn := range s.Turns {
			turn.Expect.Check(user("x"))
			turn.Expect.Check(results(result("a", "b", true)))
			for _, call := range turn.Calls {
				if call.Name == "" {
					t.Error("a call without a tool")
				}
			}
		}
		_, err = replay.NewPlayer(s).Next(user("x"))
		if err != nil && llm.KindOf(err) != llm.KindReplay {
			t.Errorf("got %v", err)
		}
	})
}
