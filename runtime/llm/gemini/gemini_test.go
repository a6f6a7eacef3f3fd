package gemini_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root returns the base URL of a server for this package.
func root(srv *llmtest.Server) string { return strings.TrimSuffix(srv.URL(), "/v1") }

// connect starts a server and returns a client of it.
func connect(t *testing.T, brain llmtest.Brain) (*llmtest.Server, llm.Client) {
	t.Helper()
	srv := llmtest.NewServer(t, brain)
	return srv, newClient(t, gemini.Config{APIKey: srv.Key(), BaseURL: root(srv), HTTPClient: srv.Client()})
}

func newClient(t *testing.T, cfg gemini.Config) llm.Client {
	t.Helper()
	c, err := gemini.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// raw returns a client of a server that answers each request with the same stream.
func raw(t *testing.T, body string) llm.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return newClient(t, gemini.Config{BaseURL: srv.URL, HTTPClient: srv.Client()})
}

func ask() llm.Request {
	return llm.Request{
		Model: "gemini-3-pro", System: "be brief", Messages: []llm.Message{llm.UserText("hello")}, ParallelToolCalls: true,
		Tools: []llm.ToolSpec{{
			Name: "shell", Description: "runs a command",
			Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
		}},
	}
}

// parts returns the parts of m without what only the server understands.
func parts(m llm.Message) []llm.Part {
	var out []llm.Part
	for _, p := range m.Parts {
		if p.Kind == llm.PartReasoning {
			if p.Reasoning.Text == "" {
				continue
			}
			p.Reasoning = &llm.Reasoning{Text: p.Reasoning.Text}
		}
		out = append(out, p)
	}
	return out
}

func thought(s string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: s}}
}

func called(id, name, args string) llm.Part {
	return llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{ID: id, Name: name, Arguments: args}}
}

func answered(id, name string, parts ...llm.Part) llm.Message {
	return llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{
		Kind: llm.PartToolResult, ToolResult: &llm.ToolResult{CallID: id, Name: name, Parts: parts},
	}}}
}

func picture() llm.Part {
	return llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: []byte("png")}}
}

// fullReply has one of everything, in more than one piece each, with characters of several bytes.
func fullReply() llmtest.Reply {
	return llmtest.Reply{
		Reasoning: "Ich überlege, was zu tun ist — 考え中 🤔.",
		Text:      "Ich führe zuerst die Tests aus: <go test> & \"mehr\" 🚀.",
		Calls: []llmtest.Call{
			{ID: "call_a", Name: "shell", Arguments: `{"command":"go test ./... && echo \"größer\" > /tmp/x","n":9007199254740993}`},
			{ID: "call_b", Name: "shell", Arguments: `{"z":1.50,"command":"ls -la /some/long/path/to/see"}`},
		},
		Usage: llm.Usage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 30},
	}
}

func fullParts() []llm.Part {
	r := fullReply()
	return []llm.Part{
		thought(r.Reasoning), llm.Text(r.Text), called("call_a", "shell", r.Calls[0].Arguments),
		called("call_b", "shell", r.Calls[1].Arguments),
	}
}

func checkFull(t *testing.T, resp llm.Response) {
	t.Helper()
	if diff := cmp.Diff(fullParts(), parts(resp.Message)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if resp.Finish != llm.FinishToolCalls || resp.Usage != fullReply().Usage || resp.Model != "gemini-3-pro" || resp.ResponseID == "" {
		t.Errorf("got %+v", resp)
	}
}

func TestAnswer(t *testing.T) {
	_, c := connect(t, llmtest.Sequence(fullReply()))
	resp, err := llm.Complete(t.Context(), c, ask())
	if err != nil {
		t.Fatal(err)
	}
	checkFull(t, resp)
}

func TestFinish(t *testing.T) {
	for _, f := range []llm.FinishReason{llm.FinishStop, llm.FinishLength, llm.FinishContentFilter} {
		_, c := connect(t, llmtest.Sequence(llmtest.Reply{Text: "x", Finish: f}))
		resp, err := llm.Complete(t.Context(), c, ask())
		if err != nil || resp.Finish != f {
			t.Errorf("got %q, %v; want %q", resp.Finish, err, f)
		}
	}
}

// What servers do to the framing of a stream changes nothing of the answer.
func TestOddFraming(t *testing.T) {
	faults := map[string]llmtest.Fault{
		"1-byte chunks":            {OneByte: true},
		"CRLF":                     {CRLF: true},
		"comments":                 {Comments: true},
		"all of it":                {OneByte: true, CRLF: true, Comments: true, Interleave: true},
		"1 MB event":               {Pad: 1 << 20},
		"nothing after the end":    {NoDone: true},
		"Content-Length too large": {Length: 100},
		"slow":                     {Pace: 1},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			reply := fullReply()
			reply.Fault = fault
			_, c := connect(t, llmtest.Sequence(reply))
			resp, err := llm.Complete(t.Context(), c, ask())
			if err != nil {
				t.Fatal(err)
			}
			checkFull(t, resp)
		})
	}
}

