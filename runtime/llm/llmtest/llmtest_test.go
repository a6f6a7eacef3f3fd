package llmtest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Paths of the wires. Those of Gemini have a model.
const (
	responsesPath = "/v1/responses"
	chatPath      = "/v1/chat/completions"
	messagesPath  = "/v1/messages"
	gemini3       = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
	gemini2       = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
)

// post sends a body with a key as the wire of the path carries it, and returns the status and the
// answer.
func post(t *testing.T, s *llmtest.Server, path, key, body string) (int, string) {
	t.Helper()
	switch {
	case path == messagesPath:
		return send(t, s, path, body, "X-Api-Key", key, "Anthropic-Version", "2023-06-01")
	case strings.HasPrefix(path, "/v1beta/"):
		return send(t, s, path, body, "X-Goog-Api-Key", key)
	}
	return send(t, s, path, body, "Authorization", "Bearer "+key)
}

// send sends a body with headers, pairs of name and value.
func send(
	t *testing.T, s *llmtest.Server, path, body string, headers ...string,
) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Root()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// violation is a request, and a part of the violation that the server reports; empty for a valid
// request.
type violation struct{ body, want string }

// testViolations sends each request to a new server.
func testViolations(t *testing.T, path string, tests map[string]violation) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("ok") })
			status, answer := post(t, s, path, s.Key(), tt.body)
			violations := s.TakeViolations()
			if got := s.Requests(); len(got) != 1 || string(got[0].Body) != tt.body {
				t.Errorf("recorded %d requests", len(got))
			}
			if tt.want == "" {
				if status != 200 || len(violations) > 0 {
					t.Errorf("a valid request is refused: %s", answer)
				}
				return
			}
			if status != 400 || len(violations) != 1 || !strings.Contains(violations[0], tt.want) ||
				!strings.Contains(strings.ToUpper(answer), "INVALID_") {
				t.Errorf("status %d, violations %q, answer %s; want %q", status, violations, answer, tt.want)
			}
		})
	}
}

const (
	userItem = `{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}`
	callItem = `{"type":"function_call","call_id":"c","name":"x","arguments":"{}"}`
	outItem  = `{"type":"function_call_output","call_id":"c","output":"ok"}`

	userMsg = `{"role":"user","content":"hi"}`
	callMsg = `{"role":"assistant","tool_calls":[{"id":"c","type":"function",` +
		`"function":{"name":"x","arguments":"{}"}}]}`
	toolMsg = `{"role":"tool","tool_call_id":"c","content":"ok"}`
)

func responses(items ...string) string {
	return `{"model":"m","stream":true,"store":false,"input":[` + strings.Join(items, ",") + `]}`
}

func chat(messages ...string) string {
	return `{"model":"m","stream":true,"messages":[` + strings.Join(messages, ",") + `]}`
}

// more adds fields to a body.
func more(body, fields string) string { return strings.TrimSuffix(body, "}") + "," + fields + "}" }

func tool(parameters string) string {
	return `"tools":[{"type":"function","name":"x","strict":false,"parameters":` + parameters + `}]`
}

