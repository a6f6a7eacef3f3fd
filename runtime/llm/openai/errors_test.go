package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

func TestErrorKinds(t *testing.T) {
	tests := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
		text  string
	}{
		"400":                    {llmtest.Fault{Status: 400, Message: "bad field"}, llm.KindInvalid, "bad field"},
		"400 context, code":      {llmtest.Fault{Status: 400, Code: "context_length_exceeded", Message: "too long"}, llm.KindContextLength, "too long"},
		"400 context, compat":    {llmtest.Fault{Status: 400, Message: "This model's maximum context length is 8192 tokens. However, you requested 9000."}, llm.KindContextLength, "8192"},
		"400 context, llama.cpp": {llmtest.Fault{Status: 400, Type: "exceed_context_size_error", Message: "the request exceeds the available context size"}, llm.KindContextLength, ""},
		"400 content filter":     {llmtest.Fault{Status: 400, Code: "content_filter", Message: "no"}, llm.KindContentFilter, "no"},
		"400 no such model":      {llmtest.Fault{Status: 400, Code: "model_not_found", Message: "no gpt-0"}, llm.KindNotFound, "gpt-0"},
		"400 wrong key":          {llmtest.Fault{Status: 400, Message: "API key not valid. Please pass a valid API key."}, llm.KindAuth, ""},
		"401":                    {llmtest.Fault{Status: 401, Code: "invalid_api_key", Message: "wrong key"}, llm.KindAuth, "wrong key"},
		"402":                    {llmtest.Fault{Status: 402, Message: "Insufficient Balance"}, llm.KindQuota, ""},
		"403":                    {llmtest.Fault{Status: 403, Message: "not allowed"}, llm.KindAuth, "not allowed"},
		"404":                    {llmtest.Fault{Status: 404, Code: "model_not_found", Message: "no such model"}, llm.KindNotFound, "no such model"},
		"404 empty":              {llmtest.Fault{Status: 404, Body: " "}, llm.KindNotFound, "not found"},
		"405":                    {llmtest.Fault{Status: 405, Body: "Method Not Allowed"}, llm.KindNotFound, "Method Not Allowed"},
		"408":                    {llmtest.Fault{Status: 408, Message: "slow"}, llm.KindTimeout, "slow"},
		"409":                    {llmtest.Fault{Status: 409, Message: "locked"}, llm.KindServer, "locked"},
		"413":                    {llmtest.Fault{Status: 413, Body: "<html><head><title>413 Request Entity Too Large</title></head></html>"}, llm.KindContextLength, "a web page: 413 Request"},
		"422":                    {llmtest.Fault{Status: 422, Body: `{"detail":[{"loc":["body","model"],"msg":"field required"}]}`}, llm.KindInvalid, "field required"},
		"429":                    {llmtest.TooMany("", ""), llm.KindRateLimit, "too many requests"},
		"429 no quota":           {llmtest.Fault{Status: 429, Code: "insufficient_quota", Type: "insufficient_quota", Message: "pay"}, llm.KindQuota, "pay"},
		"429 one too large":      {llmtest.Fault{Status: 429, Code: "rate_limit_exceeded", Message: "Request too large for gpt-5 on tokens per min"}, llm.KindContextLength, ""},
		"500":                    {llmtest.Fault{Status: 500, Message: "oops"}, llm.KindServer, "oops"},
		"502 web page":           {llmtest.Fault{Status: 502, Body: "<!DOCTYPE html>\n<html><title>\n502 Bad &amp; Gateway</title>" + strings.Repeat("x", 200<<10)}, llm.KindServer, "a web page: 502 Bad & Gateway"},
		"503":                    {llmtest.Fault{Status: 503, Body: "upstream connect error"}, llm.KindServer, "upstream connect error"},
		"503 overloaded":         {llmtest.Fault{Status: 503, Message: "The model is overloaded."}, llm.KindOverloaded, ""},
		"504":                    {llmtest.Fault{Status: 504}, llm.KindServer, "gateway timeout"},
		"524":                    {llmtest.Fault{Status: 524, Body: "error code: 524"}, llm.KindServer, "524"},
		"529":                    {llmtest.Fault{Status: 529, Type: "overloaded_error", Message: "Overloaded"}, llm.KindOverloaded, ""},
		"304":                    {llmtest.Fault{Status: 304, Body: " "}, llm.KindInvalid, ""},
		"error is a text":        {llmtest.Fault{Status: 500, Body: `{"error":"model crashed"}`}, llm.KindServer, "model crashed"},
		"error in a list":        {llmtest.Fault{Status: 400, Body: `[{"error":{"code":400,"message":"listed","status":"INVALID_ARGUMENT"}}]`}, llm.KindInvalid, "listed"},
		"error without form":     {llmtest.Fault{Status: 500, Body: `{"error":{"x":[1]}}`}, llm.KindServer, `{"x":[1]}`},
		"control characters":     {llmtest.Fault{Status: 500, Message: "a\x1b[31m\r\nb\u202e"}, llm.KindServer, "a[31m b"},
		"200 with an error":      {llmtest.Fault{Status: 200, Body: `{"error":{"code":502,"message":"no provider"}}`, Header: http.Header{"Content-Type": {"application/json"}}}, llm.KindServer, "no provider"},
		"200 no stream":          {llmtest.Fault{Status: 200, Body: `{"id":"x"}`, Header: http.Header{"Content-Type": {"application/json"}}}, llm.KindStream, "no stream"},
		"200 web page":           {llmtest.Fault{Status: 200, Body: `<html>welcome</html>`, Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}}, llm.KindNotFound, "base URL"},
		"error with bad gzip":    {llmtest.Fault{Status: 503, Body: "x", Header: http.Header{"Content-Encoding": {"gzip"}}}, llm.KindServer, "service unavailable"},
	}
	onBoth(t, func(t *testing.T, api openai.API) {
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				_, c := connect(t, api, llmtest.Sequence(llmtest.Reply{Fault: tt.fault}))
				_, err := llm.Complete(t.Context(), c, ask())
				var e *llm.Error
				if !errors.As(err, &e) || e.Kind != tt.kind || e.Status != tt.fault.Status {
					t.Fatalf("got %v, want kind %s", err, tt.kind)
				}
				if !strings.Contains(e.Error(), tt.text) || strings.ContainsAny(e.Error(), "\x1b\n\r\u202e") || len(e.Error()) > 2200 {
					t.Errorf("the text is %q, want %q in it", e, tt.text)
				}
			})
		}
	})
}

