package llmtest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// generate posts a streamGenerateContent request and returns the status and the answer.
func generate(t *testing.T, s *llmtest.Server, address, body string) (int, string) {
	t.Helper()
	root := strings.TrimSuffix(s.URL(), "/v1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		root+"/v1beta/models/"+address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Goog-Api-Key", s.Key())
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

const (
	gemini3 = "gemini-3-pro:streamGenerateContent?alt=sse"
	gemini2 = "gemini-2.5-pro:streamGenerateContent?alt=sse"

	userContent = `{"role":"user","parts":[{"text":"hi"}]}`
	modelText   = `{"role":"model","parts":[{"text":"ho"}]}`
	skip        = `,"thoughtSignature":"skip_thought_signature_validator"`
)

func contents(list ...string) string { return `{"contents":[` + strings.Join(list, ",") + `]}` }

func modelCalls(parts ...string) string {
	return `{"role":"model","parts":[` + strings.Join(parts, ",") + `]}`
}

func functionCall(id, name, more string) string {
	if id != "" {
		id = `"id":"` + id + `",`
	}
	return `{"functionCall":{` + id + `"name":"` + name + `","args":{}}` + more + `}`
}

func results(parts ...string) string {
	return `{"role":"user","parts":[` + strings.Join(parts, ",") + `]}`
}

func functionResponse(id, name, more string) string {
	if id != "" {
		id = `"id":"` + id + `",`
	}
	return `{"functionResponse":{` + id + `"name":"` + name + `","response":{"output":"ok"}` + more +
		`}}`
}

func TestGenerateViolations(t *testing.T) {
	const image = `,"parts":[{"inlineData":{"mimeType":"image/png","data":"cG5n"}}]`
	declared := func(fields string) string {
		return more(contents(userContent), `"tools":[{"functionDeclarations":[{"name":"x"`+fields+`}]}]`)
	}
	tests := map[string]struct{ address, body, want string }{
		"sound": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("", "x", ""))), ""},
		"sound, ids": {gemini3, contents(userContent, modelCalls(functionCall("a", "x", skip),
			functionCall("b", "x", "")), results(functionResponse("a", "x", ""), functionResponse("b", "x",
			""))), ""},
		"sound, dots": {gemini3, contents(userContent, modelCalls(functionCall("", "x.y",
			skip)), results(functionResponse("", "x.y", ""))), ""},
		"sound, model twice": {gemini3, contents(userContent, modelText, modelText, userContent), ""},
		"sound, image": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("", "x", image))), ""},
		"sound, no signature": {gemini2, contents(userContent, modelCalls(functionCall("", "x", "")),
			results(functionResponse("", "x", ""), `{"inlineData":{"mimeType":"image/png","data":"cG5n"}}`)), ""},
		"sound, user twice": {
			gemini3, contents(userContent, userContent, modelText, userContent),
			"",
		},
		"sound, tools": {gemini3, more(contents(userContent),
			`"tools":[{"functionDeclarations":[{"name":"x","parametersJsonSchema":{"type":"object"}}]},{"googleSearch":{}}]`), ""},
		"no JSON": {gemini3, `{`, "unexpected EOF"},
		"unknown field": {
			gemini3, more(contents(userContent), `"model":"x"`),
			`unknown field "model"`,
		},
		"unknown field in part": {gemini3, contents(`{"role":"user","parts":[{"text":"x","type":"text"}]}`), `unknown field "type"`},
		"no stream of events":   {"m:streamGenerateContent", contents(userContent), "alt=sse is missing"},
		"no contents":           {gemini3, contents(), "contents are empty"},
		"no parts":              {gemini3, contents(`{"role":"user","parts":[]}`), "parts are empty"},
		"empty part":            {gemini3, contents(`{"role":"user","parts":[{}]}`), "0 kinds of data"},
		"two kinds":             {gemini3, contents(`{"role":"user","parts":[{"text":"x","inlineData":{"mimeType":"image/png","data":"cG5n"}}]}`), "2 kinds of data"},
		"empty text": {
			gemini3, contents(`{"role":"user","parts":[{"text":""}]}`),
			"a text is empty",
		},
		"unknown role": {
			gemini3, contents(`{"role":"assistant","parts":[{"text":"x"}]}`),
			`the role "assistant" is unknown`,
		},
		"model first": {
			gemini3, contents(modelText, userContent),
			"first content is not the user's",
		},
		"model last": {
			gemini3, contents(userContent, modelText),
			"last content is not the user's",
		},
		"system of two": {gemini3, more(contents(userContent),
			`"systemInstruction":{"parts":[]}`), "systemInstruction is no text"},
		"image is no base64": {gemini3, contents(`{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"?"}}]}`), "no image in base64"},
		"image is no image":  {gemini3, contents(`{"role":"user","parts":[{"inlineData":{"mimeType":"text/html","data":"cG5n"}}]}`), "no image in base64"},
		"image by the model": {gemini3, contents(userContent,
			`{"role":"model","parts":[{"inlineData":{"mimeType":"image/png","data":"cG5n"}}]}`,
			userContent), "user's part is the model's"},
		"call by the user": {gemini3, contents(`{"role":"user","parts":[` + functionCall("", "x",
			"") + `]}`), "model's part is the user's"},
		"thoughts of the user": {gemini3, contents(`{"role":"user","parts":[{"text":"x","thought":true}]}`), "the user has no thoughts"},
		"no signature": {gemini3, contents(userContent, modelCalls(functionCall("", "x", "")),
			results(functionResponse("", "x", ""))), "is missing a thoughtSignature"},
		"wrong signature": {gemini2, contents(userContent, modelCalls(functionCall("", "x",
			`,"thoughtSignature":"c2ln"`)), results(functionResponse("", "x", ""))), "is not what it was"},
		"wrong, of a text": {gemini3, contents(userContent,
			`{"role":"model","parts":[{"text":"x","thoughtSignature":"c2ln"}]}`,
			userContent), "is not what it was"},
		"wrong, of no text": {gemini3, contents(userContent,
			`{"role":"model","parts":[{"text":"","thoughtSignature":"c2ln"}]}`,
			userContent), "is not what it was"},
		"args are no object": {gemini3, contents(userContent,
			modelCalls(`{"functionCall":{"name":"x","args":[]}`+skip+`}`), results(functionResponse("", "x",
				""))), "are no object"},
		"odd name": {gemini3, contents(userContent, modelCalls(functionCall("", "a b",
			skip)), results(functionResponse("", "a b", ""))), `"a b" is no name`},
		"id twice": {gemini3, contents(userContent, modelCalls(functionCall("a", "x", skip),
			functionCall("a", "x", "")), results(functionResponse("a", "x", ""), functionResponse("a", "x",
			""))), `two calls have the id "a"`},
		"id of before": {gemini3, contents(userContent, modelCalls(functionCall("a", "x", skip)),
			results(functionResponse("a", "x", "")), modelCalls(functionCall("a", "x",
				skip)), results(functionResponse("a", "x", ""))), `two calls have the id "a"`},
		"call after model": {gemini3, contents(userContent, modelText, modelCalls(functionCall("",
			"x", skip)), results(functionResponse("", "x", ""))), "do not come after the user's"},
		"no result": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			userContent), "0 results for 1 calls"},
		"model before results": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			modelText, userContent), "calls without results"},
		"one result of two": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip),
			functionCall("", "y", "")), results(functionResponse("", "x", ""))), "1 results for 2 calls"},
		"results apart": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip),
			functionCall("", "y", "")), results(functionResponse("", "x", "")), results(functionResponse("",
			"y", ""))), "1 results for 2 calls"},
		"a result too many": {
			gemini3, contents(userContent, results(functionResponse("", "x", ""))),
			"answers no call",
		},
		"results mixed up": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip),
			functionCall("", "y", "")), results(functionResponse("", "y", ""), functionResponse("", "x",
			""))), "where that of x"},
		"result of another id": {gemini3, contents(userContent, modelCalls(functionCall("a", "x", skip)),
			results(functionResponse("b", "x", ""))), "where that of x"},
		"result without the id": {gemini3, contents(userContent, modelCalls(functionCall("a", "x", skip)),
			results(functionResponse("", "x", ""))), "where that of x"},
		"result with an id": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("a", "x", ""))), "where that of x"},
		"text among results": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("", "x", ""), `{"text":"x"}`)), "a text stands among results"},
		"image for older ones": {gemini2, contents(userContent, modelCalls(functionCall("", "x", "")),
			results(functionResponse("", "x", image))), "not for this model"},
		"response of no form": {gemini3, contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(`{"functionResponse":{"name":"x","response":{"a":"b"}}}`)), "neither an output nor " +
			"an error"},
		"empty tool": {
			gemini3, more(contents(userContent), `"tools":[{}]`),
			"tool 0 is empty",
		},
		"schema in old form": {
			gemini3, declared(`,"parameters":{"type":"OBJECT"}`),
			`unknown field "parameters"`,
		},
		"schema is no object": {
			gemini3, declared(`,"parametersJsonSchema":{"type":"string"}`),
			`not of type "object"`,
		},
		"tool twice": {gemini3, declared(`},{"name":"x"`), "the tool x is there twice"},
		"level and budget": {gemini3, more(contents(userContent),
			`"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW","thinkingBudget":1}}`), "both a thinkingLevel and a thinkingBudget"},
		"unknown level": {gemini3, more(contents(userContent),
			`"generationConfig":{"thinkingConfig":{"thinkingLevel":"XHIGH"}}`), "is unknown"},
		"thoughts of none": {gemini2, more(contents(userContent),
			`"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingBudget":0}}`), "without thinking"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("ok") })
			status, answer := generate(t, s, tt.address, tt.body)
			violations := s.TakeViolations()
			if tt.want == "" {
				if status != 200 || len(violations) > 0 {
					t.Errorf("a sound request is refused: %s", answer)
				}
				return
			}
			if status != 400 || len(violations) != 1 || !strings.Contains(violations[0], tt.want) {
				t.Errorf("status %d, violations %q; want %q", status, violations, tt.want)
			}
		})
	}
}

