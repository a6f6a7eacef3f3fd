package openai_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onBoth runs a test with each interface.
func onBoth(t *testing.T, test func(t *testing.T, api openai.API)) {
	t.Helper()
	for _, api := range []openai.API{openai.Responses, openai.Chat} {
		t.Run(string(api), func(t *testing.T) { test(t, api) })
	}
}

func wire(api openai.API) clienttest.Wire {
	w := clienttest.Wire{
		New: func(cfg clienttest.Config) (llm.Client, error) {
			return openai.New(openai.Config{
				APIKey: cfg.APIKey, BaseURL: cfg.BaseURL, API: api, HTTPClient: cfg.HTTPClient,
				Headers: cfg.Headers, IdleTimeout: cfg.IdleTimeout, Provider: cfg.Provider,
			})
		},
		Provider: "openai", Model: "gpt-5", Base: "/v1", Path: "/responses", KeyHeader: "Authorization",
		KeyPrefix:  "Bearer ",
		Usage:      llm.Usage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 30},
		Everything: everything,
		Options: map[string]any{
			"metadata": map[string]any{"a": 1, "b": "2", "c": nil}, "user": "u",
			"top_p": 0.5, "temperature": 1,
		},
		Variables: map[string]string{
			"OPENAI_API_KEY":  "sk-from-the-process",
			"OPENAI_BASE_URL": "http://127.0.0.1:1/from-the-process",
			"OPENAI_ORG_ID":   "from-the-process",
		},
		Stream: func(text string) string {
			return sse(delta("0", text), event("response.completed",
				`"response":{"id":"r","status":"completed"}`))
		},
	}
	w.Floods = responsesFloods()
	w.Refused = map[string]clienttest.Failure{
		"no such model": {
			Fault: llmtest.Fault{Status: 400, Code: "model_not_found", Message: "no gpt-0"},
			Kind:  llm.KindNotFound, Text: "no gpt-0",
		},
		"504": {Fault: llmtest.Fault{Status: 504}, Kind: llm.KindServer, Text: "gateway timeout"},
	}
	if api == openai.Chat {
		w.Path, w.Floods = "/chat/completions", chatFloods()
		w.Stream = func(text string) string { return sse(content(text), finish("stop")) }
	}
	return w
}

func newRequest() llm.Request { return wire(openai.Responses).Request() }

func thought(text string) llm.Part { return clienttest.Thought(text) }

func called(id, name, args string) llm.Part { return clienttest.Called(id, name, args) }

func picture() llm.Part { return clienttest.Picture() }

func sse(events ...string) string { return clienttest.SSE(events...) }

func TestClient(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) { clienttest.Run(t, wire(api)) })
}

func TestAPI(t *testing.T) {
	if r, _, err := wire("").Sent(t, clienttest.Config{}, newRequest()); r == nil ||
		r.URL.Path != "/responses" {
		t.Errorf("by default, %v was sent: %v", r, err)
	}
	if _, err := openai.New(openai.Config{APIKey: clienttest.Key, API: "x"}); err == nil ||
		!strings.Contains(err.Error(), `"x" is neither`) {
		t.Errorf("got %v", err)
	}
}

// A strict server accepts the whole conversation of several rounds, and reasoning goes
// back as it was.
func TestConversation(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) {
		w := wire(api)
		srv, c := w.Connect(t, llmtest.Sequence(w.Reply(), w.Reply(), llmtest.Text("done")))
		clienttest.Converse(t, c, w.Request(), 3)
		last := srv.Requests()[2]
		reasoning := 0
		for _, m := range last.Messages {
			for _, p := range m.Parts {
				if p.Kind == llm.PartReasoning {
					reasoning++
				}
			}
		}
		if want := map[openai.API]int{openai.Responses: 2}[api]; reasoning != want {
			t.Errorf("%d parts of reasoning came back, want %d", reasoning, want)
		}
		if images := strings.Count(string(last.Body), "base64,cG5n\""); images != 3 {
			t.Errorf("%d images arrived, want 3", images)
		}
	})
}
