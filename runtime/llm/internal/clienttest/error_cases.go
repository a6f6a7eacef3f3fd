package clienttest

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// refuse returns a refusal with a status and a message.
func refuse(status int, message string) llmtest.Fault {
	return llmtest.Fault{Status: status, Message: message}
}

// coded returns a refusal that has a code, too.
func coded(status int, code, message string) llmtest.Fault {
	return llmtest.Fault{Status: status, Code: code, Message: message}
}

// typed returns a refusal that has a type, too.
func typed(status int, typ, message string) llmtest.Fault {
	return llmtest.Fault{Status: status, Type: typ, Message: message}
}

// page returns an answer with a body of any form. A content type may be empty.
func page(status int, contentType, body string) llmtest.Fault {
	f := llmtest.Fault{Status: status, Body: body}
	if contentType != "" {
		f.Header = http.Header{"Content-Type": {contentType}}
	}
	return f
}

// statuses are refusals whose status decides the kind of the error.
func statuses() map[string]Failure {
	badGateway := "<!DOCTYPE html>\n<html><title>\n502 Bad &amp; Gateway</title>" +
		strings.Repeat("x", 200<<10)
	return map[string]Failure{
		"304":            {page(304, "", " "), llm.KindInvalid, ""},
		"400":            {refuse(400, "bad field"), llm.KindInvalid, "bad field"},
		"401":            {coded(401, "invalid_api_key", "wrong key"), llm.KindAuth, "wrong key"},
		"402":            {refuse(402, "Insufficient Balance"), llm.KindQuota, ""},
		"403":            {refuse(403, "not allowed"), llm.KindAuth, "not allowed"},
		"404":            {coded(404, "model_not_found", "no model"), llm.KindNotFound, "no model"},
		"404 empty":      {page(404, "", " "), llm.KindNotFound, "not found"},
		"405":            {page(405, "", "Method Not Allowed"), llm.KindNotFound, "Method Not Allowed"},
		"408":            {refuse(408, "slow"), llm.KindTimeout, "slow"},
		"409":            {refuse(409, "locked"), llm.KindServer, "locked"},
		"429":            {llmtest.TooMany("", ""), llm.KindRateLimit, "too many requests"},
		"500":            {refuse(500, "oops"), llm.KindServer, "oops"},
		"502 web page":   {page(502, "", badGateway), llm.KindServer, "a web page: 502 Bad & Gateway"},
		"503":            {page(503, "", "upstream error"), llm.KindServer, "upstream error"},
		"503 overloaded": {refuse(503, "The model is overloaded."), llm.KindOverloaded, ""},
		"524":            {page(524, "", "error code: 524"), llm.KindServer, "524"},
		"529":            {typed(529, "overloaded_error", "Overloaded"), llm.KindOverloaded, ""},
		"529 empty":      {page(529, "", " "), llm.KindOverloaded, ""},
		"413 web page": {
			page(413, "", "<html><head><title>413 Request Entity Too Large</title></head></html>"),
			llm.KindContextLength, "a web page: 413 Request",
		},
		"422 detail": {
			page(422, "", `{"detail":[{"loc":["body","model"],"msg":"field required"}]}`),
			llm.KindInvalid, "field required",
		},
	}
}

// texts are refusals whose code, type or message decides the kind of the error.
func texts() map[string]Failure {
	return map[string]Failure{
		"400 context, code": {
			coded(400, "context_length_exceeded", "too long"), llm.KindContextLength, "too long",
		},
		"400 context, text": {
			refuse(400, "This model's maximum context length is 8192 tokens. You requested 9000."),
			llm.KindContextLength, "8192",
		},
		"400 context, type": {
			typed(400, "exceed_context_size_error", "the request exceeds the available context size"),
			llm.KindContextLength, "",
		},
		"400 content filter": {coded(400, "content_filter", "no"), llm.KindContentFilter, "no"},
		"400 wrong key": {
			refuse(400, "API key not valid. Please pass a valid API key."), llm.KindAuth, "",
		},
		"429 quota": {coded(429, "insufficient_quota", "pay"), llm.KindQuota, "pay"},
		"429 request too large": {
			coded(429, "rate_limit_exceeded", "Request too large for gpt-5 on tokens per min"),
			llm.KindContextLength, "",
		},
	}
}

