package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

func content(s string) string { return `{"choices":[{"index":0,"delta":{"content":"` + s + `"}}]}` }
func finish(s string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + s + `"}]}`
}

func toolCalls(s string) string { return `{"choices":[{"delta":{"tool_calls":[` + s + `]}}]}` }

// Streams as compatible servers write them.
func TestChatDialects(t *testing.T) {
	tests := map[string]struct {
		stream string
		want   []llm.Part
		finish llm.FinishReason
	}{
		"no [DONE]": {sse(content("a"), finish("stop")), parts(llm.Text("a")), llm.FinishStop},
		"with [DONE]": {
			sse(content("a"), finish("stop"), "[DONE]"), parts(llm.Text("a")), llm.FinishStop,
		},
		"no last line": {
			strings.TrimRight(sse(content("a"), finish("stop")), "\n"), parts(llm.Text("a")), llm.FinishStop,
		},
		"byte order mark": {
			"\ufeff" + sse(content("a"), finish("stop")), parts(llm.Text("a")), llm.FinishStop,
		},
		"an event of several data lines": {
			"data: {\"choices\":[{\"delta\":\ndata: " +
				"{\"content\":\"a\"},\ndata:\"finish_reason\":\"stop\"}]}\n\n",
			parts(llm.Text("a")), llm.FinishStop,
		},
		"a thousand comments": {
			strings.Repeat(": wait\n\n", 1000) + sse(content("a"),
				finish("stop")), parts(llm.Text("a")), llm.FinishStop,
		},
		"unknown finish reason": {
			sse(content("a"), finish("eos")), parts(llm.Text("a")), llm.FinishStop,
		},
		"what follows the finish is no text": {
			sse(content("a"), finish("stop"), content("b"), "[DONE]"), parts(llm.Text("a")), llm.FinishStop,
		},
		"reasoning under both names": {
			sse(`{"choices":[{"delta":{"reasoning_content":"x"}}]}`,
				`{"choices":[{"delta":{"reasoning":"y"}}]}`, content("a"), finish("stop")),
			parts(thought("xy"), llm.Text("a")), llm.FinishStop,
		},
		"refusal": {
			sse(`{"choices":[{"delta":{"refusal":"no"}}]}`, finish("stop")), parts(llm.Text("no")),
			llm.FinishStop,
		},
		"other forms": {
			sse(`{"created":1.5,"choices":[{"delta":{"content":"a","reasoning":{"x":1}},"logprobs":[]}],`+
				`"usage":null}`, finish("stop")),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"calls, finish stop": {
			sse(toolCalls(`{"index":0,"id":"1","function":{"name":"x","arguments":"{}"}}`), finish("stop")),
			parts(called("1", "x", "{}")), llm.FinishToolCalls,
		},
		"calls without index": {
			sse(toolCalls(`{"id":"1","function":{"name":"x","arguments":"{}"}},{"id":"2",`+
				`"function":{"name":"y","arguments":"{}"}}`), finish("tool_calls")),
			parts(called("1", "x", "{}"), called("2", "y", "{}")), llm.FinishToolCalls,
		},
		"calls without index and id": {
			sse(toolCalls(`{"function":{"name":"x","arguments":"{}"}}`),
				toolCalls(`{"function":{"name":"x","arguments":"[]"}}`), finish("tool_calls")),
			parts(called("", "x", "{}"), called("", "x", "[]")), llm.FinishToolCalls,
		},
		"calls of one index": {
			sse(toolCalls(`{"index":0,"id":"1","function":{"name":"x","arguments":"{"}}`),
				toolCalls(`{"index":0,"function":{"arguments":"}"}}`),
				toolCalls(`{"index":0,"id":"2","function":{"name":"y","arguments":"{}"}}`),
				finish("tool_calls")),
			parts(called("1", "x", "{}"), called("2", "y", "{}")), llm.FinishToolCalls,
		},
		"id and name in each piece": {
			sse(toolCalls(`{"index":0,"id":"1","function":{"name":"x","arguments":"{"}}`),
				toolCalls(`{"index":0,"id":"1","function":{"name":"x","arguments":"}"}}`),
				finish("tool_calls")),
			parts(called("1", "x", "{}")), llm.FinishToolCalls,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := llm.Complete(t.Context(), wire(openai.Chat).Raw(t, tt.stream), newRequest())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, resp.Message.Parts); diff != "" || resp.Finish != tt.finish {
				t.Errorf("finish %s, message (-want +got):\n%s", resp.Finish, diff)
			}
		})
	}
}

