package anthropic_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wire() clienttest.Wire {
	return clienttest.Wire{
		New: func(cfg clienttest.Config) (llm.Client, error) {
			return anthropic.New(anthropic.Config(cfg))
		},
		Provider: "anthropic", Model: "claude-opus-5-5", Path: "/v1/messages", Ignored: "/v1",
		KeyHeader:  "X-Api-Key",
		Usage:      llm.Usage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 30, CacheWrite: 7},
		Everything: everything,
		Options: map[string]any{
			"metadata": map[string]any{"a": 1, "b": "2", "c": nil}, "top_k": 5, "top_p": 0.5,
			"temperature": 1, "betas": []any{"x", "y"},
		},
		Variables: map[string]string{
			"ANTHROPIC_API_KEY": "sk-from-the-process", "ANTHROPIC_AUTH_TOKEN": "token-from-the-process",
			"ANTHROPIC_BASE_URL":       "http://127.0.0.1:1/from-the-process",
			"ANTHROPIC_CUSTOM_HEADERS": "X-Custom: from-the-process",
			"ANTHROPIC_PROFILE":        "from-the-process", "ANTHROPIC_CONFIG_DIR": "/from-the-process",
		},
		Stream: func(text string) string {
			return sse(opened, start("0", `{"type":"text","text":""}`),
				piece("0", `{"type":"text_delta","text":"`+text+`"}`), stop("0"), ended("end_turn"), stopped)
		},
		Floods: floods(), Refused: refused(), Unsendable: unsendable(),
	}
}

func newRequest() llm.Request { return wire().Request() }

func thought(text string) llm.Part { return clienttest.Thought(text) }

func called(id, name, args string) llm.Part { return clienttest.Called(id, name, args) }

func picture() llm.Part { return clienttest.Picture() }

func sse(events ...string) string { return clienttest.SSE(events...) }

func TestClient(t *testing.T) { clienttest.Run(t, wire()) }

// refused are errors as Anthropic words them.
func refused() map[string]clienttest.Failure {
	refusal := func(status int, typ, message string, kind llm.ErrorKind) clienttest.Failure {
		return clienttest.Failure{
			Fault: llmtest.Fault{Status: status, Type: typ, Message: message}, Kind: kind, Text: message,
		}
	}
	return map[string]clienttest.Failure{
		"parameter": refusal(400, "invalid_request_error", "max_tokens: 64000 > 32000", llm.KindInvalid),
		"long": refusal(400, "invalid_request_error",
			"prompt is too long: 210000 tokens > 200000 maximum", llm.KindContextLength),
		"long answer": refusal(400, "invalid_request_error",
			"input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000",
			llm.KindContextLength),
		"no credit": refusal(400, "invalid_request_error",
			"Your credit balance is too low to access the Anthropic API.", llm.KindQuota),
		"spend limit": refusal(400, "invalid_request_error",
			"You have reached your specified API usage limits.", llm.KindQuota),
		"content": refusal(400, "invalid_request_error", "Output blocked by content filtering policy",
			llm.KindContentFilter),
		"authentication": refusal(401, "authentication_error", "invalid x-api-key", llm.KindAuth),
		"billing":        refusal(402, "billing_error", "pay", llm.KindQuota),
		"permission":     refusal(403, "permission_error", "not allowed", llm.KindAuth),
		"not found":      refusal(404, "not_found_error", "model: claude-0", llm.KindNotFound),
		"timeout":        refusal(408, "timeout_error", "slow", llm.KindTimeout),
		"conflict":       refusal(409, "conflict_error", "locked", llm.KindServer),
		"too large": refusal(413, "request_too_large", "Request exceeds the maximum size",
			llm.KindContextLength),
		"rate limit": refusal(429, "rate_limit_error", "This request would exceed your rate limit",
			llm.KindRateLimit),
		"billing, 429": refusal(429, "billing_error", "pay", llm.KindQuota),
		"server":       refusal(500, "api_error", "Internal server error", llm.KindServer),
		"timeout, 504": refusal(504, "timeout_error", "too slow", llm.KindTimeout),
		"overloaded":   refusal(529, "overloaded_error", "Overloaded", llm.KindOverloaded),
		"an error for a stream": {Fault: llmtest.Fault{
			Status: 200, Body: `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`,
			Header: http.Header{"Content-Type": {"application/json"}},
		}, Kind: llm.KindOverloaded, Text: "busy"},
	}
}

// A strict server accepts the whole conversation of several rounds, and thinking goes
// back as it was.
func TestConversation(t *testing.T) {
	w := wire()
	second := w.Reply()
	second.Reasoning = "Once more."
	second.Calls = []llmtest.Call{{Name: "shell", Arguments: `{"command": broken`}, {Name: "shell"}}
	srv, c := w.Connect(t, llmtest.Sequence(w.Reply(), second, llmtest.Text("done")))
	req := clienttest.Converse(t, c, w.Request(), 3)
	// The server decodes the request of the client, but for consecutive results, which make one
	// message.
	got := srv.Requests()[2].Messages
	var want []llm.Message
	for _, m := range req.Messages[:len(req.Messages)-3] {
		if last := len(want) - 1; m.Role == llm.RoleTool && want[last].Role == llm.RoleTool {
			want[last].Parts = append(want[last].Parts[:1:1], m.Parts...)
			continue
		}
		want = append(want, m)
	}
	plain := cmp.Transformer("plain", func(r llm.Reasoning) string { return r.Provider })
	empty := cmp.Transformer("arguments", func(c llm.ToolCall) string {
		return c.ID + c.Name + strings.TrimSuffix(c.Arguments, "{}")
	})
	if diff := cmp.Diff(want, got, plain, empty); diff != "" {
		t.Errorf("the last request (-want +got):\n%s", diff)
	}
	if n := len(got[1].Parts); n != 4 || got[1].Parts[0].Kind != llm.PartReasoning {
		t.Errorf("the first answer came back with %d parts: %+v", n, got[1].Parts)
	}
}
