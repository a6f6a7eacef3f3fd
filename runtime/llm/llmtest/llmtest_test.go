package llmtest_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body as it is and returns the status and the answer.
func post(t *testing.T, s *llmtest.Server, path, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
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
	userItem = `{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}`
	callItem = `{"type":"function_call","call_id":"c","name":"x","arguments":"{}"}`
	outItem  = `{"type":"function_call_output","call_id":"c","output":"ok"}`

	userMsg = `{"role":"user","content":"hi"}`
	callMsg = `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"x","arguments":"{}"}}]}`
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

func TestViolations(t *testing.T) {
	reasoning := `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"e"}`
	tests := map[string]struct{ body, want string }{
		"sound":              {responses(userItem, callItem, outItem), ""},
		"sound, repeated id": {responses(userItem, callItem, callItem, outItem, outItem), ""},
		"sound, reasoning":   {responses(userItem, reasoning, callItem, outItem), ""},
		"no JSON":            {`{`, "unexpected EOF"},
		"goes on":            {responses(userItem) + "{}", "goes on after the JSON value"},
		"unknown field":      {more(responses(userItem), `"mode":1`), `unknown field "mode"`},
		"unknown field in item": {
			responses(`{"type":"message","role":"user","content":[],"x":1}`),
			`unknown field "x"`,
		},
		"no model": {
			`{"stream":true,"store":false,"input":[` + userItem + `]}`,
			"model is missing",
		},
		"no stream": {
			`{"model":"m","store":false,"input":[` + userItem + `]}`,
			"stream is not set",
		},
		"stores": {
			`{"model":"m","stream":true,"input":[` + userItem + `]}`,
			"store is not false",
		},
		"no input":     {responses(), "input is empty"},
		"system role":  {responses(`{"type":"message","role":"system","content":[{"type":"input_text","text":"x"}]}`), `role "system" is unknown`},
		"unknown item": {responses(`{"type":"thought"}`), `the type "thought" is unknown`},
		"no content": {
			responses(`{"type":"message","role":"user","content":[]}`),
			"has no content",
		},
		"user with output_text": {responses(`{"type":"message","role":"user","content":[{"type":"output_text","text":"x"}]}`), "has no place here"},
		"image is no data":      {responses(`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"http://x"}]}`), "no data URL"},
		"image is no base64":    {responses(`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,?"}]}`), "not base64"},
		"result without call": {
			responses(userItem, outItem),
			`answers the call "c", which was not made before`,
		},
		"result before call": {responses(userItem, outItem, callItem), "which was not made before"},
		"two results": {
			responses(userItem, callItem, outItem, outItem),
			`the call "c" is answered more than once`,
		},
		"no result": {responses(userItem, callItem), `the call "c" of x has no result`},
		"call without id": {
			responses(userItem, strings.Replace(callItem, `"c"`, `""`, 1)),
			"has no id",
		},
		"call without arguments": {responses(userItem,
			`{"type":"function_call","call_id":"c","name":"x"}`), "arguments are missing"},
		"call of an odd name": {
			responses(userItem, strings.Replace(callItem, `"x"`, `"a b"`, 1)),
			`"a b" is no name`,
		},
		"output of a wrong type": {responses(userItem, callItem, strings.Replace(outItem, `"ok"`, `7`,
			1)), "neither a text nor a list"},
		"reasoning alone": {
			responses(userItem, reasoning, userItem),
			"the reasoning before it stands alone",
		},
		"reasoning at the end": {responses(userItem, reasoning), "reasoning stands alone at the end"},
		"reasoning w/o a summary": {responses(userItem, `{"type":"reasoning","id":"r"}`, callItem,
			outItem), "summary of reasoning is missing"},
		"tool is strict": {more(responses(userItem),
			`"tools":[{"type":"function","name":"x","parameters":{"type":"object"}}]`), "no function " +
			"with strict false"},
		"tool twice": {more(responses(userItem), strings.Replace(tool(`{"type":"object"}`),
			"[", `[{"type":"function","name":"x","strict":false,"parameters":{"type":"object"}},`,
			1)), "the tool x is there twice"},
		"schema is no object": {
			more(responses(userItem), tool(`{"type":"string"}`)),
			`not of type "object"`,
		},
		"schema of wrong types": {
			more(responses(userItem), tool(`{"type":"object","required":"a"}`)),
			"the schema of tool x",
		},
		"schema from elsewhere": {more(responses(userItem),
			tool(`{"type":"object","$ref":"file:///etc/passwd"}`)), "cannot be followed"},

		"chat: sound": {chat(`{"role":"system","content":"s"}`, userMsg, callMsg,
			toolMsg), ""},
		"chat: unknown field": {more(chat(userMsg), `"input":1`), `unknown field "input"`},
		"chat: system later": {
			chat(userMsg, `{"role":"system","content":"s"}`),
			`the role "system" has no place here`,
		},
		"chat: system only": {
			chat(`{"role":"system","content":"s"}`),
			"a system message only",
		},
		"chat: system of parts": {
			chat(`{"role":"system","content":[]}`, userMsg),
			"the system message is no text",
		},
		"chat: no messages":   {chat(), "messages are empty"},
		"chat: empty message": {chat(`{"role":"user"}`), "content is missing"},
		"chat: empty result": {
			chat(userMsg, callMsg, `{"role":"tool","tool_call_id":"c"}`),
			"content is missing",
		},
		"chat: empty answer": {
			chat(userMsg, `{"role":"assistant","content":null}`),
			"neither content nor a tool call",
		},
		"chat: calls by the user": {
			chat(strings.Replace(callMsg, "assistant", "user", 1)),
			"tool_calls have no place here",
		},
		"chat: id in a user message": {
			chat(`{"role":"user","content":"x","tool_call_id":"c"}`),
			"tool_call_id has no place here",
		},
		"chat: user before the result": {
			chat(userMsg, callMsg, userMsg, toolMsg),
			`the call "c" of x has no result`,
		},
		"chat: no result": {chat(userMsg, callMsg), "has no result"},
		"chat: two results": {
			chat(userMsg, callMsg, toolMsg, toolMsg),
			"answered more than once",
		},
		"chat: image in a result": {chat(userMsg, callMsg,
			`{"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}]}`), "has no place here"},
		"chat: call without arguments": {chat(userMsg, strings.Replace(callMsg, `,"arguments":"{}"`, "",
			1), toolMsg), "no function with arguments"},
		"chat: content of a wrong type": {
			chat(`{"role":"user","content":7}`),
			"neither a text nor a list",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("ok") })
			path := "/responses"
			if strings.HasPrefix(name, "chat") {
				path = "/chat/completions"
			}
			status, answer := post(t, s, path, s.Key(), tt.body)
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
			if got := s.Requests(); len(got) != 1 || string(got[0].Body) != tt.body {
				t.Errorf("recorded %d requests", len(got))
			}
		})
	}
}

