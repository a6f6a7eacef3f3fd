package gemini_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
)

// chunk writes an event with parts.
func chunk(parts ...string) string {
	return `{"candidates":[{"content":{"role":"model","parts":[` + strings.Join(parts, ",") + `]}}]}`
}

func text(s string) string { return chunk(`{"text":"` + s + `"}`) }

func finish(reason string) string {
	return `{"candidates":[{"finishReason":"` + reason + `"}],"usageMetadata":{"promptTokenCount":1}}`
}

func opaque(text, raw string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
		Text: text, Provider: "gemini", Opaque: json.RawMessage(raw),
	}}
}

func TestParts(t *testing.T) {
	tests := map[string]struct {
		stream []string
		want   []llm.Part
		finish llm.FinishReason
	}{
		"texts": {
			list(text("a"), text("b"), finish("STOP")), parts(llm.Text("ab")), llm.FinishStop,
		},
		"all in one event": {
			list(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"nothing": {list(finish("STOP")), nil, llm.FinishStop},
		"empty parts": {
			list(chunk(`{}`, `{"text":""}`), text("a"), finish("STOP")), parts(llm.Text("a")),
			llm.FinishStop,
		},
		"another candidate": {
			list(`{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]},`+
				`"finishReason":"OTHER"}]}`, text("a"), finish("STOP")),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"a finish in each": {
			list(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`, text("b"),
				finish("STOP")),
			parts(llm.Text("ab")), llm.FinishStop,
		},
		"unknown fields": {
			list(`{"candidates":[{"safetyRatings":[1],"groundingMetadata":{"x":[]}}],"createTime":1}`,
				text("a"), finish("STOP")),
			parts(llm.Text("a")), llm.FinishStop,
		},
		"thoughts": {
			list(chunk(`{"text":"x","thought":true}`), chunk(`{"text":"y","thought":true}`), text("a"),
				finish("STOP")),
			parts(thought("xy"), llm.Text("a")), llm.FinishStop,
		},
		"a call": {
			list(chunk(`{"functionCall":{"name":"f","args":{"b":1.0,"a":[ 2 ]}}}`), finish("STOP")),
			parts(called("", "f", `{"b":1.0,"a":[ 2 ]}`)), llm.FinishToolCalls,
		},
		"no args": {list(chunk(`{"functionCall":{"name":"f"}}`,
			`{"functionCall":{"name":"g","args":null}}`), finish("STOP")), parts(called("", "f",
			`{}`), called("", "g", `{}`)), llm.FinishToolCalls},
		"a cut call is lost": {
			list(text("a"), chunk(`{"functionCall":{"name":"f"}}`), finish("MAX_TOKENS")),
			parts(llm.Text("a")), llm.FinishLength,
		},
		"a signed call": {
			list(chunk(`{"text":"x","thought":true}`),
				chunk(`{"functionCall":{"id":"i","name":"f","args":{}},"thoughtSignature":"s+/="}`),
				finish("STOP")),
			parts(opaque("x", `{"functionCall":{"id":"i","name":"f"},"thoughtSignature":"s+/="}`),
				called("i", "f", `{}`)),
			llm.FinishToolCalls,
		},
		"a signed text": {
			list(text("a"), chunk(`{"text":"b","thoughtSignature":"s"}`), text("c"), text("d"),
				finish("STOP")),
			parts(llm.Text("a"), opaque("", `{"thoughtSignature":"s"}`), llm.Text("b"), opaque("", `{}`),
				llm.Text("cd")),
			llm.FinishStop,
		},
		"a signature at the end": {
			list(text("a"), chunk(`{"text":"","thoughtSignature":"s"}`), finish("STOP")),
			parts(llm.Text("a"), opaque("", `{"text":"","thoughtSignature":"s"}`)), llm.FinishStop,
		},
		"a signed thought": {
			list(chunk(`{"text":"x","thought":true}`),
				chunk(`{"text":"y","thought":true,"thoughtSignature":"s"}`), text("a"), finish("STOP")),
			parts(opaque("xy", `{"text":"y","thought":true,"thoughtSignature":"s"}`), llm.Text("a")),
			llm.FinishStop,
		},
		"what the server has run": {
			list(chunk(`{"executableCode":{"code":"1"}}`, `{"codeExecutionResult":{"output":"1"}}`),
				text("a"), finish("STOP")),
			parts(opaque("", `{"executableCode":{"code":"1"}}`),
				opaque("", `{"codeExecutionResult":{"output":"1"}}`), llm.Text("a")),
			llm.FinishStop,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := wire().Raw(t, sse(tt.stream...))
			resp, err := llm.Complete(t.Context(), c, newRequest())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, resp.Message.Parts); diff != "" || resp.Finish != tt.finish {
				t.Errorf("finish %s, message (-want +got):\n%s", resp.Finish, diff)
			}
		})
	}
}

// The parts of an answer are sent back as they were received, except those that the server does not
// need.
func TestPartsGoBack(t *testing.T) {
	sent := []string{
		`{"text":"a"}`, `{"text":"b","thoughtSignature":"s1"}`, `{"text":"c"}`,
		`{"executableCode":{"code":"1"},"thoughtSignature":"s2"}`,
		`{"text":"y","thought":true,"thoughtSignature":"s3"}`,
		`{"functionCall":{"args":{"z":1.50,"a":9007199254740993},"id":"i","name":"f"},` +
			`"thoughtSignature":"s4+/="}`,
		`{"functionCall":{"args":{},"id":"j","name":"f"}}`, `{"functionCall":{"args":{},"name":"g"}}`,
		`{"text":"","thoughtSignature":"s5"}`,
	}
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Contents []struct{ Parts []json.RawMessage }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if len(body.Contents) > 1 {
			for _, p := range body.Contents[1].Parts {
				got = append(got, string(p))
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(sse(append([]string{chunk(`{"text":"hm","thought":true}`)}, chunk(sent...),
			finish("STOP"))...)))
	}))
	defer srv.Close()
	c := wire().Client(t, clienttest.Config{BaseURL: srv.URL, HTTPClient: srv.Client()})
	req := newRequest()
	req.Model = "gemini-2.5-pro"
	resp, err := llm.Complete(t.Context(), c, req)
	if err != nil {
		t.Fatal(err)
	}
	// A session is stored in between.
	stored, err := json.Marshal(resp.Message)
	if err != nil {
		t.Fatal(err)
	}
	var m llm.Message
	if err := json.Unmarshal(stored, &m); err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, m, llm.UserText("x"))
	if _, err := llm.Complete(t.Context(), c, req); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("parts (-sent +came back):\n%s", diff)
	}
}

func TestFinishReasons(t *testing.T) {
	reasons := map[string]llm.FinishReason{
		"STOP": llm.FinishStop, "MAX_TOKENS": llm.FinishLength, "SAFETY": llm.FinishContentFilter,
		"RECITATION": llm.FinishContentFilter,
		"BLOCKLIST":  llm.FinishContentFilter, "PROHIBITED_CONTENT": llm.FinishContentFilter,
		"SPII":     llm.FinishContentFilter,
		"LANGUAGE": llm.FinishContentFilter,
	}
	for reason, want := range reasons {
		c := wire().Raw(t, sse(text("a"), finish(reason)))
		resp, err := llm.Complete(t.Context(), c, newRequest())
		if err != nil || resp.Finish != want {
			t.Errorf("%s: got %q, %v", reason, resp.Finish, err)
		}
	}
	failures := map[string]llm.ErrorKind{
		"MALFORMED_FUNCTION_CALL": llm.KindStream, "UNEXPECTED_TOOL_CALL": llm.KindStream,
		"OTHER": llm.KindStream, "SOMETHING_NEW": llm.KindStream,
		"MISSING_THOUGHT_SIGNATURE": llm.KindInvalid,
	}
	for reason, want := range failures {
		stream := sse(text("a"),
			`{"candidates":[{"finishReason":"`+reason+`","finishMessage":"because"}]}`)
		_, err := llm.Complete(t.Context(), wire().Raw(t, stream), newRequest())
		if llm.KindOf(err) != want || !strings.Contains(err.Error(), reason) ||
			!strings.Contains(err.Error(), "because") {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

func TestUsage(t *testing.T) {
	usage := func(s string) string { return `{"usageMetadata":{` + s + `}}` }
	tests := map[string]struct {
		last string
		want llm.Usage
	}{
		"all": {
			`"promptTokenCount":100,"cachedContentTokenCount":30,"toolUsePromptTokenCount":5,` +
				`"candidatesTokenCount":7,"thoughtsTokenCount":3`,
			llm.Usage{Input: 75, CacheRead: 30, Output: 10, Reasoning: 3},
		},
		"more cached than there is": {
			`"promptTokenCount":1,"cachedContentTokenCount":2`, llm.Usage{CacheRead: 2},
		},
		"nothing": {``, llm.Usage{}},
	}
	for name, tt := range tests {
		stream := sse(usage(`"promptTokenCount":50,"candidatesTokenCount":1`), text("a"), finish("STOP"),
			usage(tt.last))
		resp, err := llm.Complete(t.Context(), wire().Raw(t, stream), newRequest())
		if err != nil || resp.Usage != tt.want {
			t.Errorf("%s: got %+v, %v", name, resp.Usage, err)
		}
	}
}

// An answer is complete with a finish reason and a proper end, or with a finish reason and a usage.
func TestEndOfTheStream(t *testing.T) {
	bare := `{"candidates":[{"finishReason":"STOP"}]}`
	tests := map[string]struct {
		stream   string
		broken   bool
		complete bool
	}{
		"no finish reason": {sse(text("a")), false, false},
		"no event":         {"", false, false},
		"usage without a finish reason": {sse(text("a"),
			`{"usageMetadata":{"promptTokenCount":1}}`), true, false},
		"finish reason":                  {sse(text("a"), bare), false, true},
		"finish reason, no empty line":   {strings.TrimSpace(sse(text("a"), bare)), false, true},
		"half of a reason":               {sse(text("a")) + "data: " + bare[:len(bare)-1], false, false},
		"broken after the finish reason": {sse(text("a"), bare), true, false},
		"broken after the usage with it": {sse(text("a"), finish("STOP")), true, true},
		"broken after the usage behind it": {sse(text("a"), bare,
			`{"usageMetadata":{"promptTokenCount":1}}`), true, true},
		"broken after a usage before it alone": {sse(`{"usageMetadata":{"promptTokenCount":1}}`,
			text("a"), bare), true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				length := len(tt.stream)
				if tt.broken {
					length++
				}
				w.Header().Set("Content-Length", fmt.Sprint(length))
				_, _ = w.Write([]byte(tt.stream))
			}))
			defer srv.Close()
			c := wire().Client(t, clienttest.Config{BaseURL: srv.URL, HTTPClient: srv.Client()})
			resp, err := llm.Complete(t.Context(), c, newRequest())
			if tt.complete && (err != nil || resp.Message.Text() != "a") {
				t.Errorf("got %q, %v; want a whole answer", resp.Message.Text(), err)
			}
			if !tt.complete && llm.KindOf(err) != llm.KindStream {
				t.Errorf("got %v; want kind %s", err, llm.KindStream)
			}
		})
	}
}

func TestErrorsInTheStream(t *testing.T) {
	tests := map[string]struct {
		event string
		kind  llm.ErrorKind
		code  string
	}{
		"blocked": {
			`{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}`,
			llm.KindContentFilter, "PROHIBITED_CONTENT",
		},
		"an error": {
			`{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}`, llm.KindOverloaded, "UNAVAILABLE",
		},
		"an error in list": {
			`[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}]`,
			llm.KindRateLimit, "RESOURCE_EXHAUSTED",
		},
		"an error, number":  {`{"error":{"code":504,"message":"x"}}`, llm.KindServer, "504"},
		"no JSON":           {`{"candidates":`, llm.KindStream, ""},
		"no parts":          {`{"candidates":[{"content":{"parts":[7]}}]}`, llm.KindStream, ""},
		"a text of no text": {`{"candidates":[{"content":{"parts":[{"text":7}]}}]}`, llm.KindStream, ""},
	}
	for name, tt := range tests {
		_, err := llm.Complete(t.Context(), wire().Raw(t, sse(text("a"), tt.event, finish("STOP"))),
			newRequest())
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != tt.kind || e.Code != tt.code {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

func parts(p ...llm.Part) []llm.Part { return p }

func list(s ...string) []string { return s }