func TestRetryAfter(t *testing.T) {
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	tests := map[string]struct {
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
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, c := connect(t, openai.Responses, llmtest.Sequence(llmtest.Reply{Fault: llmtest.TooMany(tt.ms, tt.after)}))
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			if e.HasRetryAfter == tt.none || e.RetryAfter < tt.min || e.RetryAfter > max(tt.min, tt.max) {
				t.Errorf("got %t, %s", e.HasRetryAfter, e.RetryAfter)
			}
		})
	}
}

func TestStormIsSurvived(t *testing.T) {
	for _, status := range []int{429, 500, 503, 529} {
		srv, c := connect(t, openai.Responses, llmtest.Storm(3, llmtest.Fault{Status: status}, llmtest.Sequence(llmtest.Say("calm"))))
		c = llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
		resp, err := llm.Complete(t.Context(), c, ask())
		if err != nil || resp.Message.Text() != "calm" || len(srv.Requests()) != 4 {
			t.Errorf("%d: got %q, %v after %d requests", status, resp.Message.Text(), err, len(srv.Requests()))
		}
	}
}

func TestWrongKeyIsNotRetried(t *testing.T) {
	srv := llmtest.NewServer(t, llmtest.Sequence())
	key := "sk-secret-0123456789"
	c := newClient(t, openai.Config{APIKey: key, BaseURL: srv.URL(), HTTPClient: srv.Client()})
	_, err := llm.Complete(t.Context(), llm.Retry(c, llm.RetryPolicy{}), ask())
	if llm.KindOf(err) != llm.KindAuth || strings.Contains(fmt.Sprintf("%v %+v", err, err), key) {
		t.Errorf("got %v", err)
	}
}

