package gemini_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
)

var update = flag.Bool("update", false, "write the golden files")

func everything() llm.Request {
	req := newRequest()
	failed := answered("c2", "shell", llm.Text("no such file"))
	failed.Parts[0].ToolResult.IsError = true
	req.Messages = []llm.Message{
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("look"), picture()}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
				Provider: "anthropic", Opaque: json.RawMessage(`{"thoughtSignature":"other"}`),
			}},
			thought("only text"), llm.Text("I run two."),
			opaque("", `{"functionCall":{"id":"w1","name":"shell"},"thoughtSignature":"s1"}`), called("c1",
				"shell", `{"command":"a"}`),
			called("c2", "shell", ""),
		}},
		failed,
		answered("c1", "shell", llm.Text("a <b> & c"), picture()),
		{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("one"), llm.Text(""), llm.Text("two")}},
		// The server accepts none of these: the part of each mark is missing.
		{Role: llm.RoleAssistant, Parts: []llm.Part{opaque("",
			`{"functionCall":{"name":"shell"},"thoughtSignature":"s2"}`), llm.Text("")}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{
			opaque("", `{"thoughtSignature":"s3"}`),
			llm.Text("done"), opaque("", `{"text":"","thoughtSignature":"s4"}`),
		}},
		{Role: llm.RoleUser},
	}
	req.Tools = append(req.Tools, llm.ToolSpec{Name: "bare"})
	req.ReasoningEffort, req.MaxOutputTokens, req.SessionID = "low", 1000, "session-1"
	req.ParallelToolCalls = false
	req.Options = map[string]any{
		"safetySettings": []any{map[string]any{
			"category":  "HARM_CATEGORY_HARASSMENT",
			"threshold": "BLOCK_NONE",
		}},
		"tools":      []any{map[string]any{"googleSearch": map[string]any{}}},
		"toolConfig": map[string]any{"functionCallingConfig": map[string]any{"mode": "VALIDATED"}},
		"generationConfig": map[string]any{
			"seed":           json.Number("9007199254740993"),
			"thinkingConfig": map[string]any{"includeThoughts": nil},
		},
	}
	return req
}

func TestRequestBodies(t *testing.T) {
	for _, model := range []string{"gemini-3-pro", "gemini-2.5-flash"} {
		t.Run(model, func(t *testing.T) {
			req := everything()
			req.Model = model
			_, body, _ := wire().Sent(t, clienttest.Config{}, req)
			clienttest.Golden(t, *update, model, body)
		})
	}
}

func TestModelNames(t *testing.T) {
	for model, want := range map[string]string{
		"gemini-3-pro": "models/gemini-3-pro", "models/gemini-3-pro": "models/gemini-3-pro",
		"tunedModels/mine": "tunedModels/mine",
		"a?b#c":            "models/a%3Fb%23c", "models/a/../b": "models/a%2F..%2Fb", "": "",
		"models/": "",
		"files/x": "",
	} {
		req := newRequest()
		req.Model = model
		r, _, err := wire().Sent(t, clienttest.Config{}, req)
		if want == "" {
			if llm.KindOf(err) != llm.KindInvalid || r != nil {
				t.Errorf("%q: got %v; sent: %t", model, err, r != nil)
			}
			continue
		}
		if full := "/v1beta/" + want + ":streamGenerateContent?alt=sse"; r.RequestURI != full {
			t.Errorf("%q: sent to %s, want %s", model, r.RequestURI, full)
		}
	}
}