// bodies are answers that are neither an error in the form of the wire nor a stream.
func bodies() map[string]Failure {
	listed := `[{"error":{"code":400,"message":"listed","status":"INVALID_ARGUMENT"}}]`
	gzipped := page(503, "", "x")
	gzipped.Header = http.Header{"Content-Encoding": {"gzip"}}
	return map[string]Failure{
		"error is a text":    {page(500, "", `{"error":"crashed"}`), llm.KindServer, "crashed"},
		"error in a list":    {page(400, "", listed), llm.KindInvalid, "listed"},
		"error without form": {page(500, "", `{"error":{"x":[1]}}`), llm.KindServer, `{"x":[1]}`},
		"control characters": {refuse(500, "a\x1b[31m\r\nb\u202e"), llm.KindServer, "a[31m b"},
		"200 with an error": {
			page(200, "application/json", `{"error":{"code":502,"message":"no provider"}}`),
			llm.KindServer, "no provider",
		},
		"200 no stream": {page(200, "application/json", `{"id":"x"}`), llm.KindStream, "not a stream"},
		"200 web page": {
			page(200, "text/html; charset=utf-8", `<html>welcome</html>`), llm.KindNotFound, "base URL",
		},
		"error with bad gzip": {gzipped, llm.KindServer, "service unavailable"},
	}
}

func testRefused(t *testing.T, w Wire) {
	for _, table := range []map[string]Failure{statuses(), texts(), bodies(), w.Refused} {
		for name, tt := range table {
			t.Run(name, func(t *testing.T) {
				srv, c := w.Connect(t, llmtest.Sequence(llmtest.Reply{Fault: tt.Fault}))
				_, err := llm.Complete(t.Context(), c, w.Request())
				w.checkError(t, err, tt.Kind, tt.Fault.Status, tt.Text)
				if n := len(srv.Requests()); n != 1 {
					t.Errorf("%d requests were sent", n)
				}
			})
		}
	}
}

func testRetryAfter(t *testing.T, w Wire) {
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for name, tt := range map[string]struct {
		ms, after string
		min, max  time.Duration
		none      bool
	}{
		"milliseconds":         {ms: "1500", min: 1500 * time.Millisecond},
		"beats seconds":        {ms: "20", after: "7", min: 20 * time.Millisecond},
		"seconds":              {after: "7", min: 7 * time.Second},
		"part of a second":     {after: " 0.25 ", min: 250 * time.Millisecond},
		"date":                 {after: date, min: 59 * time.Minute, max: time.Hour + time.Second},
		"date long gone":       {after: "Mon, 02 Jan 2006 15:04:05 GMT"},
		"none":                 {none: true},
		"nonsense":             {after: "soon", none: true},
		"less than zero":       {after: "-5"},
		"not a number":         {after: "NaN"},
		"more than fits":       {after: "1e300", min: 1<<63 - 1},
		"nonsense in ms alone": {ms: "x", after: "3", min: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := w.Connect(t, llmtest.Sequence(llmtest.Reply{Fault: llmtest.TooMany(tt.ms, tt.after)}))
			_, err := llm.Complete(t.Context(), c, w.Request())
			w.checkError(t, err, llm.KindRateLimit, 429, "")
			var e *llm.Error
			if !errors.As(err, &e) || e.HasRetryAfter == tt.none || e.RetryAfter < tt.min ||
				e.RetryAfter > max(tt.min, tt.max) {
				t.Errorf("got %t, %s", e.HasRetryAfter, e.RetryAfter)
			}
		})
	}
}