func TestGenerateRequest(t *testing.T) {
	s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("ok") })
	body := `{"contents":[` + userContent + `,` + modelCalls(`{"text":"I look."}`, functionCall("",
		"x", skip), functionCall("b", "y", "")) + `,` +
		results(functionResponse("", "x", ""), `{"functionResponse":{"id":"b","name":"y","response":{"error":"no"}}}`) + `],` +
		`"systemInstruction":{"parts":[{"text":"be brief"}]},"tools":[{"functionDeclarations":[{"name":"x","description":"d","parametersJsonSchema":{"type":"object"}}]}],` +
		`"generationConfig":{"maxOutputTokens":7,"thinkingConfig":{"thinkingLevel":"LOW"}}}`
	if status, answer := generate(t, s, gemini3, body); status != 200 {
		t.Fatal(answer)
	}
	mark := func(raw string) llm.Part {
		return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
			Provider: "gemini",
			Opaque:   json.RawMessage(raw),
		}}
	}
	call := func(id, name string) llm.Part {
		return llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
			ID: id, Name: name,
			Arguments: "{}",
		}}
	}
	result := func(r llm.ToolResult) llm.Part {
		return llm.Part{
			Kind:       llm.PartToolResult,
			ToolResult: &r,
		}
	}
	want := llm.Request{
		Model: "gemini-3-pro", System: "be brief", ReasoningEffort: "low", MaxOutputTokens: 7,
		ParallelToolCalls: true,
		Tools:             []llm.ToolSpec{{Name: "x", Description: "d", Schema: object()}},
		Messages: []llm.Message{
			llm.UserText("hi"),
			{Role: llm.RoleAssistant, Parts: []llm.Part{
				llm.Text("I look."), mark(`{"functionCall":{"name":"x"},"thoughtSignature":"skip_thought_signature_validator"}`),
				call("call_without_id_0", "x"), mark(`{"functionCall":{"id":"b","name":"y"}}`), call("b", "y"),
			}},
			{Role: llm.RoleTool, Parts: []llm.Part{
				result(llm.ToolResult{
					CallID: "call_without_id_0", Name: "x",
					Parts: []llm.Part{llm.Text("ok")},
				}),
				result(llm.ToolResult{
					CallID: "b", Name: "y", Parts: []llm.Part{llm.Text("no")},
					IsError: true,
				}),
			}},
		},
	}
	req := s.Requests()[0]
	if diff := cmp.Diff(want, req.Request); diff != "" || req.API != llmtest.Generate {
		t.Errorf("API %s, request (-want +got):\n%s", req.API, diff)
	}
}

func TestGenerateKey(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Sequence())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(s.URL(),
		"/v1")+"/v1beta/models/"+gemini3, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	// The key is not taken from where others have it.
	req.Header.Set("Authorization", "Bearer "+s.Key())
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 401 || !strings.Contains(string(answer), `"UNAUTHENTICATED"`) {
		t.Errorf("status %d, %s, %v", resp.StatusCode, answer, err)
	}
}