func TestThinking(t *testing.T) {
	for _, tt := range []struct{ model, effort, want string }{
		{"gemini-3-pro", "", `{"includeThoughts":true}`},
		{"gemini-3.1-pro-preview", "low", `{"includeThoughts":true,"thinkingLevel":"LOW"}`},
		{"models/gemini-3-flash", "minimal", `{"includeThoughts":true,"thinkingLevel":"MINIMAL"}`},
		{"gemini-3-pro", "xhigh", `{"includeThoughts":true,"thinkingLevel":"XHIGH"}`},
		{"gemini-3-pro", "4096", `{"includeThoughts":true,"thinkingBudget":4096}`},
		{"gemini-pro-latest", "high", `{"includeThoughts":true,"thinkingLevel":"HIGH"}`},
		{"gemini-12-pro", "high", `{"includeThoughts":true,"thinkingLevel":"HIGH"}`},
		{"gemini-2.5-pro", "", `{"includeThoughts":true}`},
		{"gemini-2.5-pro", "minimal", `{"includeThoughts":true,"thinkingBudget":1024}`},
		{"gemini-2.5-pro", "low", `{"includeThoughts":true,"thinkingBudget":1024}`},
		{"gemini-2.5-pro", "medium", `{"includeThoughts":true,"thinkingBudget":8192}`},
		{"gemini-2.5-flash", "high", `{"includeThoughts":true,"thinkingBudget":24576}`},
		{"gemini-2.5-flash", "none", `{"thinkingBudget":0}`},
		{"gemini-2.5-flash", "-1", `{"includeThoughts":true,"thinkingBudget":-1}`},
		{"gemini-2.5-flash-lite", "", ``},
		{"gemini-2.5-flash-lite", "low", `{"includeThoughts":true,"thinkingBudget":1024}`},
		{"gemini-2.0-flash", "", ``},
		{"gemma-3-27b-it", "", ``},
		{"gemma-4", "high", `{"includeThoughts":true,"thinkingLevel":"HIGH"}`},
	} {
		req := newRequest()
		req.Model, req.ReasoningEffort = tt.model, tt.effort
		_, body, _ := wire().Sent(t, clienttest.Config{}, req)
		var got struct {
			GenerationConfig struct {
				ThinkingConfig json.RawMessage `json:"thinkingConfig"`
			} `json:"generationConfig"`
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if s := string(got.GenerationConfig.ThinkingConfig); s != tt.want {
			t.Errorf("%s, %q: sent %s, want %s", tt.model, tt.effort, s, tt.want)
		}
	}
}

func TestToolsOption(t *testing.T) {
	list := []map[string]any{{"googleSearch": map[string]any{}}}
	for name, tt := range map[string]struct {
		options map[string]any
		tools   bool
		want    string
	}{
		"added": {
			map[string]any{"tools": list},
			true, `{"functionDeclarations":[{"name":"x"}]},{"googleSearch":{}}`,
		},
		"alone":       {map[string]any{"tools": list}, false, `{"googleSearch":{}}`},
		"taken away":  {map[string]any{"tools": nil}, true, ""},
		"not touched": {nil, true, `{"functionDeclarations":[{"name":"x"}]}`},
	} {
		req := newRequest()
		req.Tools, req.Options = nil, tt.options
		if tt.tools {
			req.Tools = []llm.ToolSpec{{Name: "x"}}
		}
		_, body, _ := wire().Sent(t, clienttest.Config{}, req)
		var got struct{ Tools json.RawMessage }
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if s := strings.Trim(string(got.Tools), "[]"); tt.want != s &&
			string(got.Tools) != "["+tt.want+"]" {
			t.Errorf("%s: sent %s, want %s", name, got.Tools, tt.want)
		}
		if diff := cmp.Diff(tt.options, req.Options); diff != "" {
			t.Errorf("%s: the options were changed: %s", name, diff)
		}
	}
}

// Answers that follow each other are one content, for calls must come directly after the user's.
func TestAnswersInARow(t *testing.T) {
	req := newRequest()
	req.Messages = []llm.Message{
		llm.UserText("go"),
		{Role: llm.RoleAssistant, Parts: []llm.Part{llm.Text("I look.")}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{called("c", "shell", "{}")}},
		answered("c", "shell", llm.Text("ok")),
	}
	_, body, _ := wire().Sent(t, clienttest.Config{}, req)
	var got struct{ Contents []json.RawMessage }
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Contents) != 3 || !bytes.Contains(got.Contents[1], []byte("I look.")) ||
		!bytes.Contains(got.Contents[1], []byte("functionCall")) {
		t.Errorf("sent %s", body)
	}
}

