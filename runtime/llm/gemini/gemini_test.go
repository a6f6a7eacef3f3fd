package gemini_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wire() clienttest.Wire {
	const address = "http://127.0.0.1:1/from-the-process"
	return clienttest.Wire{
		New: func(cfg clienttest.Config) (llm.Client, error) {
			return gemini.New(gemini.Config(cfg))
		},
		Provider: "gemini", Model: "gemini-3-pro", Ignored: "/v1beta",
		Path:      "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
		KeyHeader: "X-Goog-Api-Key", Marks: true, Objects: true,
		Usage:      llm.Usage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 30},
		Everything: everything,
		Options: map[string]any{
			"generationConfig": map[string]any{
				"seed": 1, "topP": 0.5, "temperature": 1,
				"topK": nil,
			}, "store": false,
			"tools": []any{map[string]any{"googleSearch": map[string]any{"a": 1, "b": 2}}},
		},
		Variables: map[string]string{
			"GOOGLE_API_KEY": "key-from-the-process", "GEMINI_API_KEY": "key-from-the-process",
			"GOOGLE_CLOUD_PROJECT":  "from-the-process",
			"GOOGLE_CLOUD_LOCATION": "from-the-process", "GOOGLE_CLOUD_REGION": "from-the-process",
			"GOOGLE_GEMINI_BASE_URL": address,
			"GOOGLE_VERTEX_BASE_URL": address, "GOOGLE_GENAI_USE_VERTEXAI": "1",
			"GOOGLE_GENAI_USE_ENTERPRISE": "1",
		},
		Stream: func(s string) string { return sse(text(s), finish("STOP")) },
		Refused: map[string]clienttest.Failure{
			"200 list": {Fault: llmtest.Fault{
				Status: 200, Body: `[{"candidates":[]}]`,
				Header: http.Header{"Content-Type": {"application/json"}},
			}, Kind: llm.KindStream, Text: "not a stream"},
		},
		Broken: map[string]clienttest.Failure{
			"internal": {Fault: llmtest.Fault{
				Fail: llmtest.AtText, Code: "INTERNAL", Message: "sorry",
			}, Kind: llm.KindServer, Text: "sorry"},
			"exhausted": {Fault: llmtest.Fault{
				Fail: llmtest.AtArguments, Code: "RESOURCE_EXHAUSTED", Message: "slow down",
			}, Kind: llm.KindRateLimit, Text: "slow down"},
			"unavailable at last": {
				Fault: llmtest.Fault{Fail: llmtest.AtEnd, Message: "try later"},
				Kind:  llm.KindOverloaded, Text: "try later",
			},
		},
		Unsendable: unsendable(), Floods: floods(),
	}
}

func newRequest() llm.Request { return wire().Request() }

func thought(text string) llm.Part { return clienttest.Thought(text) }

func called(id, name, args string) llm.Part { return clienttest.Called(id, name, args) }

func picture() llm.Part { return clienttest.Picture() }

func sse(events ...string) string { return clienttest.SSE(events...) }

func TestClient(t *testing.T) { clienttest.Run(t, wire()) }

func answered(id, name string, parts ...llm.Part) llm.Message {
	return clienttest.Result(llm.ToolResult{CallID: id, Name: name, Parts: parts})
}

