package openai_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

// sent returns what is sent for req.
func sent(t *testing.T, cfg openai.Config, req llm.Request) (*http.Request, []byte, error) {
	t.Helper()
	var got *http.Request
	var body bytes.Buffer
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = body.ReadFrom(r.Body)
	}))
	defer srv.Close()
	cfg.BaseURL, cfg.HTTPClient = srv.URL+"/v1/", srv.Client()
	_, err := llm.Complete(t.Context(), newClient(t, cfg), req)
	return got, body.Bytes(), err
}

func everything() llm.Request {
	part := func(r llm.ToolResult) llm.Part { return llm.Part{Kind: llm.PartToolResult, ToolResult: &r} }
	image := llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: []byte("png")}}
	reasoning := func(provider, raw string) llm.Part {
		return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: "t", Provider: provider, Opaque: json.RawMessage(raw)}}
	}
	req := ask()
	req.Messages = []llm.Message{
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("look"), image}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{
			reasoning("anthropic", `{"other":1}`), reasoning("openai", `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}`),
			thought("only text"), llm.Text("I run two."), called("c1", "shell", `{"command":"a"}`), called("c2", "shell", ""),
		}},
		{Role: llm.RoleTool, Parts: []llm.Part{
			part(llm.ToolResult{CallID: "c1", Name: "shell", Parts: []llm.Part{llm.Text("a <b> & c"), image}}),
		}},
		{Role: llm.RoleTool, Parts: []llm.Part{part(llm.ToolResult{CallID: "c2", Name: "shell", IsError: true})}},
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("one"), llm.Text("two")}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{reasoning("openai", `{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"e"}`)}},
		llm.UserText("go on"),
	}
	req.Tools = append(req.Tools, llm.ToolSpec{Name: "bare", Schema: nil})
	req.ReasoningEffort, req.MaxOutputTokens, req.SessionID = "xhigh", 1000, "session-1"
	req.ParallelToolCalls = false
	req.Options = map[string]any{
		"reasoning": map[string]any{"summary": "auto"}, "service_tier": "flex", "store": nil, "metadata": map[string]any{"n": json.Number("9007199254740993")},
	}
	return req
}

// The bodies are compared with files, so that a change of what is sent is seen in review.
func TestRequestBodies(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) {
		r, body, _ := sent(t, openai.Config{APIKey: "sk-test-0123456789", API: api}, everything())
		if want := map[openai.API]string{openai.Responses: "/v1/responses", openai.Chat: "/v1/chat/completions"}[api]; r.URL.Path != want {
			t.Errorf("path %s, want %s", r.URL.Path, want)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer sk-test-0123456789" {
			t.Errorf("authorization %q", got)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, body, "", "  "); err != nil {
			t.Fatal(err)
		}
		pretty.WriteByte('\n')
		golden := filepath.Join("testdata", string(api)+".json")
		if *update {
			if err := os.WriteFile(golden, pretty.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), pretty.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	})
}

// fields returns what is sent for req.
func fields(t *testing.T, api openai.API, req llm.Request) map[string]json.RawMessage {
	t.Helper()
	_, body, _ := sent(t, openai.Config{API: api}, req)
	var got map[string]json.RawMessage
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// The library checks parameters by the names of models. Servers know better what their models take.
func TestNoModelIsRefusedHere(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) {
		for _, model := range []string{"gpt-5", "gpt-6-astra", "gpt-6-sol", "o3-mini", "text-davinci-003", "llama/70b:free"} {
			req := ask()
			req.Model, req.ReasoningEffort, req.MaxOutputTokens = model, "made-up", 5
			req.Options = map[string]any{"temperature": 0.5, "top_p": 0.5}
			got := fields(t, api, req)
			if string(got["model"]) != `"`+model+`"` || string(got["temperature"]) != "0.5" {
				t.Errorf("%s: sent %s with temperature %s", model, got["model"], got["temperature"])
			}
		}
	})
}

func TestEncryptedReasoningIsAskedForWhereItExists(t *testing.T) {
	for model, want := range map[string]bool{"gpt-5": true, "o3": true, "gpt-4.1": false, "gpt-4o-mini": false, "gpt-oss-120b": true} {
		req := ask()
		req.Model = model
		if _, got := fields(t, openai.Responses, req)["include"]; got != want {
			t.Errorf("%s: include is there: %t, want %t", model, got, want)
		}
	}
}

func TestParallelToolCalls(t *testing.T) {
	for _, tt := range []struct {
		api      openai.API
		tools    bool
		parallel bool
		want     string
	}{
		{openai.Responses, true, true, "true"},
		{openai.Responses, true, false, "false"},
		{openai.Responses, false, true, ""},
		{openai.Chat, true, true, ""},
		{openai.Chat, true, false, "false"},
		{openai.Chat, false, false, ""},
	} {
		req := ask()
		req.ParallelToolCalls = tt.parallel
		if !tt.tools {
			req.Tools = nil
		}
		if got := string(fields(t, tt.api, req)["parallel_tool_calls"]); got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

func TestInvalidUTF8IsReplaced(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) {
		req := ask()
		req.Messages = []llm.Message{llm.UserText("a\xff\x00b\xed\xa0\x80é")}
		_, body, _ := sent(t, openai.Config{API: api}, req)
		if !json.Valid(body) || !bytes.Contains(body, []byte(`a\ufffd\u0000b\ufffd\ufffd\ufffdé`)) {
			t.Errorf("sent %s", body)
		}
	})
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	image := llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: []byte("png")}}
	tests := map[string]func(*llm.Request){
		"schema is no JSON":      func(r *llm.Request) { r.Tools[0].Schema = json.RawMessage(`{"type":`) },
		"option stream":          func(r *llm.Request) { r.Options = map[string]any{"stream": false} },
		"option without JSON":    func(r *llm.Request) { r.Options = map[string]any{"x": func() {}} },
		"image in a wrong place": func(r *llm.Request) { r.Messages[0] = llm.Message{Role: llm.RoleTool, Parts: []llm.Part{image}} },
		"part without content":   func(r *llm.Request) { r.Messages[0].Parts[0] = llm.Part{Kind: llm.PartImage} },
		"unknown part":           func(r *llm.Request) { r.Messages[0].Parts[0] = llm.Part{Kind: "x"} },
		"unknown role":           func(r *llm.Request) { r.Messages[0] = llm.Message{Role: "x", Parts: []llm.Part{llm.Text("x")}} },
	}
	onBoth(t, func(t *testing.T, api openai.API) {
		for name, spoil := range tests {
			req := ask()
			spoil(&req)
			r, _, err := sent(t, openai.Config{API: api}, req)
			if llm.KindOf(err) != llm.KindInvalid || r != nil {
				t.Errorf("%s: got %v; sent: %t", name, err, r != nil)
			}
		}
	})
}