// A call with an invalid name is sent under another name, and without its signature.
func TestSignatureOfAnotherName(t *testing.T) {
	for _, tt := range []struct{ model, name, want string }{
		{"gemini-3-pro", "shell", `"thoughtSignature":"s"`},
		{"gemini-3-pro", "bad name", `"thoughtSignature":"skip_thought_signature_validator"`},
		{"gemini-2.5-pro", "bad name", ""},
	} {
		req := newRequest()
		req.Model = tt.model
		mark := `{"functionCall":{"name":"` + tt.name + `"},"thoughtSignature":"s"}`
		req.Messages = append(req.Messages, llm.Message{
			Role: llm.RoleAssistant, Parts: []llm.Part{opaque("", mark), called("c", tt.name, "{}")},
		},
			answered("c", tt.name, llm.Text("ok")))
		_, body, _ := wire().Sent(t, clienttest.Config{}, req)
		if tt.want == "" && bytes.Contains(body, []byte("thoughtSignature")) ||
			!bytes.Contains(body, []byte(tt.want)) {
			t.Errorf("%s, %q: sent %s", tt.model, tt.name, body)
		}
	}
}

// Models repeat ids. The wire has a unique id for each call and its result.
func TestRepeatedIDs(t *testing.T) {
	const mark = `{"functionCall":{"id":"x","name":"shell"}}`
	req := newRequest()
	req.Messages = []llm.Message{
		llm.UserText("go"),
		{Role: llm.RoleAssistant, Parts: []llm.Part{
			opaque("", mark), called("x", "shell", ""), opaque("", mark), called("x_2", "shell", ""),
		}},
		answered("x_2", "shell", llm.Text("second")), answered("x", "shell", llm.Text("first")),
		{Role: llm.RoleAssistant, Parts: []llm.Part{opaque("", mark), called("x_3", "shell", "")}},
		answered("x_3", "shell", llm.Text("third")),
	}
	_, body, _ := wire().Sent(t, clienttest.Config{}, req)
	var got struct {
		Contents []struct {
			Parts []struct {
				FunctionCall, FunctionResponse struct {
					ID       string
					Response struct{ Output string }
				}
			}
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	var calls, results []string
	for _, c := range got.Contents {
		for _, p := range c.Parts {
			if id := p.FunctionCall.ID; id != "" {
				calls = append(calls, id)
			}
			if r := p.FunctionResponse; r.ID != "" {
				results = append(results, r.ID+" "+r.Response.Output)
			}
		}
	}
	if diff := cmp.Diff([]string{"x", "x_2", "x_3"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"x first", "x_2 second", "x_3 third"}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func unsendable() map[string]func(*llm.Request) {
	return map[string]func(*llm.Request){
		"tools that are no list": func(r *llm.Request) {
			r.Options = map[string]any{"tools": map[string]any{"googleSearch": 1}}
		},
		"tools without JSON": func(r *llm.Request) {
			r.Options = map[string]any{"tools": []any{func() {}}}
		},
		"image in an answer": func(r *llm.Request) {
			r.Messages[0] = llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{picture()}}
		},
		"call in a result": func(r *llm.Request) {
			r.Messages[0] = answered("1", "x", called("1", "x", ""))
		},
		"unknown effort": func(r *llm.Request) {
			r.Model, r.ReasoningEffort = "gemini-2.5-pro", "xhigh"
		},
		"reasoning of no form": func(r *llm.Request) {
			r.Messages[0] = llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{opaque("", `[]`)}}
		},
		"mark of no form": func(r *llm.Request) {
			r.Messages[0] = llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{opaque("",
				`{"functionCall":7}`), called("1", "x", "")}}
		},
	}
}
