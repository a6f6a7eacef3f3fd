package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect starts a server and returns a client of it.
func connect(t *testing.T, brain llmtest.Brain) (*llmtest.Server, llm.Client) {
	t.Helper()
	srv := llmtest.NewServer(t, brain)
	return srv, newClient(t, anthropic.Config{APIKey: srv.Key(), BaseURL: srv.URL(), HTTPClient: srv.Client()})
}

func newClient(t *testing.T, cfg anthropic.Config) llm.Client {
	t.Helper()
	c, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// raw returns a client of a server that answers each request with the same stream.
func raw(t *testing.T, contentType, body string) llm.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return newClient(t, anthropic.Config{APIKey: "sk-raw-0123456789", BaseURL: srv.URL, HTTPClient: srv.Client()})
}

func ask() llm.Request {
	return llm.Request{
		Model: "claude-opus-5-5", System: "be brief", Messages: []llm.Message{llm.UserText("hello")}, ParallelToolCalls: true,
		Tools: []llm.ToolSpec{{
			Name: "shell", Description: "runs a command",
			Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
		}},
	}
}

// parts returns the parts of m without opaque reasoning.
func parts(m llm.Message) []llm.Part {
	var out []llm.Part
	for _, p := range m.Parts {
		if p.Kind == llm.PartReasoning {
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

// fullReply has one of everything, in more than one piece each, with characters of several bytes.
func fullReply() llmtest.Reply {
	return llmtest.Reply{
		Reasoning: "Ich überlege, was zu tun ist — 考え中 🤔.",
		Text:      "Ich führe zuerst die Tests aus: <go test> & \"mehr\" 🚀.",
		Calls: []llmtest.Call{
			{ID: "call_a", Name: "shell", Arguments: `{"command":"go test ./... && echo \"größer\" > /tmp/x"}`},
			{ID: "call_b", Name: "shell", Arguments: `{"command":"ls -la /some/long/path/to/see"}`},
		},
		Usage: llm.Usage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 30, CacheWrite: 7},
	}
}

func fullParts() []llm.Part {
	r := fullReply()
	return []llm.Part{
		thought(r.Reasoning), llm.Text(r.Text), called("call_a", "shell", r.Calls[0].Arguments),
		called("call_b", "shell", r.Calls[1].Arguments),
	}
}

func TestAnswer(t *testing.T) {
	_, c := connect(t, llmtest.Sequence(fullReply()))
	resp, err := llm.Complete(t.Context(), c, ask())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullParts(), parts(resp.Message)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if resp.Finish != llm.FinishToolCalls || resp.Usage != fullReply().Usage || resp.Model != "claude-opus-5-5" || resp.ResponseID == "" {
		t.Errorf("got %+v", resp)
	}
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
		"mixed pieces of calls":    {Interleave: true},
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
			if diff := cmp.Diff(fullParts(), parts(resp.Message)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// A stream that is not complete is an error, never half an answer, and the next attempt gives the whole one.
func TestBrokenStreams(t *testing.T) {
	faults := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
	}{
		"cut before the first event": {llmtest.Fault{Cut: llmtest.AtStart}, llm.KindStream},
		"cut in a text":              {llmtest.Fault{Cut: llmtest.AtText}, llm.KindStream},
		"cut in arguments":           {llmtest.Fault{Cut: llmtest.AtArguments}, llm.KindStream},
		"cut before the end":         {llmtest.Fault{Cut: llmtest.AtEnd}, llm.KindStream},
		"ends before the first":      {llmtest.Fault{End: llmtest.AtStart}, llm.KindStream},
		"ends in a text":             {llmtest.Fault{End: llmtest.AtText}, llm.KindStream},
		"ends in arguments":          {llmtest.Fault{End: llmtest.AtArguments}, llm.KindStream},
		"ends before the end":        {llmtest.Fault{End: llmtest.AtEnd}, llm.KindStream},
		"Content-Length too small":   {llmtest.Fault{Length: -900}, llm.KindStream},
		"not really compressed":      {llmtest.Fault{Gzip: true}, llm.KindStream},
		"error in a text":            {llmtest.Fault{Fail: llmtest.AtText, Code: "server_error", Message: "sorry"}, llm.KindServer},
		"rate limit in arguments":    {llmtest.Fault{Fail: llmtest.AtArguments, Code: "rate_limit_exceeded", Message: "slow down"}, llm.KindRateLimit},
		"overload at the start":      {llmtest.Fault{Fail: llmtest.AtStart, Message: "We are currently overloaded."}, llm.KindOverloaded},
	}
	for name, tt := range faults {
		t.Run(name, func(t *testing.T) {
			reply := fullReply()
			reply.Fault = tt.fault
			srv, c := connect(t, llmtest.Sequence(reply, reply, fullReply()))
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Provider != "anthropic" || e.Status != 200 {
				t.Fatalf("got %#v, want kind %s", err, tt.kind)
			}
			again := llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
			resp, err := llm.Complete(t.Context(), again, ask())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fullParts(), parts(resp.Message)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if resp.Usage != fullReply().Usage || len(srv.Requests()) != 3 {
				t.Errorf("usage %+v after %d requests", resp.Usage, len(srv.Requests()))
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
		"malformed arguments": {{ID: "a", Name: "shell", Arguments: `{"command": "unfinished`}},
		"empty arguments":     {{ID: "a", Name: "shell"}},
		"wrong types":         {{ID: "a", Name: "shell", Arguments: `[1, "x", null]`}},
		"equal ids":           {{ID: "a", Name: "shell", Arguments: "{}"}, {ID: "a", Name: "shell", Arguments: `{"command":"b"}`}},
		"missing ids":         {{NoID: true, Name: "shell", Arguments: "{}"}, {NoID: true, Name: "shell", Arguments: `{"command":"b"}`}},
		"200 at once":         many,
		"5 MB of arguments":   {{ID: "a", Name: "shell", Arguments: `{"command":"` + strings.Repeat("x", 5<<20) + `"}`}},
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
}

// The whole conversation of several rounds is one that a strict server accepts, and thinking goes back as it was.
func TestConversation(t *testing.T) {
	png := []byte("\x89PNG")
	second := fullReply()
	second.Reasoning = "Once more."
	second.Calls = []llmtest.Call{{Name: "shell", Arguments: `{"command": broken`}, {Name: "shell"}}
	srv, c := connect(t, llmtest.Sequence(fullReply(), second, llmtest.Say("done")))
	req := ask()
	req.Messages[0].Parts = append(req.Messages[0].Parts, llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: png}})
	for range 3 {
		resp, err := llm.Complete(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, resp.Message)
		// Each result is a message of its own, as a loop may write them.
		for i, call := range resp.Message.ToolCalls() {
			r := llm.ToolResult{CallID: call.ID, Name: call.Name, Parts: []llm.Part{llm.Text("ok")}}
			if i == 0 {
				r.Parts, r.IsError = []llm.Part{{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: png}}}, true
			}
			req.Messages = append(req.Messages, llm.Message{
				Role: llm.RoleTool, Parts: []llm.Part{{Kind: llm.PartToolResult, ToolResult: &r}},
			})
		}
		req.Messages = append(req.Messages, llm.UserText("go on"), llm.UserText("please"))
	}
	// What the server reads is what was meant, but that results in a row make one message.
	got := srv.Requests()[2].Messages
	var want []llm.Message
	for _, m := range req.Messages[:len(req.Messages)-3] {
		if last := len(want) - 1; m.Role == llm.RoleTool && want[last].Role == llm.RoleTool {
			want[last].Parts = append(want[last].Parts[:1:1], m.Parts...)
			continue
		}
		want = append(want, m)
	}
	plain := cmp.Transformer("plain", func(r llm.Reasoning) string { return r.Provider })
	empty := cmp.Transformer("arguments", func(c llm.ToolCall) string { return c.ID + c.Name + strings.TrimSuffix(c.Arguments, "{}") })
	if diff := cmp.Diff(want, got, plain, empty); diff != "" {
		t.Errorf("the last request (-want +got):\n%s", diff)
	}
	if n := len(got[1].Parts); n != 4 || got[1].Parts[0].Kind != llm.PartReasoning {
		t.Errorf("the first answer came back with %d parts: %+v", n, got[1].Parts)
	}
}

func TestSameRequestSameBytes(t *testing.T) {
	srv, c := connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Say("x") })
	for range 20 {
		req := ask()
		// Equal maps whose iteration order differs.
		req.Options = map[string]any{
			"metadata": map[string]any{"a": 1, "b": "2", "c": nil}, "top_k": 5, "top_p": 0.5, "temperature": 1, "betas": []any{"x", "y"},
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
		_, _ = fmt.Fprint(w, `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c := newClient(t, anthropic.Config{BaseURL: srv.URL, HTTPClient: srv.Client()})
	for _, err := range c.Stream(t.Context(), ask()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	<-gone
}
