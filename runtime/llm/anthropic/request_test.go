package anthropic_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

func answered(parts ...llm.Part) llm.Message {
	return llm.Message{Role: llm.RoleAssistant, Parts: parts}
}

func opaque(provider, raw string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
		Text: "t", Provider: provider, Opaque: json.RawMessage(raw),
	}}
}

func everything() llm.Request {
	req := newRequest()
	req.Messages = []llm.Message{
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("look"), picture()}},
		answered(
			opaque("openai", `{"other":1}`), opaque("anthropic",
				`{"type":"thinking","thinking":"a <b>","signature":"s+/=","new":[1.50]}`),
			opaque("anthropic", `{"type":"redacted_thinking","data":"xyz=="}`), thought("only text"),
			llm.Text("I run two. \n"),
			called("c1", "shell", `{"command":"a <b> & \ud83d", "n":12345678901234567890}`),
			opaque("anthropic", `{"type":"thinking","thinking":"","signature":"s2"}`),
			llm.Text("\n\n"), called("c:2", "made up!", ""), called("c3", "shell", `[1]`), called("c4",
				"shell", `{"command": "unfin`),
		),
		clienttest.Result(llm.ToolResult{
			CallID: "c1", Name: "shell", Parts: []llm.Part{llm.Text("a <b> & c"), picture()},
		}),
		clienttest.Result(llm.ToolResult{CallID: "c:2", Name: "made up!", IsError: true}),
		llm.UserText("in between"),
		clienttest.Result(llm.ToolResult{CallID: "c3", Name: "shell", Parts: []llm.Part{llm.Text("")}}),
		clienttest.Result(llm.ToolResult{
			CallID: "c4", Name: "shell", Parts: []llm.Part{llm.Text("bad")}, IsError: true,
		}),
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("one"), llm.Text(" "), llm.Text("two")}},
		answered(llm.Text("done"), opaque("anthropic",
			`{"type":"thinking","thinking":"cut","signature":"s3"}`)),
		llm.UserText(""),
		answered(opaque("anthropic", `{"type":"thinking","thinking":"cut","signature":"s3"}`)),
		llm.UserText("go on"),
	}
	req.Tools = append(req.Tools, llm.ToolSpec{Name: "bare", Schema: nil})
	req.ReasoningEffort, req.MaxOutputTokens, req.SessionID = "xhigh", 1000, "session-1"
	req.ParallelToolCalls = false
	req.Options = map[string]any{
		"betas": []string{"context-1m-2025-08-07", "b"}, "service_tier": "auto",
		"output_config": map[string]any{"format": nil},
		"metadata":      map[string]any{"n": json.Number("9007199254740993")},
	}
	return req
}