// A stream that is not complete is an error, never half an answer, and the next attempt gives the whole one.
func TestBrokenStreams(t *testing.T) {
	faults := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
	}{
		"Content-Length too small": {llmtest.Fault{Length: -900}, llm.KindStream},
		"not really compressed":    {llmtest.Fault{Gzip: true}, llm.KindStream},
		"error in a text":          {llmtest.Fault{Fail: llmtest.AtText, Code: "INTERNAL", Message: "sorry"}, llm.KindServer},
		"rate limit in arguments":  {llmtest.Fault{Fail: llmtest.AtArguments, Code: "RESOURCE_EXHAUSTED", Message: "slow down"}, llm.KindRateLimit},
		"overload at the start":    {llmtest.Fault{Fail: llmtest.AtStart, Message: "The model is overloaded."}, llm.KindOverloaded},
		"overload at the end":      {llmtest.Fault{Fail: llmtest.AtEnd, Message: "try later"}, llm.KindOverloaded},
	}
	for _, at := range []llmtest.Point{llmtest.AtStart, llmtest.AtText, llmtest.AtArguments, llmtest.AtEnd} {
		faults["cut, "+string(at)] = struct {
			fault llmtest.Fault
			kind  llm.ErrorKind
		}{llmtest.Fault{Cut: at}, llm.KindStream}
		faults["ends, "+string(at)] = struct {
			fault llmtest.Fault
			kind  llm.ErrorKind
		}{llmtest.Fault{End: at}, llm.KindStream}
	}
	for name, tt := range faults {
		t.Run(name, func(t *testing.T) {
			reply := fullReply()
			reply.Fault = tt.fault
			srv, c := connect(t, llmtest.Sequence(reply, reply, fullReply()))
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Provider != "gemini" || e.Status != 200 {
				t.Fatalf("got %#v, want kind %s", err, tt.kind)
			}
			again := llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
			resp, err := llm.Complete(t.Context(), again, ask())
			if err != nil {
				t.Fatal(err)
			}
			checkFull(t, resp)
			if n := len(srv.Requests()); n != 3 {
				t.Errorf("%d requests, want 3", n)
			}
		})
	}
}

func TestOddCalls(t *testing.T) {
	var many []llmtest.Call
	for i := range 200 {
		many = append(many, llmtest.Call{ID: fmt.Sprint("c", i), Name: "shell", Arguments: fmt.Sprintf(`{"command":"echo %d"}`, i)})
	}
	tests := map[string][]llmtest.Call{
		"equal ids":         {{ID: "a", Name: "shell", Arguments: "{}"}, {ID: "a", Name: "shell", Arguments: `{"command":"b"}`}},
		"missing ids":       {{NoID: true, Name: "shell", Arguments: "{}"}, {NoID: true, Name: "shell", Arguments: `{"command":"b"}`}},
		"200 at once":       many,
		"5 MB of arguments": {{ID: "a", Name: "shell", Arguments: `{"command":"` + strings.Repeat("x", 5<<20) + `"}`}},
	}
	for name, calls := range tests {
		t.Run(name, func(t *testing.T) {
			_, c := connect(t, llmtest.Sequence(llmtest.Use(calls...)))
			resp, err := llm.Complete(t.Context(), c, ask())
			if err != nil {
				t.Fatal(err)
			}
			var want []llm.ToolCall
			for _, call := range calls {
				want = append(want, llm.ToolCall{ID: call.ID, Name: call.Name, Arguments: call.Arguments})
			}
			if diff := cmp.Diff(want, resp.Message.ToolCalls()); diff != "" {
				t.Errorf("calls (-want +got):\n%.2000s", diff)
			}
		})
	}
	t.Run("malformed arguments", func(t *testing.T) {
		_, c := connect(t, llmtest.Sequence(llmtest.Use(llmtest.Call{Name: "shell", Arguments: `{"command": "unfinished`})))
		if _, err := llm.Complete(t.Context(), c, ask()); llm.KindOf(err) != llm.KindStream {
			t.Errorf("got %v", err)
		}
	})
}