// tb keeps what a test is told.
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
		t.Fatalf("the test was told %q, want %q", b.errors, want)
	}
	for i := range want {
		if !strings.Contains(b.errors[i], want[i]) {
			t.Errorf("the test was told %q, want %q", b.errors[i], want[i])
		}
	}
}

func TestViolationFailsTheTest(t *testing.T) {
	b := &tb{}
	s := llmtest.NewServer(b, llmtest.Sequence())
	post(t, s, "/responses", s.Key(), responses(userItem, callItem))
	post(t, s, "/responses", s.Key(), responses(userItem))
	b.end()
	b.has(t, `the call "c" of x has no result`, "no reply is left after 0")
}

func TestAddressAndKey(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Sequence())
	if status, answer := post(t, s, "/responses", "wrong", responses(userItem)); status != 401 ||
		!strings.Contains(answer, "invalid_api_key") {
		t.Errorf("wrong key: %d %s", status, answer)
	}
	if status, _ := post(t, s, "/models", s.Key(), "{}"); status != 404 {
		t.Errorf("unknown address: %d", status)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/responses", nil)
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
	s := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Reply{Reasoning: "hm", Text: "x"} })
	_, stream := post(t, s, "/responses", s.Key(), more(responses(userItem),
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
	said := `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}`
	if status, answer := post(t, s, "/responses", s.Key(), responses(userItem, item, said,
		userItem)); status != 200 {
		t.Errorf("unchanged: %s", answer)
	}
	post(t, s, "/responses", s.Key(), responses(userItem, strings.Replace(item, "gAAAA", "gBBBB", 1),
		said, userItem))
	if v := s.TakeViolations(); len(v) != 1 || !strings.Contains(v[0], `"rs_0" is not what it was`) {
		t.Errorf("changed: %q", v)
	}
}

func clientOf(t *testing.T, s *llmtest.Server, api openai.API) llm.Client {
	t.Helper()
	c, err := openai.New(openai.Config{
		APIKey: s.Key(), BaseURL: s.URL(), API: api,
		HTTPClient: s.Client(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
}

func object() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }

// A script played over HTTP is the script played inside the process.
func TestPlay(t *testing.T) {
	data, err := os.ReadFile("../replay/testdata/fix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	script, err := replay.ParseScript(data, "fix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	play := func(t *testing.T, c llm.Client) []llm.Response {
		t.Helper()
		outputs := map[string][]string{
			"shell": {"--- FAIL: TestAdd\nexit code: 1\n", "ok\n"}, "read_file": {"3 | return a - b\n"},
			"edit_file": {"1 replacement\n"},
		}
		req := llm.Request{Model: "m", Messages: []llm.Message{llm.UserText("please fix the failing " +
			"test")}, Tools: []llm.ToolSpec{
			{Name: "shell", Schema: object()}, {Name: "read_file", Schema: object()}, {
				Name:   "edit_file",
				Schema: object(),
			},
		}}
		var all []llm.Response
		for {
			resp, err := llm.Complete(t.Context(), c, req)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, resp)
			if len(resp.Message.ToolCalls()) == 0 {
				return all
			}
			answer := llm.Message{Role: llm.RoleTool}
			for _, call := range resp.Message.ToolCalls() {
				r := llm.ToolResult{
					CallID: call.ID, Name: call.Name,
					Parts: []llm.Part{llm.Text(outputs[call.Name][0])},
				}
				outputs[call.Name] = outputs[call.Name][1:]
				answer.Parts = append(answer.Parts, llm.Part{Kind: llm.PartToolResult, ToolResult: &r})
			}
			req.Messages = append(req.Messages, resp.Message, answer)
		}
	}
	want := play(t, llm.Retry(replay.NewScript(script), llm.RetryPolicy{}))
	if len(want) != 4 {
		t.Fatalf("%d answers, want 4", len(want))
	}
	for _, api := range []openai.API{openai.Responses, openai.Chat} {
		t.Run(string(api), func(t *testing.T) {
			brain, err := llmtest.Play(script)
			if err != nil {
				t.Fatal(err)
			}
			s := llmtest.NewServer(t, brain)
			got := play(t, clientOf(t, s, api))
			for i := range want {
				want, got := want[i], got[i]
				if want.Usage == (llm.Usage{}) {
					// The server makes one up.
					got.Usage = llm.Usage{}
				}
				got.ResponseID = want.ResponseID
				plain := cmp.Transformer("plain", func(r llm.Reasoning) string { return r.Text })
				if diff := cmp.Diff(want, got, plain); diff != "" {
					t.Errorf("answer %d (-in process +over HTTP):\n%s", i, diff)
				}
			}
			if n := len(s.Requests()); n != 5 {
				t.Errorf("%d requests, want 5 with the one that was refused", n)
			}
		})
	}
}

func TestPlayMismatch(t *testing.T) {
	script, err := replay.ParseScript([]byte("turns:\n  - {text: x, expect: {user: {contains: "+
		"moon}}}\n"), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	brain, err := llmtest.Play(script)
	if err != nil {
		t.Fatal(err)
	}
	s := llmtest.NewServer(t, brain)
	_, err = llm.Complete(t.Context(), clientOf(t, s, openai.Responses), llm.Request{
		Model:    "m",
		Messages: []llm.Message{llm.UserText("sun")},
	})
	const want = `s.yaml:2: turn 1 expects the user messages to contain "moon"`
	if llm.KindOf(err) != llm.KindInvalid || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if v := s.TakeViolations(); len(v) != 1 || !strings.Contains(v[0], want) {
		t.Errorf("violations %q", v)
	}
}

func TestPlayErrorsOverHTTP(t *testing.T) {
	kinds := []llm.ErrorKind{
		llm.KindNetwork, llm.KindTimeout, llm.KindRateLimit, llm.KindOverloaded, llm.KindServer,
		llm.KindStream, llm.KindAuth,
		llm.KindQuota, llm.KindNotFound, llm.KindContextLength, llm.KindInvalid, llm.KindContentFilter,
	}
	for _, api := range []openai.API{openai.Responses, openai.Chat} {
		for _, kind := range kinds {
			script, err := replay.ParseScript([]byte("turns:\n  - {text: part, error: {kind: "+string(kind)+", retry_after: 1h}}\n"), "s.yaml")
			if err != nil {
				t.Fatal(err)
			}
			brain, err := llmtest.Play(script)
			if err != nil {
				t.Fatal(err)
			}
			s := llmtest.NewServer(t, brain)
			c, err := openai.New(openai.Config{
				APIKey: s.Key(), BaseURL: s.URL(), API: api,
				HTTPClient: s.Client(),
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = llm.Complete(t.Context(), c, llm.Request{
				Model:    "m",
				Messages: []llm.Message{llm.UserText("x")},
			})
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != kind {
				t.Errorf("%s, %s: got %v", api, kind, err)
			}
			if kind == llm.KindRateLimit && e.RetryAfter.Hours() != 1 {
				t.Errorf("%s: retry after %s", api, e.RetryAfter)
			}
		}
	}
}

func TestPlayRefusesIsError(t *testing.T) {
	for _, expect := range []string{"result: {is_error: true}", "results: [{is_error: false}]"} {
		script, err := replay.ParseScript([]byte("turns:\n  - {text: x, expect: {"+expect+"}}\n"),
			"s.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := llmtest.Play(script); err == nil || !strings.Contains(err.Error(),
			"s.yaml:2: is_error") {
			t.Errorf("%s: got %v", expect, err)
		}
	}
}

// A server closes at once even if a client hangs on it.
func TestCloseEndsWhatHangs(t *testing.T) {
	s, err := llmtest.Start(llmtest.Sequence(llmtest.Reply{
		Text:  "x",
		Fault: llmtest.Fault{Hang: llmtest.AtEnd},
	}))
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	c := clientOf(t, s, openai.Responses)
	for _, err := range c.Stream(t.Context(), llm.Request{
		Model:    "m",
		Messages: []llm.Message{llm.UserText("x")},
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
