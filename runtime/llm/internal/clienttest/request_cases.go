package clienttest

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func testConfiguration(t *testing.T, w Wire) {
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"default":       {Config{APIKey: Key}, ""},
		"no key needed": {Config{BaseURL: "http://localhost:11434/v1"}, ""},
		"no key":        {Config{}, "the API key is missing"},
		"no scheme":     {Config{APIKey: Key, BaseURL: "localhost:1"}, "base URL is not of the form"},
		"not HTTP":      {Config{APIKey: Key, BaseURL: "ftp://host/v1"}, "base URL is not of the form"},
		"password in URL": {
			Config{APIKey: Key, BaseURL: "http://u:hunter2@:%zz"}, "base URL is not of the form",
		},
		"query":      {Config{APIKey: Key, BaseURL: "http://host/v1?x=1"}, "has a query"},
		"line break": {Config{APIKey: Key + "\n"}, "the API key has a line break"},
		"header name": {
			Config{APIKey: Key, Headers: map[string]string{"a b": "c"}}, `"a b" is not the name`,
		},
		"header value": {
			Config{APIKey: Key, Headers: map[string]string{"a": "c\r\nd"}}, "the header a has a line break",
		},
		"negative timeout": {Config{APIKey: Key, IdleTimeout: -1}, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.New(tt.cfg)
			if tt.want == "" && err == nil {
				return
			}
			if err == nil || tt.want == "" || !strings.HasPrefix(err.Error(), w.Provider+": ") ||
				!strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), Key) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func testAddresses(t *testing.T, w Wire) {
	bases := map[string]string{"": "", "/": "", "/x": "/x", "/x/": "/x", "/v1/x": "/v1/x"}
	if w.Ignored != "" {
		maps.Copy(bases, map[string]string{w.Ignored: "", w.Ignored + "/": "", "/x" + w.Ignored: "/x"})
	}
	for base, want := range bases {
		for _, key := range []string{"", Key} {
			r, _, err := w.Sent(t, Config{APIKey: key, BaseURL: base}, w.Request())
			if r == nil {
				t.Fatalf("%q: nothing was sent: %v", base, err)
			}
			if r.Method != "POST" || r.RequestURI != want+w.Path ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%q: %s %s of %s, want %s", base, r.Method, r.RequestURI, r.Header.Get("Content-Type"),
					want+w.Path)
			}
			if got, ok := r.Header[w.KeyHeader]; ok != (key != "") || ok && got[0] != w.KeyPrefix+key {
				t.Errorf("%q: the key %q is sent as %q", base, key, got)
			}
		}
	}
}

// Environment variables steer libraries.
func testVariables(t *testing.T, w Wire) {
	_, want, _ := w.Sent(t, Config{}, w.Everything())
	for name, value := range w.Variables {
		t.Setenv(name, value)
	}
	r, got, err := w.Sent(t, Config{}, w.Everything())
	if r == nil || string(got) != string(want) {
		t.Fatalf("sent %s, want %s; %v", got, want, err)
	}
	for name, values := range r.Header {
		if strings.Contains(strings.Join(values, ""), "from-the-process") {
			t.Errorf("sent %s: %s", name, values)
		}
	}
	if _, err := w.New(Config{}); err == nil {
		t.Error("a client without a key was made")
	}
}

func testSameBytes(t *testing.T, w Wire) {
	srv, c := w.Connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("x") })
	for range 20 {
		req := w.Request()
		// Equal maps whose iteration order differs.
		req.Options = maps.Clone(w.Options)
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

// testNoToolCalls has tools that the answer must not call, which servers reject without tools.
func testNoToolCalls(t *testing.T, w Wire) {
	srv, c := w.Connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("x") })
	for i, forbidden := range []bool{false, true, true} {
		req := w.Request()
		if req.NoToolCalls = forbidden; i == 2 {
			req.Tools = nil
		}
		if _, err := llm.Complete(t.Context(), c, req); err != nil {
			t.Fatal(err)
		}
		got := srv.Requests()[i]
		if want := forbidden && i != 2; got.NoToolCalls != want || len(got.Tools) != len(req.Tools) {
			t.Errorf("request %d: sent %s", i, got.Body)
		}
	}
}

func testInvalidUTF8(t *testing.T, w Wire) {
	srv, c := w.Connect(t, llmtest.Sequence(llmtest.Text("x")))
	req := w.Request()
	req.Messages = []llm.Message{
		llm.UserText("a\xff\x00b\xed\xa0\x80é"),
		{Role: llm.RoleAssistant, Parts: []llm.Part{Called("c", "shell", "{\"x\":\"\xff\"}")}},
		Result(llm.ToolResult{CallID: "c", Name: "shell", Parts: []llm.Part{llm.Text("\xff")}}),
	}
	if _, err := llm.Complete(t.Context(), c, req); err != nil {
		t.Fatal(err)
	}
	got := srv.Requests()[0]
	if !utf8.Valid(got.Body) ||
		!strings.Contains(string(got.Body), `a\ufffd\u0000b\ufffd\ufffd\ufffdé`) {
		t.Errorf("sent %q", got.Body)
	}
	var texts []string
	for _, m := range got.Messages {
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil:
				texts = append(texts, p.ToolCall.Arguments)
			case p.ToolResult != nil:
				texts = append(texts, p.ToolResult.Text())
			case p.Kind == llm.PartText:
				texts = append(texts, p.Text)
			}
		}
	}
	want := []string{"a\ufffd\x00b\ufffd\ufffd\ufffdé", "{\"x\":\"\ufffd\"}", "\ufffd"}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

// unsendable are changes that make a request invalid.
func unsendable() map[string]func(*llm.Request) {
	return map[string]func(*llm.Request){
		"schema is not JSON":  func(r *llm.Request) { r.Tools[0].Schema = json.RawMessage(`{"type":`) },
		"option stream":       func(r *llm.Request) { r.Options = map[string]any{"stream": false} },
		"option without JSON": func(r *llm.Request) { r.Options = map[string]any{"x": func() {}} },
		"image in a wrong place": func(r *llm.Request) {
			r.Messages[0] = llm.Message{Role: llm.RoleTool, Parts: []llm.Part{Picture()}}
		},
		"part without content": func(r *llm.Request) {
			r.Messages[0].Parts[0] = llm.Part{Kind: llm.PartImage}
		},
		"unknown part": func(r *llm.Request) { r.Messages[0].Parts[0] = llm.Part{Kind: "x"} },
		"unknown role": func(r *llm.Request) {
			r.Messages[0] = llm.Message{Role: "x", Parts: []llm.Part{llm.Text("x")}}
		},
	}
}

func testUnsendable(t *testing.T, w Wire) {
	for _, table := range []map[string]func(*llm.Request){unsendable(), w.Unsendable} {
		for name, spoil := range table {
			t.Run(name, func(t *testing.T) {
				req := w.Request()
				spoil(&req)
				r, _, err := w.Sent(t, Config{}, req)
				if llm.KindOf(err) != llm.KindInvalid || r != nil {
					t.Errorf("got %v; sent: %t", err, r != nil)
				}
			})
		}
	}
}

// The request belongs to the caller.
func testNotModified(t *testing.T, w Wire) {
	req, same := w.Everything(), w.Everything()
	for _, r := range []*llm.Request{&req, &same} {
		r.Messages = append(r.Messages, llm.Message{
			Role: llm.RoleAssistant, Parts: []llm.Part{llm.Text("end \n")},
		})
	}
	if r, _, err := w.Sent(t, Config{}, req); r == nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(same, req); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