func TestRequestBodies(t *testing.T) {
	budget := newRequest()
	budget.Model, budget.ReasoningEffort = "claude-haiku-4-5", "medium"
	for name, req := range map[string]llm.Request{
		"everything": everything(), "budget": budget,
		"plain": {Model: "m", Messages: []llm.Message{llm.UserText("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			r, body, _ := wire().Sent(t, clienttest.Config{APIKey: clienttest.Key}, req)
			want := map[string]string{"Authorization": "", "Anthropic-Version": "2023-06-01"}
			if name == "everything" {
				want["Anthropic-Beta"] = "context-1m-2025-08-07,b"
			}
			for header, value := range want {
				if got := r.Header.Get(header); got != value {
					t.Errorf("%s: %q, want %q", header, got, value)
				}
			}
			clienttest.Golden(t, *update, name, body)
		})
	}
}

// fields returns the fields of the body for req.
func fields(t *testing.T, req llm.Request) map[string]json.RawMessage {
	t.Helper()
	_, body, err := wire().Sent(t, clienttest.Config{}, req)
	var got map[string]json.RawMessage
	if jsonErr := json.Unmarshal(body, &got); jsonErr != nil {
		t.Fatal(jsonErr, err)
	}
	return got
}

func TestThinking(t *testing.T) {
	const adaptive = `{"display":"summarized","type":"adaptive"}`
	budget := func(n string) string { return `{"budget_tokens":` + n + `,"type":"enabled"}` }
	tests := map[string]struct {
		model, effort    string
		limit            int
		options          map[string]any
		messages         []llm.Message
		thinking, config string
	}{
		"default": {model: "claude-opus-5-5"},
		"new": {
			model: "claude-opus-5-5", effort: "low", thinking: adaptive, config: `{"effort":"low"}`,
		},
		"4.6": {
			model: "claude-opus-4-6", effort: "max", thinking: adaptive, config: `{"effort":"max"}`,
		},
		"unknown": {
			model: "someone/new:free", effort: "own", thinking: adaptive, config: `{"effort":"own"}`,
		},
		"own thinking": {
			model: "claude-sonnet-5-5", effort: "low",
			options:  map[string]any{"thinking": map[string]any{"type": "between_tools"}},
			thinking: `{"type":"between_tools"}`, config: `{"effort":"low"}`,
		},
		"no thinking": {
			model: "claude-opus-5", effort: "low",
			options: map[string]any{"thinking": nil}, config: `{"effort":"low"}`,
		},
		"4.5, low":  {model: "claude-haiku-4-5-20251001", effort: "low", thinking: budget("4096")},
		"4.5, high": {model: "anthropic/claude-sonnet-4.5", effort: "high", thinking: budget("24576")},
		"4.5, max":  {model: "claude-opus-4-5", effort: "max", thinking: budget("32000")},
		"4.5, short answer": {
			model: "claude-opus-4-5", effort: "max", limit: 4000, thinking: budget("2000"),
		},
		"4.5, shorter answer": {model: "claude-opus-4-5", effort: "max", limit: 2047},
		"4.5, own": {
			model: "claude-opus-4-5", effort: "max",
			options:  map[string]any{"thinking": map[string]any{"type": "disabled"}},
			thinking: `{"type":"disabled"}`,
		},
		"4.5, calls of another": {
			model: "claude-opus-4-5", effort: "low", messages: []llm.Message{
				answered(llm.Text("I look."), called("c", "shell", "{}")),
				clienttest.Result(llm.ToolResult{CallID: "c"}),
			},
		},
		"4.5, calls of its own": {
			model: "claude-opus-4-5", effort: "low",
			messages: []llm.Message{answered(opaque("anthropic", `{"type":"thinking"}`), called("c", "shell",
				"{}")), clienttest.Result(llm.ToolResult{CallID: "c"})},
			thinking: budget("4096"),
		},
		"4.5, calls before": {
			model: "claude-opus-4-5", effort: "low", messages: []llm.Message{
				answered(called("c", "shell", "{}")), clienttest.Result(llm.ToolResult{CallID: "c"}),
				answered(llm.Text("done")), llm.UserText("more"),
			},
			thinking: budget("4096"),
		},
	}
	for name, tt := range tests {
		req := newRequest()
		req.Model, req.ReasoningEffort, req.MaxOutputTokens, req.Options = tt.model, tt.effort, tt.limit,
			tt.options
		req.Messages = append(req.Messages, tt.messages...)
		got := fields(t, req)
		if string(got["thinking"]) != tt.thinking || string(got["output_config"]) != tt.config {
			t.Errorf("%s: thinking %s, output_config %s; want %s, %s", name, got["thinking"],
				got["output_config"], tt.thinking, tt.config)
		}
	}
}

// IDs of other providers are made fit, and stay different from each other.
func TestIDsOfOthers(t *testing.T) {
	ids := []string{"call_1-A", "a:1", "a;1", "a_1", "é", "ü", "_"}
	req := newRequest()
	answer, results := llm.Message{Role: llm.RoleAssistant}, llm.Message{Role: llm.RoleTool}
	for _, id := range ids {
		answer.Parts = append(answer.Parts, called(id, "shell", "{}"))
		results.Parts = append(results.Parts, clienttest.Result(llm.ToolResult{
			CallID: id, Name: "shell",
		}).Parts...)
	}
	req.Messages = append(req.Messages, answer, results)
	var turns []struct {
		Content []struct {
			ID        string
			ToolUseID string `json:"tool_use_id"`
		}
	}
	if err := json.Unmarshal(fields(t, req)["messages"], &turns); err != nil {
		t.Fatal(err)
	}
	calls, answers := turns[len(turns)-2].Content, turns[len(turns)-1].Content
	seen := map[string]bool{}
	for i, id := range ids {
		got := calls[i].ID
		fit := !strings.ContainsFunc(got, func(r rune) bool {
			return !strings.ContainsRune("_-0123456789", r) && (r|' ' < 'a' || r|' ' > 'z')
		})
		if seen[got] || got == "" || !fit || answers[i].ToolUseID != got {
			t.Errorf("%q is sent as %q and answered as %q", id, got, answers[i].ToolUseID)
		}
		if i == 0 && got != id {
			t.Errorf("%q is sent as %q, though it is fit", id, got)
		}
		seen[got] = true
	}
}

func TestMaxTokens(t *testing.T) {
	req := newRequest()
	if got := string(fields(t, req)["max_tokens"]); got != "64000" {
		t.Errorf("default: %s", got)
	}
	req.MaxOutputTokens = 5
	if got := string(fields(t, req)["max_tokens"]); got != "5" {
		t.Errorf("5: %s", got)
	}
}

func TestParallelToolCalls(t *testing.T) {
	for _, tt := range []struct {
		tools, parallel bool
		want            string
	}{
		{true, true, ""}, {true, false, `{"disable_parallel_tool_use":true,"type":"auto"}`}, {
			false, false, "",
		},
	} {
		req := newRequest()
		req.ParallelToolCalls = tt.parallel
		if !tt.tools {
			req.Tools = nil
		}
		if got := string(fields(t, req)["tool_choice"]); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

// Each request has a mark where the one before it had its last, so that the cache is found.
func TestCacheMarks(t *testing.T) {
	const mark = `"cache_control":{"type":"ephemeral"}`
	req := newRequest()
	for turn := range 4 {
		_, body, _ := wire().Sent(t, clienttest.Config{}, req)
		want := min(turn, 1) + 3
		if got := bytes.Count(body, []byte(mark)); got != want {
			t.Errorf("turn %d: %d marks, want %d", turn, got, want)
		}
		for i, m := range req.Messages {
			if m.Role == llm.RoleUser {
				marked := bytes.Contains(body, []byte(`{"text":"`+m.Text()+`",`+mark))
				if last := i >= len(req.Messages)-3; marked != last {
					t.Errorf("turn %d: message %d is marked: %t, want %t in\n%s", turn, i, marked, last, body)
				}
			}
		}
		req.Messages = append(req.Messages, answered(llm.Text("yes")),
			llm.UserText("and "+string(rune('a'+turn))))
	}
	for _, own := range []any{nil, map[string]any{"type": "ephemeral", "ttl": "1h"}} {
		req.Options = map[string]any{"cache_control": own}
		_, body, _ := wire().Sent(t, clienttest.Config{}, req)
		if bytes.Contains(body, []byte(mark)) ||
			bytes.Contains(body, []byte(`"ttl":"1h"`)) != (own != nil) {
			t.Errorf("%v: sent %s", own, body)
		}
	}
}

// The server rejects white space at the end of an answer only if the model continues it.
func TestAnswersThatGoOn(t *testing.T) {
	req := newRequest()
	req.Messages = append(req.Messages, answered(llm.Text("yes \n")))
	if got := string(fields(t, req)["messages"]); !strings.Contains(got, `"text":"yes"`) {
		t.Errorf("sent %s", got)
	}
	req.Messages = append(req.Messages, llm.UserText("x"))
	if got := string(fields(t, req)["messages"]); !strings.Contains(got, `"text":"yes \n"`) {
		t.Errorf("sent %s", got)
	}
}

func unsendable() map[string]func(*llm.Request) {
	return map[string]func(*llm.Request){
		"thinking is not JSON": func(r *llm.Request) {
			r.Messages[0] = answered(opaque("anthropic", `{`), llm.Text("x"))
		},
		"betas are no list": func(r *llm.Request) { r.Options = map[string]any{"betas": 7} },
		"a beta is no name": func(r *llm.Request) { r.Options = map[string]any{"betas": []any{7}} },
		"a beta with a break": func(r *llm.Request) {
			r.Options = map[string]any{"betas": []string{"a\r\nb"}}
		},
		"unknown effort": func(r *llm.Request) {
			r.Model, r.ReasoningEffort = "claude-haiku-4-5", "much"
		},
		"image in an answer": func(r *llm.Request) { r.Messages[0] = answered(picture()) },
		"result in a result": func(r *llm.Request) {
			inner := clienttest.Result(llm.ToolResult{})
			r.Messages[0] = clienttest.Result(llm.ToolResult{Parts: inner.Parts})
		},
	}
}