func testStorm(t *testing.T, w Wire) {
	for _, status := range []int{429, 500, 503, 504, 529} {
		srv, c := w.Connect(t, llmtest.Storm(3, llmtest.Fault{Status: status},
			llmtest.Sequence(llmtest.Text("calm"))))
		resp, err := llm.Complete(t.Context(), atOnce(c, 0), w.Request())
		if err != nil || resp.Message.Text() != "calm" || len(srv.Requests()) != 4 {
			t.Errorf("%d: got %q, %v after %d requests", status, resp.Message.Text(), err,
				len(srv.Requests()))
		}
	}
}

// A wrong key is not retried, and the error has the configured provider.
func testWrongKey(t *testing.T, w Wire) {
	w.Provider = "mine"
	_, c := w.connect(t, llmtest.Sequence(), Config{APIKey: Key, Provider: w.Provider})
	_, err := llm.Complete(t.Context(), llm.Retry(c, llm.RetryPolicy{}), w.Request())
	w.checkError(t, err, llm.KindAuth, 401, "")
	if strings.Contains(fmt.Sprintf("%v %+v", err, err), Key) {
		t.Errorf("got %v", err)
	}
}

// Servers repeat keys in their texts.
func testKeyInError(t *testing.T, w Wire) {
	const header = "second-secret-42"
	for name, fault := range map[string]llmtest.Fault{
		"message":   {Status: 401, Message: "incorrect API key: " + Key + ", " + header},
		"code":      {Status: 400, Code: Key, Type: Key, Message: "x"},
		"bare code": {Status: 400, Body: `{"error":{"code":"` + Key + `","message":"x"}}`},
		"page":      {Status: 403, Body: "<html><title>" + Key + header + "</title>"},
		"text":      {Status: 500, Body: Key + " " + header},
		"stream":    {Fail: llmtest.AtStart, Code: header, Message: "not " + Key},
	} {
		t.Run(name, func(t *testing.T) {
			// The server accepts only its key, which a header carries here.
			srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Text: "x", Fault: fault}))
			c := w.Client(t, Config{
				APIKey: Key, BaseURL: srv.Root() + w.Base, HTTPClient: srv.Client(),
				Headers: map[string]string{
					strings.ToLower(w.KeyHeader): w.KeyPrefix + srv.Key(), "X-Second": header,
				},
			})
			_, err := llm.Complete(t.Context(), c, w.Request())
			text := fmt.Sprintf("%v %+v %#v", err, err, err)
			if err == nil || strings.Contains(text, Key) || strings.Contains(text, header) {
				t.Errorf("got %s", text)
			}
			if got := srv.Requests(); len(got) != 1 || got[0].Header.Get("X-Second") != header {
				t.Errorf("the headers did not arrive: %v", got)
			}
		})
	}
}

func testNetwork(t *testing.T, w Wire) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for name, address := range map[string]string{
		// No system gives port 1 to a program that requests any free port, so nothing comes to listen
		// on it.
		"refused":             "http://127.0.0.1:1",
		"no such host":        "http://no-such-host.invalid",
		"TLS to a plain port": strings.Replace(plain.URL, "http:", "https:", 1),
		"unknown certificate": secure.URL,
		"plain to a TLS port": strings.Replace(secure.URL, "https:", "http:", 1),
	} {
		t.Run(name, func(t *testing.T) {
			hc := &http.Client{Transport: &http.Transport{}}
			defer hc.CloseIdleConnections()
			_, err := llm.Complete(t.Context(), w.Client(t, Config{BaseURL: address, HTTPClient: hc}),
				w.Request())
			if name == "plain to a TLS port" {
				// Go's server answers this with a 400 in plain text.
				w.checkError(t, err, llm.KindInvalid, 400, "")
				return
			}
			w.checkError(t, err, llm.KindNetwork, 0, "")
		})
	}
	t.Run("reset", func(t *testing.T) {
		_, c := w.Connect(t, llmtest.Sequence(llmtest.Reply{Fault: llmtest.Fault{Reset: true}}))
		_, err := llm.Complete(t.Context(), c, w.Request())
		w.checkError(t, err, llm.KindNetwork, 0, "")
	})
}
