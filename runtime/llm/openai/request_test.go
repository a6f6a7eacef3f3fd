package openai_test

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

func everything() llm.Request {
	reasoning := func(provider, raw string) llm.Part {
		return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
			Text: "t", Provider: provider, Opaque: json.RawMessage(raw),
		}}
	}
	req := newRequest()
	req.Messages = []llm.Message{
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("look"), picture()}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{
			reasoning("anthropic", `{"other":1}`), reasoning("openai",
				`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}`),
			thought("only text"), llm.Text("I run two."), called("c1", "shell",
				`{"command":"a"}`), called("c2", "shell", ""),
		}},
		clienttest.Result(llm.ToolResult{
			CallID: "c1", Name: "shell", Parts: []llm.Part{llm.Text("a <b> & c"), picture()},
		}),
		clienttest.Result(llm.ToolResult{CallID: "c2", Name: "shell", IsError: true}),
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("one"), llm.Text("two")}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{reasoning("openai",
			`{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"e"}`)}},
		llm.UserText("go on"),
	}
	req.Tools = append(req.Tools, llm.ToolSpec{Name: "bare", Schema: nil})
	req.ReasoningEffort, req.MaxOutputTokens, req.SessionID = "xhigh", 1000, "session-1"
	req.ParallelToolCalls = false
	req.Options = map[string]any{
		"reasoning": map[string]any{"summary": "auto"}, "service_tier": "flex", "store": nil,
		"metadata": map[string]any{"n": json.Number("9007199254740993")},
	}
	return req
}

func TestRequestBodies(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) {
		_, body, _ := wire(api).Sent(t, clienttest.Config{}, everything())
		clienttest.Golden(t, *update, string(api), body)
	})
}

// fields returns the fields of the body for req.
func fields(t *testing.T, api openai.API, req llm.Request) map[string]json.RawMessage {
	t.Helper()
	_, body, _ := wire(api).Sent(t, clienttest.Config{}, req)
	var got map[string]json.RawMessage
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// The library validates parameters by the names of models, which only servers can do.
func TestAnyModelIsAccepted(t *testing.T) {
	onBoth(t, func(t *testing.T, api openai.API) {
		for _, model := range []string{
			"gpt-5", "gpt-6-astra", "gpt-6-sol", "o3-mini", "text-davinci-003", "llama/70b:free",
		} {
			req := newRequest()
			req.Model, req.ReasoningEffort, req.MaxOutputTokens = model, "made-up", 5
			req.Options = map[string]any{"temperature": 0.5, "top_p": 0.5}
			got := fields(t, api, req)
			if string(got["model"]) != `"`+model+`"` || string(got["temperature"]) != "0.5" {
				t.Errorf("%s: sent %s with temperature %s", model, got["model"], got["temperature"])
			}
		}
	})
}

func TestEncryptedReasoningByModel(t *testing.T) {
	for model, want := range map[string]bool{
		"gpt-5": true, "o3": true, "gpt-4.1": false,
		"gpt-4o-mini": false, "gpt-oss-120b": true,
	} {
		req := newRequest()
		req.Model = model
		if _, got := fields(t, openai.Responses, req)["include"]; got != want {
			t.Errorf("%s: has include: %t, want %t", model, got, want)
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
		req := newRequest()
		req.ParallelToolCalls = tt.parallel
		if !tt.tools {
			req.Tools = nil
		}
		if got := string(fields(t, tt.api, req)["parallel_tool_calls"]); got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}