func event(typ, fields string) string { return `{"type":"` + typ + `",` + fields + `}` }

func delta(output, s string) string {
	return event("response.output_text.delta", `"output_index":`+output+`,"delta":"`+s+`"`)
}

func itemDone(output, item string) string {
	return event("response.output_item.done", `"output_index":`+output+`,"item":`+item)
}

func opaque(text, raw string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
		Text: text, Provider: "openai", Opaque: json.RawMessage(raw),
	}}
}

func TestResponsesDialects(t *testing.T) {
	completed := event("response.completed", `"response":{"id":"r","model":"m",`+
		`"status":"completed","output":[]}`)
	tests := map[string]struct {
		stream []string
		want   []llm.Part
		finish llm.FinishReason
	}{
		"unknown events of any form": {
			list(event("response.new_thing", `"delta":{"x":1},"item":7,"response":[]`), delta("0", "a"),
				completed),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"text at the end of the item only": {
			list(itemDone("0", `{"type":"message","content":[{"type":"output_text","text":"a"},`+
				`{"type":"refusal","refusal":"b"}]}`), completed),
			parts(llm.Text("ab")), llm.FinishStop,
		},
		"everything at the end only": {
			list(event("response.completed", `"response":{"output":[{"type":"message",`+
				`"content":[{"text":"a"}]},`+
				`{"type":"function_call","call_id":"1","name":"x","arguments":"{}"}]}`)),
			parts(llm.Text("a"), called("1", "x", "{}")), llm.FinishToolCalls,
		},
		"two messages in a row": {
			list(delta("0", "a"), delta("0", "b"), delta("1", "c"), completed),
			parts(llm.Text("ab\n\nc")), llm.FinishStop,
		},
		"arguments at the end of the item only": {
			list(itemDone("0", `{"type":"function_call","call_id":"1","name":"x","arguments":"{}"}`),
				completed),
			parts(called("1", "x", "{}")), llm.FinishToolCalls,
		},
		"pieces before the name": {
			list(event("response.function_call_arguments.delta", `"output_index":0,"delta":"{"`),
				event("response.function_call_arguments.done", `"output_index":0,"arguments":"{}"`),
				itemDone("0", `{"type":"function_call","call_id":"1","name":"x","arguments":"{}"}`), completed),
			parts(called("1", "x", "{}")), llm.FinishToolCalls,
		},
		"reasoning without encryption, in the open": {
			list(itemDone("0", `{"type":"reasoning","id":"1","summary":[],`+
				`"content":[{"type":"reasoning_text","text":"hm"}]}`), delta("1", "a"), completed),
			parts(opaque("hm", `{"type":"reasoning","id":"1","summary":[],`+
				`"content":[{"type":"reasoning_text","text":"hm"}]}`), llm.Text("a")),
			llm.FinishStop,
		},
		"reasoning of an id only": {
			list(itemDone("0", `{"type":"reasoning","id":"1","summary":[]}`), delta("1", "a"), completed),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"summary in parts": {
			list(event("response.reasoning_summary_part.added", `"summary_index":0`),
				event("response.reasoning_summary_text.delta", `"delta":"a"`),
				event("response.reasoning_summary_part.added", `"summary_index":1`),
				event("response.reasoning_summary_text.delta", `"delta":"b"`), completed),
			parts(thought("a\n\nb")), llm.FinishStop,
		},
		"incomplete": {
			list(delta("0", "a"), event("response.incomplete",
				`"response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}`)),
			parts(llm.Text("a")), llm.FinishLength,
		},
		"completed, but incomplete": {
			list(delta("0", "a"), event("response.completed",
				`"response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}`)),
			parts(llm.Text("a")), llm.FinishContentFilter,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := wire(openai.Responses).Raw(t, sse(tt.stream...))
			resp, err := llm.Complete(t.Context(), c, newRequest())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, resp.Message.Parts); diff != "" || resp.Finish != tt.finish {
				t.Errorf("finish %s, message (-want +got):\n%s", resp.Finish, diff)
			}
		})
	}
}