func TestResponsesViolations(t *testing.T) {
	reasoning := `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"e"}`
	testViolations(t, responsesPath, map[string]violation{
		"sound":              {responses(userItem, callItem, outItem), ""},
		"sound, repeated id": {responses(userItem, callItem, callItem, outItem, outItem), ""},
		"sound, reasoning":   {responses(userItem, reasoning, callItem, outItem), ""},
		"no JSON":            {`{`, "unexpected EOF"},
		"goes on":            {responses(userItem) + "{}", "goes on after the JSON value"},
		"unknown field":      {more(responses(userItem), `"mode":1`), `unknown field "mode"`},
		"unknown field in item": {
			responses(`{"type":"message","role":"user","content":[],"x":1}`), `unknown field "x"`,
		},
		"no model":     {`{"stream":true,"store":false,"input":[` + userItem + `]}`, "model is missing"},
		"not a stream": {`{"model":"m","store":false,"input":[` + userItem + `]}`, "stream is not set"},
		"stores":       {`{"model":"m","stream":true,"input":[` + userItem + `]}`, "store is not false"},
		"no input":     {responses(), "input is empty"},
		"system role": {
			responses(`{"type":"message","role":"system","content":[{"type":"input_text","text":"x"}]}`),
			`role "system" is unknown`,
		},
		"unknown item": {responses(`{"type":"thought"}`), `the type "thought" is unknown`},
		"no content":   {responses(`{"type":"message","role":"user","content":[]}`), "has no content"},
		"user with output_text": {
			responses(`{"type":"message","role":"user","content":[{"type":"output_text","text":"x"}]}`),
			"is not allowed here",
		},
		"image is no data": {
			responses(`{"type":"message","role":"user","content":[{"type":"input_image",` +
				`"image_url":"http://x"}]}`),
			"not a data URL",
		},
		"image is no base64": {
			responses(`{"type":"message","role":"user","content":[{"type":"input_image",` +
				`"image_url":"data:image/png;base64,?"}]}`),
			"not base64",
		},
		"result without call": {
			responses(userItem, outItem), `answers the call "c", which was not made before`,
		},
		"result before call": {responses(userItem, outItem, callItem), "which was not made before"},
		"two results": {
			responses(userItem, callItem, outItem, outItem), `the call "c" is answered more than once`,
		},
		"no result":       {responses(userItem, callItem), `the call "c" of x has no result`},
		"call without id": {responses(userItem, strings.Replace(callItem, `"c"`, `""`, 1)), "has no id"},
		"call without arguments": {responses(userItem,
			`{"type":"function_call","call_id":"c","name":"x"}`), "arguments are missing"},
		"call of an odd name": {
			responses(userItem, strings.Replace(callItem, `"x"`, `"a b"`, 1)), `"a b" is not a valid ` +
				`tool name`,
		},
		"output of a wrong type": {responses(userItem, callItem, strings.Replace(outItem, `"ok"`, `7`,
			1)), "neither a text nor a list"},
		"reasoning alone": {
			responses(userItem, reasoning, userItem), "the reasoning before it stands alone",
		},
		"reasoning at the end": {responses(userItem, reasoning), "reasoning stands alone at the end"},
		"reasoning w/o a summary": {responses(userItem, `{"type":"reasoning","id":"r"}`, callItem,
			outItem), "summary of reasoning is missing"},
		"tool is strict": {more(responses(userItem),
			`"tools":[{"type":"function","name":"x","parameters":{"type":"object"}}]`), "not a function " +
			"with strict false"},
		"tool twice": {more(responses(userItem), strings.Replace(tool(`{"type":"object"}`),
			"[", `[{"type":"function","name":"x","strict":false,"parameters":{"type":"object"}},`,
			1)), "the tool x is defined twice"},
		"schema is no object": {
			more(responses(userItem), tool(`{"type":"string"}`)), `not of type "object"`,
		},
		"schema of wrong types": {
			more(responses(userItem), tool(`{"type":"object","required":"a"}`)), "the schema of tool x",
		},
		"schema from elsewhere": {more(responses(userItem),
			tool(`{"type":"object","$ref":"file:///etc/passwd"}`)), "cannot be followed"},
	})
}

func TestChatViolations(t *testing.T) {
	testViolations(t, chatPath, map[string]violation{
		"sound":         {chat(`{"role":"system","content":"s"}`, userMsg, callMsg, toolMsg), ""},
		"unknown field": {more(chat(userMsg), `"input":1`), `unknown field "input"`},
		"system later": {
			chat(userMsg, `{"role":"system","content":"s"}`), `the role "system" is not allowed here`,
		},
		"system only": {chat(`{"role":"system","content":"s"}`), "the only message is a system message"},
		"system of parts": {
			chat(`{"role":"system","content":[]}`, userMsg), "the system message is not a text",
		},
		"no messages":   {chat(), "messages are empty"},
		"empty message": {chat(`{"role":"user"}`), "content is missing"},
		"empty result": {
			chat(userMsg, callMsg, `{"role":"tool","tool_call_id":"c"}`), "content is missing",
		},
		"empty answer": {
			chat(userMsg, `{"role":"assistant","content":null}`), "neither content nor a tool call",
		},
		"calls by the user": {
			chat(strings.Replace(callMsg, "assistant", "user", 1)), "tool_calls are only for role assistant",
		},
		"id in a user message": {
			chat(`{"role":"user","content":"x","tool_call_id":"c"}`), "tool_call_id is only for role tool",
		},
		"user before the result": {
			chat(userMsg, callMsg, userMsg, toolMsg), `the call "c" of x has no result`,
		},
		"no result":   {chat(userMsg, callMsg), "has no result"},
		"two results": {chat(userMsg, callMsg, toolMsg, toolMsg), "answered more than once"},
		"image in a result": {chat(userMsg, callMsg,
			`{"role":"tool","tool_call_id":"c","content":[{"type":"image_url",`+
				`"image_url":{"url":"data:image/png;base64,cG5n"}}]}`), "is not allowed here"},
		"call without arguments": {chat(userMsg, strings.Replace(callMsg, `,"arguments":"{}"`, "",
			1), toolMsg), "not a function with arguments"},
		"content of a wrong type": {chat(`{"role":"user","content":7}`), "neither a text nor a list"},
	})
}

