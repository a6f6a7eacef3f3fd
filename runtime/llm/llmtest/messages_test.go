package llmtest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

const (
	userTurn   = `{"role":"user","content":"hi"}`
	callTurn   = `{"role":"assistant","content":[` + callBlock + `]}`
	callBlock  = `{"type":"tool_use","id":"c","name":"x","input":{}}`
	resultTurn = `{"role":"user","content":[` + okBlock + `]}`
	okBlock    = `{"type":"tool_result","tool_use_id":"c","content":"ok"}`
	textBlock  = `{"type":"text","text":"hm"}`
	imageBlock = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}`
)

func messages(turns ...string) string {
	return `{"model":"m","max_tokens":5000,"stream":true,"messages":[` + strings.Join(turns, ",") +
		`]}`
}

func message(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

// instead replaces a part of a body, which must be present.
func instead(t *testing.T, body, old, now string) string {
	t.Helper()
	if !strings.Contains(body, old) {
		t.Fatalf("%s is not in %s", old, body)
	}
	return strings.Replace(body, old, now, 1)
}

func TestMessagesViolations(t *testing.T) {
	whole := messages(userTurn, callTurn, resultTurn)
	inputSchema := func(schema string) string {
		return `"tools":[{"name":"x","input_schema":` + schema + `}]`
	}
	marked := instead(t, textBlock, "}", `,"cache_control":{"type":"ephemeral","ttl":"1h"}}`)
	oneTool := `,` + inputSchema(`{"type":"object"}`)
	testViolations(t, messagesPath, map[string]violation{
		"sound":                 {more(whole, `"tool_choice":{"type":"auto"},"system":"s"`+oneTool), ""},
		"sound, users in a row": {messages(userTurn, userTurn), ""},
		"sound, 4 marks":        {messages(message("user", marked, marked, marked, marked)), ""},
		"sound, empty result": {messages(userTurn, callTurn, message("user",
			`{"type":"tool_result","tool_use_id":"c"}`, textBlock, imageBlock)), ""},
		"sound, thinking": {more(messages(userTurn),
			`"thinking":{"type":"enabled","budget_tokens":1024}`), ""},
		"sound, calls of before": {more(messages(userTurn, callTurn, resultTurn, message("assistant",
			textBlock), userTurn), `"thinking":{"type":"enabled","budget_tokens":1024}`), ""},
		"sound, redacted": {messages(userTurn, message("assistant",
			`{"type":"redacted_thinking","data":"x"}`, textBlock), userTurn), ""},
		"no JSON":       {`{`, "unexpected EOF"},
		"unknown field": {more(whole, `"input":1`), `unknown field "input"`},
		"unknown field in a turn": {
			instead(t, whole, `"role"`, `"name":"x","role"`), `unknown field "name"`,
		},
		"unknown field in a block": {
			messages(message("user", `{"type":"text","text":"x","x":1}`)), `unknown field "x"`,
		},
		"no model":      {instead(t, whole, `"model":"m",`, ""), "model is missing"},
		"not a stream":  {instead(t, whole, `"stream":true,`, ""), "stream is not set"},
		"no max_tokens": {instead(t, whole, `"max_tokens":5000,`, ""), "max_tokens is missing"},
		"no messages":   {messages(), "messages are empty"},
		"role system":   {messages(message("system", textBlock)), `the role "system" is unknown`},
		"role tool": {
			messages(userTurn, callTurn, message("tool", okBlock)), `the role "tool" is unknown`,
		},
		"begins with an answer": {
			messages(message("assistant", textBlock), userTurn), "the first message is not the user's",
		},
		"ends with an answer": {
			messages(userTurn, message("assistant", textBlock)), "does not end with a user message",
		},
		"empty content": {messages(message("user")), "content is empty"},
		"no content":    {messages(`{"role":"user"}`), "content is neither"},
		"empty answer":  {messages(userTurn, message("assistant"), userTurn), "content is empty"},
		"empty text":    {messages(`{"role":"user","content":""}`), "no visible character"},
		"blank text": {messages(userTurn, message("assistant",
			`{"type":"text","text":" \n"}`), userTurn), "no visible character"},
		"blank system": {
			more(messages(userTurn), `"system":[{"type":"text","text":" "}]`), "no visible character",
		},
		"unknown block": {messages(message("user", `{"type":"video"}`)), `a block of type "video"`},
		"image in an answer": {
			messages(userTurn, message("assistant", imageBlock), userTurn), "an image is not allowed",
		},
		"image of a wrong type": {
			messages(message("user", instead(t, imageBlock, "png", "tiff"))), `type "image/tiff"`,
		},
		"image is no base64": {
			messages(message("user", instead(t, imageBlock, "cG5n", "?"))), "not base64",
		},
		"image by address": {
			messages(message("user", instead(t, imageBlock, "base64", "url"))), "not base64",
		},
		"call by the user": {messages(message("user", callBlock)), `a block of type "tool_use"`},
		"result by the model": {
			messages(userTurn, callTurn, message("assistant", okBlock), userTurn),
			`a block of type "tool_result"`,
		},
		"result without call": {messages(userTurn, resultTurn), "which was not made before"},
		"two results": {
			messages(userTurn, callTurn, message("user", okBlock, okBlock)), "answered more than once",
		},
		"no result": {messages(userTurn, callTurn, userTurn), `the call "c" of x has no result`},
		"result not first": {
			messages(userTurn, callTurn, message("user", textBlock, okBlock)), "does not stand first",
		},
		"results in two messages": {messages(userTurn, message("assistant", callBlock,
			instead(t, callBlock, `"c"`, `"d"`)), resultTurn, instead(t, resultTurn, `"c"`,
			`"d"`)), `the call "d" of x has no result`},
		"blank result": {messages(userTurn, callTurn, message("user", instead(t, okBlock, "ok",
			" "))), "no visible character"},
		"result of a wrong type": {messages(userTurn, callTurn, message("user", instead(t, okBlock,
			`"ok"`, "7"))), "the content of a result is neither"},
		"error without a text": {messages(userTurn, callTurn, message("user",
			`{"type":"tool_result","tool_use_id":"c","is_error":true}`)), "the result of an error is empty"},
		"call with an odd ID": {
			messages(userTurn, instead(t, callTurn, `"c"`, `"c:1"`), userTurn), `"c:1" is not the ID`,
		},
		"call with an odd name": {
			messages(userTurn, instead(t, callTurn, `"x"`, `"a b"`), userTurn), `"a b" is not a valid ` +
				`tool name`,
		},
		"call with a text as input": {
			messages(userTurn, instead(t, callTurn, `{}`, `"{}"`), userTurn), "input is not an object",
		},
		"call without input": {messages(userTurn, instead(t, callTurn, `,"input":{}`, ``),
			userTurn), "input is not an object"},
		"calls of one ID": {
			messages(userTurn, callTurn, resultTurn, callTurn, resultTurn), `two calls have the ID "c"`,
		},
		"made-up thinking": {messages(userTurn, message("assistant",
			`{"type":"thinking","thinking":"x","signature":"y"}`,
			textBlock), userTurn), "invalid signature"},
		"thinking, not signed": {messages(userTurn, message("assistant",
			`{"type":"thinking","thinking":"x"}`, textBlock), userTurn), "invalid signature"},
		"thinking with a mark": {messages(userTurn, message("assistant",
			`{"type":"thinking","cache_control":{"type":"ephemeral"}}`,
			textBlock), userTurn), "unknown field"},
		"thinking last": {messages(userTurn, message("assistant", textBlock,
			`{"type":"redacted_thinking","data":"x"}`), userTurn), "the last block is thinking"},
		"redacted without data": {messages(userTurn, message("assistant", `{"type":"redacted_thinking"}`,
			textBlock), userTurn), "has no data"},
		"5 marks": {more(messages(message("user", marked, marked, marked, marked)),
			`"cache_control":{"type":"ephemeral"}`), "more than 4"},
		"mark of a wrong kind": {
			messages(message("user", instead(t, marked, "1h", "2h"))), "is not ephemeral",
		},
		"budget too small": {
			more(whole, `"thinking":{"type":"enabled","budget_tokens":1023}`), "budget_tokens are not",
		},
		"budget too large": {
			more(whole, `"thinking":{"type":"enabled","budget_tokens":5000}`), "budget_tokens are not",
		},
		"calls before thinking": {
			more(whole, `"thinking":{"type":"enabled","budget_tokens":1024}`), "does not begin with it",
		},
		"adaptive with a budget": {
			more(whole, `"thinking":{"type":"adaptive","budget_tokens":1024}`), "a field too many",
		},
		"disabled with a display": {
			more(whole, `"thinking":{"type":"disabled","display":"omitted"}`), "a field too many",
		},
		"unknown thinking": {more(whole, `"thinking":{"type":"hard"}`), "is unknown"},
		"unknown display": {
			more(whole, `"thinking":{"type":"adaptive","display":"all"}`), `the display "all"`,
		},
		"unknown effort": {more(whole, `"output_config":{"effort":"minimal"}`), `the effort "minimal"`},
		"choice without tools": {
			more(whole, `"tool_choice":{"type":"auto"}`), "tool_choice without tools",
		},
		"unknown choice": {
			more(whole, `"tool_choice":{"type":"required"}`+oneTool), `of type "required"`,
		},
		"tool of the server": {
			more(whole, `"tools":[{"type":"web_search_20250305","name":"x",`+
				`"input_schema":{"type":"object"}}]`),
			"is of type",
		},
		"schema is no object": {more(whole, inputSchema(`{"type":"string"}`)), `not of type "object"`},
		"no schema":           {more(whole, `"tools":[{"name":"x"}]`), `not of type "object"`},
	})
}

func TestMessagesKeyAndVersion(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Sequence())
	if status, answer := post(t, s, messagesPath, "wrong", messages(userTurn)); status != 401 ||
		!strings.Contains(answer, "authentication_error") {
		t.Errorf("wrong key: %d %s", status, answer)
	}
	status, _ := send(t, s, messagesPath, messages(userTurn), "Authorization", "Bearer "+s.Key())
	if status != 401 {
		t.Errorf("the key as a bearer: %d", status)
	}
	c, err := anthropic.New(anthropic.Config{
		APIKey: s.Key(), BaseURL: s.URL(), HTTPClient: s.Client(),
		Headers: map[string]string{"anthropic-version": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = llm.Complete(t.Context(), c, llm.Request{
		Model: "m", Messages: []llm.Message{llm.UserText("x")},
	})
	if v := s.TakeViolations(); llm.KindOf(err) != llm.KindInvalid || len(v) != 1 ||
		!strings.Contains(v[0], "anthropic-version") {
		t.Errorf("got %v, violations %q", err, v)
	}
}

// Thinking that came before a call comes back, as it was and before the call.
func TestMessagesThinkingComesBack(t *testing.T) {
	changes := map[string]struct {
		change func(parts []llm.Part) []llm.Part
		want   string
	}{
		"as it was": {func(p []llm.Part) []llm.Part { return p }, ""},
		"left out": {
			func(p []llm.Part) []llm.Part { return p[1:] },
			`the thinking before the call "call_0_0" is missing`,
		},
		"later": {
			func(p []llm.Part) []llm.Part { return []llm.Part{p[1], p[2], p[0], p[3]} },
			`the thinking before the call "call_0_0" is missing`,
		},
		"changed": {func(p []llm.Part) []llm.Part {
			r := *p[0].Reasoning
			r.Opaque = json.RawMessage(strings.Replace(string(r.Opaque), "hm", "ha", 1))
			p[0].Reasoning = &r
			return p
		}, "invalid signature"},
	}
	for name, tt := range changes {
		t.Run(name, func(t *testing.T) {
			use := llmtest.Reply{Reasoning: "hm", Text: "x", Calls: []llmtest.Call{{
				Name: "a", Arguments: "{}",
			}, {Name: "b", Arguments: "{}"}}}
			s := llmtest.NewServer(t, llmtest.Sequence(use, llmtest.Text("done")))
			c := messagesClient(t, s)
			req := llm.Request{Model: "m", Messages: []llm.Message{llm.UserText("x")}}
			resp, err := llm.Complete(t.Context(), c, req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Message.Parts = tt.change(resp.Message.Parts)
			req.Messages = append(req.Messages, resp.Message)
			for _, call := range resp.Message.ToolCalls() {
				r := llm.ToolResult{CallID: call.ID, Name: call.Name}
				req.Messages = append(req.Messages, llm.Message{
					Role: llm.RoleTool, Parts: []llm.Part{{Kind: llm.PartToolResult, ToolResult: &r}},
				})
			}
			_, err = llm.Complete(t.Context(), c, req)
			v := strings.Join(s.TakeViolations(), " ")
			if (err == nil) != (tt.want == "") || !strings.Contains(v, tt.want) {
				t.Errorf("got %v, violations %q; want %q", err, v, tt.want)
			}
		})
	}
}

func messagesClient(t *testing.T, s *llmtest.Server) llm.Client {
	t.Helper()
	c, err := anthropic.New(anthropic.Config{
		APIKey: s.Key(), BaseURL: s.URL(), HTTPClient: s.Client(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
}

// A brain receives the request of the client.
func TestMessagesRequest(t *testing.T) {
	s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("ok") })
	image := llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: []byte("png")}}
	call := llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
		ID: "c", Name: "x", Arguments: `{"a":"<\\u003c&>"}`,
	}}
	result := llm.Part{Kind: llm.PartToolResult, ToolResult: &llm.ToolResult{
		CallID: "c", Name: "x", Parts: []llm.Part{llm.Text("no"), image}, IsError: true,
	}}
	want := llm.Request{
		Model: "m", System: "s", ReasoningEffort: "high", MaxOutputTokens: 7,
		Tools: []llm.ToolSpec{{Name: "x", Description: "d", Schema: object()}}, Messages: []llm.Message{
			{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("one"), image}},
			llm.UserText("two"),
			{Role: llm.RoleAssistant, Parts: []llm.Part{llm.Text("I look."), call}},
			{Role: llm.RoleTool, Parts: []llm.Part{result}},
			{Role: llm.RoleUser, Parts: []llm.Part{image}},
		},
	}
	for _, parallel := range []bool{true, false} {
		want.ParallelToolCalls = parallel
		if _, err := llm.Complete(t.Context(), messagesClient(t, s), want); err != nil {
			t.Fatal(err)
		}
		requests := s.Requests()
		last := requests[len(requests)-1]
		if diff := cmp.Diff(want, last.Request); diff != "" || last.API != llmtest.Messages {
			t.Errorf("%s (-want +got):\n%s", last.API, diff)
		}
	}
}