func TestStreamErrors(t *testing.T) {
	failed := func(err string) string {
		return sse(event("response.failed", `"response":{"status":"failed","error":`+err+`}`))
	}
	tests := map[string]struct {
		api    openai.API
		stream string
		kind   llm.ErrorKind
		text   string
	}{
		"failed: server": {
			openai.Responses, failed(`{"code":"server_error","message":"oops"}`), llm.KindServer, "oops",
		},
		"failed: rate limit": {
			openai.Responses,
			failed(`{"code":"rate_limit_exceeded","message":"slow"}`), llm.KindRateLimit, "slow",
		},
		"failed: context": {
			openai.Responses,
			failed(`{"code":"context_length_exceeded","message":"long"}`), llm.KindContextLength, "long",
		},
		"failed: quota": {
			openai.Responses, failed(`{"code":"insufficient_quota","message":"pay"}`), llm.KindQuota, "pay",
		},
		"failed: overloaded": {
			openai.Responses,
			failed(`{"code":"server_is_overloaded","message":"busy"}`), llm.KindOverloaded, "busy",
		},
		"failed: prompt": {
			openai.Responses, failed(`{"code":"invalid_prompt","message":"bad"}`), llm.KindInvalid, "bad",
		},
		"failed: policy": {
			openai.Responses, failed(`{"code":"invalid_prompt","message":"against our usage policy"}`),
			llm.KindContentFilter, "policy",
		},
		"failed: no reason": {openai.Responses, failed(`null`), llm.KindServer, "without a text"},
		"failed: cancelled": {openai.Responses, sse(event("response.completed",
			`"response":{"status":"cancelled"}`)), llm.KindServer, "without a text"},
		"error event": {
			openai.Responses, sse(event("error", `"code":"server_error","message":"oops","param":null`)),
			llm.KindServer, "oops",
		},
		"error event, nested": {
			openai.Responses,
			sse(event("error", `"error":{"type":"invalid_request_error",`+
				`"code":"context_length_exceeded","message":"long"}`)), llm.KindContextLength, "long",
		},
		"error event, bare": {
			openai.Responses,
			sse(`{"error":{"message":"bare","type":"invalid_request_error"}}`), llm.KindInvalid, "bare",
		},
		"error event, no reason": {
			openai.Responses, sse(`{"type":"error"}`), llm.KindServer, "without a text",
		},
		"no JSON": {openai.Responses, sse(`{"type":`), llm.KindStream, "not valid JSON"},
		"no type": {openai.Responses, sse(`{}`), llm.KindStream, "no type"},
		"wrong form": {openai.Responses, sse(event("response.output_text.delta",
			`"delta":7`)), llm.KindStream, "is not understood"},
		"arguments differ": {
			openai.Responses,
			sse(event("response.function_call_arguments.delta", `"output_index":0,"delta":"{x"`),
				event("response.function_call_arguments.done", `"output_index":0,"arguments":"{y}"`)),
			llm.KindStream, "differ from their pieces",
		},
		"[DONE] is no end of a response": {
			openai.Responses, sse("[DONE]"), llm.KindStream, "before it was complete",
		},
		"nothing at all":       {openai.Responses, "", llm.KindStream, "before it was complete"},
		"chat: nothing at all": {openai.Chat, "", llm.KindStream, "before it was complete"},
		"chat: [DONE] without finish": {
			openai.Chat, sse(content("a"), "[DONE]"), llm.KindStream, "before it was complete",
		},
		"chat: error": {openai.Chat, sse(content("a"),
			`{"error":{"message":"oops","code":"server_error"}}`), llm.KindServer, "oops"},
		"chat: error of a gateway": {
			openai.Chat,
			sse(`{"id":"x","error":{"code":429,"message":"slow"},"choices":[]}`), llm.KindRateLimit, "slow",
		},
		"chat: error is a text":       {openai.Chat, sse(`{"error":"oops"}`), llm.KindServer, "oops"},
		"chat: error of another form": {openai.Chat, sse(`{"error":[1]}`), llm.KindServer, "[1]"},
		"chat: finish is error": {
			openai.Chat, sse(content("a"), finish("error")), llm.KindServer, "without a text",
		},
		"chat: no JSON": {openai.Chat, sse(`{"choices":`), llm.KindStream, "is not understood"},
		"chat: wrong form": {
			openai.Chat, sse(`{"choices":[{"delta":{"content":["a"]}}]}`),
			llm.KindStream, "is not understood",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := llm.Complete(t.Context(), wire(tt.api).Raw(t, tt.stream), newRequest())
			if llm.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want kind %s with %q", err, tt.kind, tt.text)
			}
		})
	}
}

func parts(p ...llm.Part) []llm.Part { return p }

func list(s ...string) []string { return s }