// A strict server accepts the whole conversation of several rounds: signatures are sent back
// unchanged, calls have the ids that the model gave them, and results stand in the order of the
// calls.
func TestConversation(t *testing.T) {
	noIDs := wire().Reply()
	noIDs.Calls = []llmtest.Call{
		{NoID: true, Name: "shell", Arguments: `{"command":"a"}`},
		{NoID: true, Name: "read_file", Arguments: `{}`},
		{NoID: true, Name: "shell", Arguments: `{"command":"b"}`},
	}
	for _, model := range []string{"gemini-3-pro", "gemini-2.5-flash", "gemini-flash-latest"} {
		t.Run(model, func(t *testing.T) {
			srv, c := wire().Connect(t, llmtest.Sequence(wire().Reply(), noIDs, llmtest.Text("wait"),
				llmtest.Text("done")))
			req := newRequest()
			req.Model = model
			req.Messages[0].Parts = append(req.Messages[0].Parts, picture())
			for round := range 4 {
				resp, err := llm.Complete(t.Context(), c, req)
				if err != nil {
					t.Fatal(err)
				}
				// A loop gives ids to the calls without one, and other ids to the calls with one.
				calls := 0
				for i, p := range resp.Message.Parts {
					if p.Kind == llm.PartToolCall {
						call := *p.ToolCall
						call.ID = fmt.Sprintf("%s_%d_%d", call.ID, round, calls)
						resp.Message.Parts[i].ToolCall = &call
						calls++
					}
				}
				req.Messages = append(req.Messages, resp.Message)
				// Each result is a separate message, in another order than the calls.
				for i, call := range slices.Backward(resp.Message.ToolCalls()) {
					result := llm.Text("result of " + call.ID)
					if i == 0 {
						result = picture()
					}
					req.Messages = append(req.Messages, answered(call.ID, call.Name, result))
				}
				req.Messages = append(req.Messages, llm.UserText("go on"))
			}
			last := srv.Requests()[3]
			signatures, images := strings.Count(string(last.Body),
				`"thoughtSignature"`), strings.Count(string(last.Body), `"cG5n"`)
			if signatures != 3 || images != 3 {
				t.Errorf("%d signatures and %d images came back, want 3 and 3", signatures, images)
			}
			var results []string
			for _, m := range last.Messages {
				for _, p := range m.Parts {
					if p.ToolResult != nil && p.ToolResult.Text() != "" {
						results = append(results, p.ToolResult.CallID+": "+p.ToolResult.Text())
					}
				}
			}
			want := []string{
				"call_b: result of call_b_0_1", "call_without_id_3: result of _1_1",
				"call_without_id_4: result of _1_2",
			}
			if diff := cmp.Diff(want, results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

// A model that requires signatures continues the conversation of another provider's model.
func TestForeignHistory(t *testing.T) {
	srv, c := wire().Connect(t, llmtest.Sequence(llmtest.Text("ok")))
	req := newRequest()
	req.Messages = append(
		req.Messages,
		llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
				Text: "x", Provider: "openai", Opaque: json.RawMessage(`{"type":"reasoning"}`),
			}},
			called("c1", "made up name!", `{"command":`), called("c2", "9.lives", `[1]`),
		}},
		answered("c1", "made up name!", llm.Text("a")), answered("c2", "9.lives"),
	)
	if _, err := llm.Complete(t.Context(), c, req); err != nil {
		// The test server rejects dots in names, which real ones accept.
		if !strings.Contains(err.Error(), "is not a valid tool name") {
			t.Fatal(err)
		}
		srv.TakeViolations()
	}
	body := string(srv.Requests()[0].Body)
	for _, want := range []string{
		`{"functionCall":{"args":{"arguments":"{\"command\":"},"name":"made_up_name_"},` +
			`"thoughtSignature":"skip_thought_signature_validator"}`,
		`{"functionCall":{"args":{"arguments":"[1]"},"name":"_9.lives"}}`,
		`{"functionResponse":{"name":"_9.lives","response":{"output":""}}}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
	if strings.Contains(body, `"type":"reasoning"`) {
		t.Error("another provider's reasoning was sent")
	}
}

// The order identifies calls with equal ids.
func TestResultsOfEqualIDs(t *testing.T) {
	_, c := wire().Connect(t, llmtest.Sequence(llmtest.Text("ok")))
	req := newRequest()
	req.Messages = append(
		req.Messages, llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			called("a", "x", ""), called("a", "y", ""),
		}},
		answered("a", "x", llm.Text("1")), answered("a", "y", llm.Text("2")),
	)
	if _, err := llm.Complete(t.Context(), c, req); err != nil {
		t.Error(err)
	}
}