// Servers repeat keys in their texts.
func TestKeyIsNeverInAnError(t *testing.T) {
	const key, header = "sk-secret-0123456789", "second-secret-42"
	faults := map[string]llmtest.Fault{
		"message": {Status: 401, Message: "incorrect API key: " + key + ", " + header},
		"code":    {Status: 400, Code: key, Message: "x"},
		"page":    {Status: 403, Body: "<html><title>" + key + header + "</title>"},
		"text":    {Status: 500, Body: key + " " + header},
		"stream":  {Fail: llmtest.AtStart, Code: header, Message: "not " + key},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, api openai.API) {
				srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Text: "x", Fault: fault}))
				// The server takes its own key only, so that is what travels, by a header that replaces it.
				c := newClient(t, openai.Config{
					APIKey: key, BaseURL: srv.URL(), API: api, HTTPClient: srv.Client(),
					Headers: map[string]string{"authorization": "Bearer " + srv.Key(), "X-Second": header},
				})
				_, err := llm.Complete(t.Context(), c, ask())
				text := fmt.Sprintf("%v %+v %#v", err, err, err)
				if err == nil || strings.Contains(text, key) || strings.Contains(text, header) {
					t.Errorf("got %s", text)
				}
				if got := srv.Requests()[0].Header.Get("X-Second"); got != header {
					t.Errorf("the header was %q", got)
				}
			})
		})
	}
}

func TestNetworkErrors(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	tests := map[string]string{
		// No system gives port 1 to a program that asks for any free port, so nothing comes to listen there.
		"refused":             "http://127.0.0.1:1",
		"no such host":        "http://no-such-host.invalid",
		"TLS to a plain port": strings.Replace(plain.URL, "http:", "https:", 1),
		"unknown certificate": secure.URL,
		"plain to a TLS port": strings.Replace(secure.URL, "https:", "http:", 1),
	}
	for name, url := range tests {
		t.Run(name, func(t *testing.T) {
			hc := &http.Client{Transport: &http.Transport{}}
			defer hc.CloseIdleConnections()
			c := newClient(t, openai.Config{BaseURL: url, HTTPClient: hc})
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			want := llm.KindNetwork
			if name == "plain to a TLS port" {
				// Go's server answers this with a 400 in plain text.
				want = llm.KindInvalid
			}
			if !errors.As(err, &e) || e.Kind != want || want == llm.KindNetwork && e.Status != 0 {
				t.Errorf("got %#v", err)
			}
		})
	}
	t.Run("reset", func(t *testing.T) {
		_, c := connect(t, openai.Chat, llmtest.Sequence(llmtest.Reply{Fault: llmtest.Fault{Reset: true}}))
		if _, err := llm.Complete(t.Context(), c, ask()); llm.KindOf(err) != llm.KindNetwork {
			t.Errorf("got %v", err)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	tests := map[string]struct {
		fault  llmtest.Fault
		status int
	}{
		"before the headers": {llmtest.Fault{Delay: time.Hour}, 0},
		"before the first":   {llmtest.Fault{Hang: llmtest.AtStart}, 200},
		"in a text":          {llmtest.Fault{Hang: llmtest.AtText}, 200},
		"before the end":     {llmtest.Fault{Hang: llmtest.AtEnd}, 200},
	}
	onBoth(t, func(t *testing.T, api openai.API) {
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Text: "some text", Fault: tt.fault}))
				c := newClient(t, openai.Config{
					APIKey: srv.Key(), BaseURL: srv.URL(), API: api, HTTPClient: srv.Client(), IdleTimeout: 50 * time.Millisecond,
				})
				_, err := llm.Complete(t.Context(), c, ask())
				var e *llm.Error
				if !errors.As(err, &e) || e.Kind != llm.KindTimeout || e.Status != tt.status {
					t.Errorf("got %#v", err)
				}
			})
		}
	})
	t.Run("a slow receiver is not idleness", func(t *testing.T) {
		srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Say("some text of several pieces")))
		c := newClient(t, openai.Config{APIKey: srv.Key(), BaseURL: srv.URL(), HTTPClient: srv.Client(), IdleTimeout: 300 * time.Millisecond})
		first := true
		for _, err := range c.Stream(t.Context(), ask()) {
			if err != nil {
				t.Fatal(err)
			}
			if first {
				time.Sleep(600 * time.Millisecond)
				first = false
			}
		}
	})
	t.Run("a limit of the HTTP client", func(t *testing.T) {
		srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Fault: llmtest.Fault{Delay: time.Hour}}))
		hc := *srv.Client()
		hc.Timeout = 50 * time.Millisecond
		c := newClient(t, openai.Config{APIKey: srv.Key(), BaseURL: srv.URL(), HTTPClient: &hc})
		if _, err := llm.Complete(t.Context(), c, ask()); llm.KindOf(err) != llm.KindTimeout {
			t.Errorf("got %v", err)
		}
	})
}