// The whole conversation of several rounds is one that a strict server accepts: signatures go back as they were, calls
// have the ids that the model gave them, and results stand in the order of the calls.
func TestConversation(t *testing.T) {
	noIDs := fullReply()
	noIDs.Calls = []llmtest.Call{
		{NoID: true, Name: "shell", Arguments: `{"command":"a"}`},
		{NoID: true, Name: "read_file", Arguments: `{}`},
		{NoID: true, Name: "shell", Arguments: `{"command":"b"}`},
	}
	for _, model := range []string{"gemini-3-pro", "gemini-2.5-flash", "gemini-flash-latest"} {
		t.Run(model, func(t *testing.T) {
			srv, c := connect(t, llmtest.Sequence(fullReply(), noIDs, llmtest.Say("wait"), llmtest.Say("done")))
			req := ask()
			req.Model = model
			req.Messages[0].Parts = append(req.Messages[0].Parts, picture())
			for round := range 4 {
				resp, err := llm.Complete(t.Context(), c, req)
				if err != nil {
					t.Fatal(err)
				}
				// A loop gives ids of its own to the calls that have none, and others to those that have one.
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
				// Each result is a message of its own, and they come in another order than the calls.
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
			signatures, images := strings.Count(string(last.Body), `"thoughtSignature"`), strings.Count(string(last.Body), `"cG5n"`)
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
				"call_b: result of call_b_0_1", "call_without_id_3: result of _1_1", "call_without_id_4: result of _1_2",
			}
			if diff := cmp.Diff(want, results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

// A conversation that another provider's model has begun goes on with a model that wants signatures.
func TestForeignHistory(t *testing.T) {
	srv, c := connect(t, llmtest.Sequence(llmtest.Say("ok")))
	req := ask()
	req.Messages = append(
		req.Messages,
		llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: "x", Provider: "openai", Opaque: json.RawMessage(`{"type":"reasoning"}`)}},
			called("c1", "made up name!", `{"command":`), called("c2", "9.lives", `[1]`),
		}},
		answered("c1", "made up name!", llm.Text("a")), answered("c2", "9.lives"),
	)
	if _, err := llm.Complete(t.Context(), c, req); err != nil {
		// The server knows no dots in names, which real ones do.
		if !strings.Contains(err.Error(), "is no name of a tool") {
			t.Fatal(err)
		}
		srv.TakeViolations()
	}
	body := string(srv.Requests()[0].Body)
	for _, want := range []string{
		`{"functionCall":{"args":{"arguments":"{\"command\":"},"name":"made_up_name_"},"thoughtSignature":"skip_thought_signature_validator"}`,
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

// Calls of one id are told apart by their order.
func TestResultsOfEqualIDs(t *testing.T) {
	_, c := connect(t, llmtest.Sequence(llmtest.Say("ok")))
	req := ask()
	req.Messages = append(
		req.Messages, llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{called("a", "x", ""), called("a", "y", "")}},
		answered("a", "x", llm.Text("1")), answered("a", "y", llm.Text("2")),
	)
	if _, err := llm.Complete(t.Context(), c, req); err != nil {
		t.Error(err)
	}
}

func TestSameRequestSameBytes(t *testing.T) {
	srv, c := connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("x") })
	for range 20 {
		req := ask()
		// Equal maps whose iteration order differs.
		req.Options = map[string]any{
			"generationConfig": map[string]any{"seed": 1, "topP": 0.5, "temperature": 1, "topK": nil}, "store": false,
			"tools": []any{map[string]any{"googleSearch": map[string]any{"a": 1, "b": 2}}},
		}
		if _, err := llm.Complete(t.Context(), c, req); err != nil {
			t.Fatal(err)
		}
	}
	requests := srv.Requests()
	for _, r := range requests[1:] {
		if string(r.Body) != string(requests[0].Body) {
			t.Fatalf("two bodies for one request:\n%s\n%s", requests[0].Body, r.Body)
		}
	}
}

func TestConnectionIsUsedAgain(t *testing.T) {
	_, c := connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("x") })
	opened := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !info.Reused {
			opened++
		}
	}})
	for range 5 {
		if _, err := llm.Complete(ctx, c, ask()); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 1 {
		t.Errorf("%d connections were opened for 5 requests, want 1", opened)
	}
}

func TestNothingIsSentBeforeIteration(t *testing.T) {
	srv, c := connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("x") })
	stream := c.Stream(t.Context(), ask())
	if n := len(srv.Requests()); n != 0 {
		t.Errorf("%d requests before iteration", n)
	}
	for want := 1; want <= 2; want++ {
		next := 0
		for d, err := range stream {
			if err != nil || d.Seq != next {
				t.Fatalf("delta %+v, %v; want number %d", d, err, next)
			}
			next++
		}
		if n := len(srv.Requests()); n != want {
			t.Errorf("%d requests after %d iterations", n, want)
		}
	}
}

// Leaving the iteration ends the request: the server's Close would wait forever for a handler that hangs.
func TestBreakClosesTheConnection(t *testing.T) {
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, sse(text("a")))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c := newClient(t, gemini.Config{BaseURL: srv.URL, HTTPClient: srv.Client()})
	for _, err := range c.Stream(t.Context(), ask()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	<-gone
}