// tb records the failures of a test.
type tb struct {
	errors  []string
	cleanup []func()
}

func (*tb) Helper()                     {}
func (b *tb) Errorf(f string, a ...any) { b.errors = append(b.errors, fmt.Sprintf(f, a...)) }
func (b *tb) Fatalf(f string, a ...any) { b.Errorf(f, a...) }
func (b *tb) Cleanup(f func())          { b.cleanup = append(b.cleanup, f) }
func (b *tb) end()                      { b.cleanup[0]() }
func (b *tb) has(t *testing.T, want ...string) {
	t.Helper()
	if len(b.errors) != len(want) {
		t.Fatalf("the test failed with %q, want %q", b.errors, want)
	}
	for i := range want {
		if !strings.Contains(b.errors[i], want[i]) {
			t.Errorf("the test failed with %q, want %q", b.errors[i], want[i])
		}
	}
}

func TestViolationFailsTheTest(t *testing.T) {
	b := &tb{}
	s := llmtest.NewServer(b, llmtest.Sequence())
	post(t, s, responsesPath, s.Key(), responses(userItem, callItem))
	post(t, s, responsesPath, s.Key(), responses(userItem))
	b.end()
	b.has(t, `the call "c" of x has no result`, "no reply is left after 0")
}

func TestAddressAndKey(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Sequence())
	if status, answer := post(t, s, responsesPath, "wrong", responses(userItem)); status != 401 ||
		!strings.Contains(answer, "invalid_api_key") {
		t.Errorf("wrong key: %d %s", status, answer)
	}
	if status, _ := post(t, s, "/v1/models", s.Key(), "{}"); status != 404 {
		t.Errorf("unknown address: %d", status)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Root()+responsesPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 405 {
		t.Errorf("GET: %d", resp.StatusCode)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d of these are recorded", n)
	}
}

func TestChangedReasoningIsAViolation(t *testing.T) {
	s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Reasoning: "hm", Text: "x"}
	})
	_, stream := post(t, s, responsesPath, s.Key(), more(responses(userItem),
		`"include":["reasoning.encrypted_content"]`))
	item := ""
	for sc := bufio.NewScanner(strings.NewReader(stream)); sc.Scan(); {
		var e struct {
			Type string
			Item json.RawMessage
		}
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if ok && json.Unmarshal([]byte(data), &e) == nil && e.Type == "response.output_item.done" &&
			item == "" {
			item = string(e.Item)
		}
	}
	answered := `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}`
	if status, answer := post(t, s, responsesPath, s.Key(), responses(userItem, item, answered,
		userItem)); status != 200 {
		t.Errorf("unchanged: %s", answer)
	}
	post(t, s, responsesPath, s.Key(), responses(userItem, strings.Replace(item, "gAAAA", "gBBBB", 1),
		answered, userItem))
	if v := s.TakeViolations(); len(v) != 1 || !strings.Contains(v[0], `"rs_0" was changed`) {
		t.Errorf("changed: %q", v)
	}
}

func clientOf(t *testing.T, s *llmtest.Server, api openai.API) llm.Client {
	t.Helper()
	c, err := openai.New(openai.Config{
		APIKey: s.Key(), BaseURL: s.URL(), API: api, HTTPClient: s.Client(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
}

func object() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }

// A server closes at once even if a client hangs on it.
func TestCloseEndsWhatHangs(t *testing.T) {
	s, err := llmtest.Start(llmtest.Sequence(llmtest.Reply{
		Text: "x", Fault: llmtest.Fault{Hang: llmtest.AtEnd},
	}))
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	c := clientOf(t, s, openai.Responses)
	for _, err := range c.Stream(t.Context(), llm.Request{
		Model: "m", Messages: []llm.Message{llm.UserText("x")},
	}) {
		if !closed {
			closed = true
			go s.Close()
		}
		if err != nil && llm.KindOf(err) != llm.KindNetwork {
			t.Errorf("got %v", err)
		}
	}
	s.Close()
	s.Close()
}