func TestCancel(t *testing.T) {
	cause := errors.New("enough")
	faults := map[string]llmtest.Fault{
		"before the headers": {Delay: time.Hour}, "before the first": {Hang: llmtest.AtStart}, "in a text": {Hang: llmtest.AtText},
		"before the end": {Hang: llmtest.AtEnd}, "while it is slow": {Pace: time.Hour},
	}
	onBoth(t, func(t *testing.T, api openai.API) {
		for name, fault := range faults {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				seen := make(chan struct{})
				_, c := connect(t, api, func(*llmtest.Request) llmtest.Reply {
					close(seen)
					return llmtest.Reply{Text: "some text", Fault: fault}
				})
				go func() {
					<-seen
					cancel(cause)
				}()
				_, err := llm.Complete(ctx, llm.Retry(c, llm.RetryPolicy{}), ask())
				if llm.KindOf(err) != llm.KindCanceled || !errors.Is(err, cause) {
					t.Errorf("got %v, want kind %s around the cause", err, llm.KindCanceled)
				}
			})
		}
	})
}

func TestNew(t *testing.T) {
	const key = "sk-secret-0123456789"
	tests := map[string]struct {
		cfg  openai.Config
		want string
	}{
		"default":          {openai.Config{APIKey: key}, ""},
		"no key needed":    {openai.Config{BaseURL: "http://localhost:11434/v1", API: openai.Chat}, ""},
		"no key":           {openai.Config{}, "the API key is missing"},
		"unknown API":      {openai.Config{APIKey: key, API: "x"}, `"x" is neither`},
		"no scheme":        {openai.Config{APIKey: key, BaseURL: "localhost:1"}, "base URL is not of the form"},
		"not HTTP":         {openai.Config{APIKey: key, BaseURL: "ftp://host/v1"}, "base URL is not of the form"},
		"password in URL":  {openai.Config{APIKey: key, BaseURL: "http://u:hunter2@:%zz"}, "base URL is not of the form"},
		"query":            {openai.Config{APIKey: key, BaseURL: "http://host/v1?x=1"}, "has a query"},
		"line break":       {openai.Config{APIKey: key + "\n"}, "the API key has a line break"},
		"header name":      {openai.Config{APIKey: key, Headers: map[string]string{"a b": "c"}}, `"a b" is no name`},
		"header value":     {openai.Config{APIKey: key, Headers: map[string]string{"a": "c\r\nd"}}, "the header a has a line break"},
		"negative timeout": {openai.Config{APIKey: key, IdleTimeout: -1}, "negative"},
	}
	for name, tt := range tests {
		_, err := openai.New(tt.cfg)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || tt.want == "" && err != nil || strings.Contains(got, key) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestManySessionsAtOnce(t *testing.T) {
	_, c := connect(t, openai.Responses, func(r *llmtest.Request) llmtest.Reply {
		if r.Number%3 == 0 {
			return llmtest.Reply{Fault: llmtest.Fault{Status: 503}}
		}
		return llmtest.Say(r.Messages[0].Text())
	})
	c = llm.Retry(c, llm.RetryPolicy{MaxRetries: 20, Rand: func() float64 { return 0 }})
	errs := make(chan error)
	for i := range 64 {
		go func() {
			req := ask()
			req.Messages = []llm.Message{llm.UserText("session " + strconv.Itoa(i))}
			resp, err := llm.Complete(t.Context(), c, req)
			if err == nil && resp.Message.Text() != req.Messages[0].Text() {
				err = fmt.Errorf("session %d got %q", i, resp.Message.Text())
			}
			errs <- err
		}()
	}
	for range 64 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
