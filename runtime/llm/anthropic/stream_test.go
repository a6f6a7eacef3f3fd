package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

func start(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
}

func piece(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":` + delta + `}`
}

func stop(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

func ended(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason +
		`"},"usage":{"output_tokens":5}}`
}

const (
	opened = `{"type":"message_start","message":{"id":"msg","model":"m",` +
		`"usage":{"input_tokens":3,"cache_read_input_tokens":2,"cache_creation_input_tokens":1,` +
		`"output_tokens":1}}}`
	stopped = `{"type":"message_stop"}`
	aText   = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`
	aTool   = `{"type":"tool_use","id":"c","name":"x","input":{}}`
)

func TestStreams(t *testing.T) {
	tests := map[string]struct {
		stream []string
		want   []llm.Part
		finish llm.FinishReason
	}{
		"text that starts with content": {
			list(opened, aText, piece("0", `{"type":"text_delta","text":"b"}`), stop("0"), ended("end_turn"),
				stopped),
			parts(llm.Text("ab")), llm.FinishStop,
		},
		"unknown events, blocks and pieces": {
			list(opened, `{"type":"ping"}`, `{"type":"new","index":"x","delta":7}`, aText,
				piece("0", `{"type":"citations_delta","citation":{"x":1}}`), stop("0"),
				start("1", `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`),
				piece("1", `{"type":"input_json_delta","partial_json":"{}"}`), stop("1"), ended("new_reason"),
				stopped),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"thinking between calls": {
			list(opened, start("0", `{"type":"thinking","thinking":"","signature":"","new":{"a": 1.50}}`),
				piece("0", `{"type":"thinking_delta","thinking":"h<"}`),
				piece("0", `{"type":"thinking_delta","thinking":"m"}`),
				piece("0", `{"type":"signature_delta","signature":"s+"}`),
				piece("0", `{"type":"signature_delta","signature":"/="}`), stop("0"),
				start("1", `{"type":"redacted_thinking","data":"x+/=" }`), stop("1"), start("2", aTool),
				piece("2", `{"type":"input_json_delta","partial_json":""}`),
				piece("2", `{"type":"input_json_delta","partial_json":"{\"k\":1}"}`), stop("2"),
				start("3", `{"type":"thinking","thinking":"","signature":""}`),
				piece("3", `{"type":"signature_delta","signature":"only"}`), stop("3"),
				start("4", `{"type":"tool_use","id":"d","name":"y","input":{"k": 2}}`), stop("4"),
				ended("tool_use"), stopped),
			parts(
				kept("h<m", `{"new":{"a":1.50},"signature":"s+/=","thinking":"h\u003cm","type":"thinking"}`),
				kept("", `{"type":"redacted_thinking","data":"x+/=" }`), called("c", "x", `{"k":1}`),
				kept("", `{"signature":"only","thinking":"","type":"thinking"}`), called("d", "y", `{"k": 2}`)),
			llm.FinishToolCalls,
		},
		"thinking without a signature": {
			list(opened, start("0", `{"type":"thinking","thinking":"h"}`), stop("0"),
				start("1", `{"type":"thinking","thinking":""}`), stop("1"), ended("end_turn"), stopped),
			[]llm.Part{{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
				Text: "h", Provider: "anthropic",
			}}},
			llm.FinishStop,
		},
		"pieces beat the start": {
			list(opened, start("0", `{"type":"tool_use","id":"c","name":"x","input":{"k":1}}`),
				piece("0", `{"type":"input_json_delta","partial_json":"{\"k\":2}"}`), stop("0"),
				ended("tool_use"), stopped),
			parts(called("c", "x", `{"k":2}`)), llm.FinishToolCalls,
		},
		"calls decide": {
			list(opened, start("0", aTool), stop("0"), ended("end_turn"), stopped),
			parts(called("c", "x", "")), llm.FinishToolCalls,
		},
		"stop sequence": {
			list(opened, aText, stop("0"), ended("stop_sequence"), stopped), parts(llm.Text("a")),
			llm.FinishStop,
		},
		"max_tokens": {
			list(opened, aText, stop("0"), start("1", aTool), stop("1"), ended("max_tokens"), stopped),
			parts(llm.Text("a")), llm.FinishLength,
		},
		"context is full": {
			list(opened, aText, stop("0"), ended("model_context_window_exceeded"), stopped),
			parts(llm.Text("a")), llm.FinishLength,
		},
		"refusal": {
			list(opened, aText, stop("0"), ended("refusal"), stopped), parts(llm.Text("a")),
			llm.FinishContentFilter,
		},
		"no content": {list(opened, ended("end_turn"), stopped), nil, llm.FinishStop},
		"what follows": {
			list(opened, aText, stop("0"), ended("end_turn"), stopped, `{"type":`), parts(llm.Text("a")),
			llm.FinishStop,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := llm.Complete(t.Context(), wire().Raw(t, sse(tt.stream...)), newRequest())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, resp.Message.Parts); diff != "" || resp.Finish != tt.finish {
				t.Errorf("finish %s, message (-want +got):\n%s", resp.Finish, diff)
			}
			if want := (llm.Usage{Input: 3, Output: 5, CacheRead: 2, CacheWrite: 1}); resp.Usage != want ||
				resp.ResponseID != "msg" || resp.Model != "m" {
				t.Errorf("got %+v", resp)
			}
		})
	}
}

func kept(text, raw string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
		Text: text, Provider: "anthropic", Opaque: json.RawMessage(raw),
	}}
}

func TestLastUsageCounts(t *testing.T) {
	last := `{"type":"message_delta","delta":{"stop_reason":"end_turn"},` +
		`"usage":{"input_tokens":30,"cache_read_input_tokens":null,"cache_creation_input_tokens":10,` +
		`"output_tokens":50,"output_tokens_details":{"thinking_tokens":40}}}`
	resp, err := llm.Complete(t.Context(), wire().Raw(t, sse(opened, aText, stop("0"), last, stopped)),
		newRequest())
	if want := (llm.Usage{
		Input: 30, Output: 50, Reasoning: 40, CacheRead: 2, CacheWrite: 10,
	}); err != nil || resp.Usage != want {
		t.Errorf("got %+v, %v", resp.Usage, err)
	}
}

func TestStreamErrors(t *testing.T) {
	failed := func(typ, message string) string {
		return sse(opened, aText,
			`{"type":"error","error":{"type":"`+typ+`","message":"`+message+`"},"request_id":"r"}`)
	}
	tests := map[string]struct {
		stream string
		kind   llm.ErrorKind
		text   string
	}{
		"overloaded": {failed("overloaded_error", "Overloaded"), llm.KindOverloaded, "Overloaded"},
		"rate limit": {failed("rate_limit_error", "slow"), llm.KindRateLimit, "slow"},
		"server":     {failed("api_error", "Internal server error"), llm.KindServer, "Internal"},
		"timeout":    {failed("timeout_error", "late"), llm.KindTimeout, "late"},
		"invalid":    {failed("invalid_request_error", "bad"), llm.KindInvalid, "bad"},
		"long": {
			failed("invalid_request_error", "prompt is too long: 5 > 4"), llm.KindContextLength, "5 > 4",
		},
		"too large":  {failed("request_too_large", "big"), llm.KindContextLength, "big"},
		"key":        {failed("authentication_error", "key"), llm.KindAuth, "key"},
		"permission": {failed("permission_error", "not you"), llm.KindAuth, "not you"},
		"billing":    {failed("billing_error", "pay"), llm.KindQuota, "pay"},
		"not found":  {failed("not_found_error", "model: x"), llm.KindNotFound, "model: x"},
		"unknown":    {failed("new_error", "hm"), llm.KindServer, "hm"},
		"no reason":  {sse(`{"type":"error"}`), llm.KindServer, "without a text"},
		"bare":       {sse(`{"error":{"message":"bare","type":"api_error"}}`), llm.KindServer, "bare"},
		"no JSON":    {sse(`{"type":`), llm.KindStream, "not valid JSON"},
		"no type":    {sse(`{}`), llm.KindStream, "no type"},
		"wrong form": {
			sse(opened, `{"type":"content_block_delta","index":"x"}`), llm.KindStream, "is not understood",
		},
		"wrong block": {
			sse(opened, start("0", `{"type":7}`)), llm.KindStream, "a block is not understood",
		},
		"no block": {
			sse(opened, `{"type":"content_block_start","index":0}`), llm.KindStream,
			"a block is not understood",
		},
		"block twice": {sse(opened, aText, aText), llm.KindStream, "started twice"},
		"piece of no block": {
			sse(opened, piece("1", `{"type":"text_delta","text":"b"}`)), llm.KindStream, "has not started",
		},
		"piece after its end": {sse(opened, aText, stop("0"),
			piece("0", `{"type":"text_delta","text":"b"}`)), llm.KindStream, "has not started"},
		"end within a block": {
			sse(opened, aText, ended("end_turn"), stopped), llm.KindStream, "within a block",
		},
		"no message_stop": {
			sse(opened, aText, stop("0"), ended("end_turn")), llm.KindStream, "before it was complete",
		},
		"nothing at all": {"", llm.KindStream, "before it was complete"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := llm.Complete(t.Context(), wire().Raw(t, tt.stream), newRequest())
			if llm.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want kind %s with %q", err, tt.kind, tt.text)
			}
		})
	}
}

func parts(p ...llm.Part) []llm.Part { return p }

func list(s ...string) []string { return s }
