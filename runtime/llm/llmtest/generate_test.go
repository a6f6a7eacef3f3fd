package llmtest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

const (
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
	testViolations(t, gemini3, map[string]violation{
		"sound": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("", "x", ""))), ""},
		"sound, ids": {contents(userContent, modelCalls(functionCall("a", "x", skip),
			functionCall("b", "x", "")), results(functionResponse("a", "x", ""), functionResponse("b", "x",
			""))), ""},
		"sound, dots": {contents(userContent, modelCalls(functionCall("", "x.y",
			skip)), results(functionResponse("", "x.y", ""))), ""},
		"sound, model twice": {contents(userContent, modelText, modelText, userContent), ""},
		"sound, image": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("", "x", image))), ""},
		"sound, user twice": {contents(userContent, userContent, modelText, userContent), ""},
		"sound, tools": {more(contents(userContent),
			`"tools":[{"functionDeclarations":[{"name":"x","parametersJsonSchema":{"type":"object"}}]},`+
				`{"googleSearch":{}}]`), ""},
		"no JSON":       {`{`, "unexpected EOF"},
		"unknown field": {more(contents(userContent), `"model":"x"`), `unknown field "model"`},
		"unknown field in part": {
			contents(`{"role":"user","parts":[{"text":"x","type":"text"}]}`), `unknown field "type"`,
		},
		"no contents": {contents(), "contents are empty"},
		"no parts":    {contents(`{"role":"user","parts":[]}`), "parts are empty"},
		"empty part":  {contents(`{"role":"user","parts":[{}]}`), "0 kinds of data"},
		"two kinds": {
			contents(`{"role":"user","parts":[{"text":"x","inlineData":{"mimeType":"image/png",` +
				`"data":"cG5n"}}]}`),
			"2 kinds of data",
		},
		"empty text": {contents(`{"role":"user","parts":[{"text":""}]}`), "a text is empty"},
		"unknown role": {
			contents(`{"role":"assistant","parts":[{"text":"x"}]}`), `the role "assistant" is unknown`,
		},
		"model first": {contents(modelText, userContent), "first content is not the user's"},
		"model last":  {contents(userContent, modelText), "last content is not the user's"},
		"system of two": {more(contents(userContent),
			`"systemInstruction":{"parts":[]}`), "systemInstruction is not a text"},
		"image is no base64": {
			contents(`{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"?"}}]}`),
			"not an image in base64",
		},
		"image is no image": {
			contents(`{"role":"user","parts":[{"inlineData":{"mimeType":"text/html","data":"cG5n"}}]}`),
			"not an image in base64",
		},
		"image by the model": {contents(userContent,
			`{"role":"model","parts":[{"inlineData":{"mimeType":"image/png","data":"cG5n"}}]}`,
			userContent), "user's part is the model's"},
		"call by the user": {contents(`{"role":"user","parts":[` + functionCall("", "x",
			"") + `]}`), "model's part is the user's"},
		"thoughts of the user": {
			contents(`{"role":"user","parts":[{"text":"x","thought":true}]}`), "the user has no thoughts",
		},
		"no signature": {contents(userContent, modelCalls(functionCall("", "x", "")),
			results(functionResponse("", "x", ""))), "is missing a thoughtSignature"},
		"wrong, of a text": {contents(userContent,
			`{"role":"model","parts":[{"text":"x","thoughtSignature":"c2ln"}]}`,
			userContent), "is wrong"},
		"wrong, of no text": {contents(userContent,
			`{"role":"model","parts":[{"text":"","thoughtSignature":"c2ln"}]}`,
			userContent), "is wrong"},
		"args are no object": {contents(userContent,
			modelCalls(`{"functionCall":{"name":"x","args":[]}`+skip+`}`), results(functionResponse("", "x",
				""))), "are not an object"},
		"odd name": {contents(userContent, modelCalls(functionCall("", "a b",
			skip)), results(functionResponse("", "a b", ""))), `"a b" is not a valid tool name`},
		"id twice": {contents(userContent, modelCalls(functionCall("a", "x", skip),
			functionCall("a", "x", "")), results(functionResponse("a", "x", ""), functionResponse("a", "x",
			""))), `two calls have the id "a"`},
		"id of before": {contents(userContent, modelCalls(functionCall("a", "x", skip)),
			results(functionResponse("a", "x", "")), modelCalls(functionCall("a", "x",
				skip)), results(functionResponse("a", "x", ""))), `two calls have the id "a"`},
		"call after model": {contents(userContent, modelText, modelCalls(functionCall("",
			"x", skip)), results(functionResponse("", "x", ""))), "do not come after the user's"},
		"no result": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			userContent), "0 results for 1 calls"},
		"model before results": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			modelText, userContent), "calls without results"},
		"one result of two": {contents(userContent, modelCalls(functionCall("", "x", skip),
			functionCall("", "y", "")), results(functionResponse("", "x", ""))), "1 results for 2 calls"},
		"results apart": {contents(userContent, modelCalls(functionCall("", "x", skip),
			functionCall("", "y", "")), results(functionResponse("", "x", "")), results(functionResponse("",
			"y", ""))), "1 results for 2 calls"},
		"a result too many": {
			contents(userContent, results(functionResponse("", "x", ""))), "answers no call",
		},
		"results mixed up": {contents(userContent, modelCalls(functionCall("", "x", skip),
			functionCall("", "y", "")), results(functionResponse("", "y", ""), functionResponse("", "x",
			""))), "where that of x"},
		"result of another id": {contents(userContent, modelCalls(functionCall("a", "x", skip)),
			results(functionResponse("b", "x", ""))), "where that of x"},
		"result without the id": {contents(userContent, modelCalls(functionCall("a", "x", skip)),
			results(functionResponse("", "x", ""))), "where that of x"},
		"result with an id": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("a", "x", ""))), "where that of x"},
		"text among results": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(functionResponse("", "x", ""), `{"text":"x"}`)), "a text stands among results"},
		"response of no form": {contents(userContent, modelCalls(functionCall("", "x", skip)),
			results(`{"functionResponse":{"name":"x","response":{"a":"b"}}}`)), "neither an output nor " +
			"an error"},
		"empty tool":         {more(contents(userContent), `"tools":[{}]`), "tool 0 is empty"},
		"schema in old form": {declared(`,"parameters":{"type":"OBJECT"}`), `unknown field "parameters"`},
		"schema is no object": {
			declared(`,"parametersJsonSchema":{"type":"string"}`), `not of type "object"`,
		},
		"tool twice": {declared(`},{"name":"x"`), "the tool x is defined twice"},
		"level and budget": {
			more(contents(userContent),
				`"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW","thinkingBudget":1}}`),
			"exclude each other",
		},
		"unknown level": {more(contents(userContent),
			`"generationConfig":{"thinkingConfig":{"thinkingLevel":"XHIGH"}}`), "is unknown"},
	})
	testViolations(t, gemini2, map[string]violation{
		"sound, no signature": {contents(userContent, modelCalls(functionCall("", "x", "")),
			results(functionResponse("", "x", ""), `{"inlineData":{"mimeType":"image/png",`+
				`"data":"cG5n"}}`)), ""},
		"wrong signature": {contents(userContent, modelCalls(functionCall("", "x",
			`,"thoughtSignature":"c2ln"`)), results(functionResponse("", "x", ""))), "is wrong"},
		"image for older ones": {contents(userContent, modelCalls(functionCall("", "x", "")),
			results(functionResponse("", "x", image))), "not for this model"},
		"thoughts of none": {
			more(contents(userContent),
				`"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingBudget":0}}`),
			"without thinking",
		},
	})
	testViolations(t, strings.TrimSuffix(gemini3, "?alt=sse"), map[string]violation{
		"no stream of events": {contents(userContent), "alt=sse is missing"},
	})
}

func TestGenerateRequest(t *testing.T) {
	s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("ok") })
	body := `{"contents":[` + userContent + `,` + modelCalls(`{"text":"I look."}`, functionCall("",
		"x", skip), functionCall("b", "y", "")) + `,` +
		results(functionResponse("", "x", ""), `{"functionResponse":{"id":"b","name":"y",`+
			`"response":{"error":"no"}}}`) + `],` +
		`"systemInstruction":{"parts":[{"text":"be brief"}]},` +
		`"tools":[{"functionDeclarations":[{"name":"x","description":"d",` +
		`"parametersJsonSchema":{"type":"object"}}]}],` +
		`"generationConfig":{"maxOutputTokens":7,"thinkingConfig":{"thinkingLevel":"LOW"}}}`
	if status, answer := post(t, s, gemini3, s.Key(), body); status != 200 {
		t.Fatal(answer)
	}
	mark := func(raw string) llm.Part {
		return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
			Provider: "gemini", Opaque: json.RawMessage(raw),
		}}
	}
	call := func(id, name string) llm.Part {
		return llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
			ID: id, Name: name, Arguments: "{}",
		}}
	}
	result := func(r llm.ToolResult) llm.Part {
		return llm.Part{Kind: llm.PartToolResult, ToolResult: &r}
	}
	want := llm.Request{
		Model: "gemini-3-pro", System: "be brief", ReasoningEffort: "low", MaxOutputTokens: 7,
		ParallelToolCalls: true,
		Tools:             []llm.ToolSpec{{Name: "x", Description: "d", Schema: object()}},
		Messages: []llm.Message{
			llm.UserText("hi"),
			{Role: llm.RoleAssistant, Parts: []llm.Part{
				llm.Text("I look."), mark(`{"functionCall":{"name":"x"},` +
					`"thoughtSignature":"skip_thought_signature_validator"}`),
				call("call_without_id_0", "x"), mark(`{"functionCall":{"id":"b","name":"y"}}`), call("b", "y"),
			}},
			{Role: llm.RoleTool, Parts: []llm.Part{
				result(llm.ToolResult{
					CallID: "call_without_id_0", Name: "x", Parts: []llm.Part{llm.Text("ok")},
				}),
				result(llm.ToolResult{
					CallID: "b", Name: "y", Parts: []llm.Part{llm.Text("no")}, IsError: true,
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
	// The header of other wires does not count.
	status, answer := send(t, s, gemini3, "{}", "Authorization", "Bearer "+s.Key())
	if status != 401 || !strings.Contains(answer, `"UNAUTHENTICATED"`) {
		t.Errorf("status %d, %s", status, answer)
	}
}
