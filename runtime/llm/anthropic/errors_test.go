package anthropic_test

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
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func TestErrorKinds(t *testing.T) {
	says := func(status int, typ, message string) llmtest.Fault {
		return llmtest.Fault{Status: status, Type: typ, Message: message}
	}
	tests := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
		text  string
	}{
		"400":                {says(400, "invalid_request_error", "max_tokens: 64000 > 32000"), llm.KindInvalid, "max_tokens"},
		"400 long":           {says(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), llm.KindContextLength, "210000"},
		"400 long answer":    {says(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000"), llm.KindContextLength, ""},
		"400 no credit":      {says(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."), llm.KindQuota, "credit"},
		"400 spend limit":    {says(400, "invalid_request_error", "You have reached your specified API usage limits."), llm.KindQuota, ""},
		"400 content":        {says(400, "invalid_request_error", "Output blocked by content filtering policy"), llm.KindContentFilter, ""},
		"401":                {says(401, "authentication_error", "invalid x-api-key"), llm.KindAuth, "x-api-key"},
		"402":                {says(402, "billing_error", "pay"), llm.KindQuota, "pay"},
		"403":                {says(403, "permission_error", "not allowed"), llm.KindAuth, "not allowed"},
		"404":                {says(404, "not_found_error", "model: claude-0"), llm.KindNotFound, "claude-0"},
		"408":                {says(408, "timeout_error", "slow"), llm.KindTimeout, "slow"},
		"409":                {says(409, "conflict_error", "locked"), llm.KindServer, "locked"},
		"413":                {says(413, "request_too_large", "Request exceeds the maximum size"), llm.KindContextLength, "maximum size"},
		"413 web page":       {llmtest.Fault{Status: 413, Body: "<html><head><title>413 Payload Too Large</title>"}, llm.KindContextLength, "413"},
		"429":                {says(429, "rate_limit_error", "This request would exceed your rate limit"), llm.KindRateLimit, "rate limit"},
		"429 billing":        {says(429, "billing_error", "pay"), llm.KindQuota, "pay"},
		"500":                {says(500, "api_error", "Internal server error"), llm.KindServer, "Internal"},
		"502 web page":       {llmtest.Fault{Status: 502, Body: "<html><title>Bad gateway</title>"}, llm.KindServer, "Bad gateway"},
		"504":                {says(504, "timeout_error", "too slow"), llm.KindTimeout, "too slow"},
		"529":                {says(529, "overloaded_error", "Overloaded"), llm.KindOverloaded, "Overloaded"},
		"529 no body":        {llmtest.Fault{Status: 529, Body: " "}, llm.KindOverloaded, ""},
		"304":                {llmtest.Fault{Status: 304, Body: " "}, llm.KindInvalid, ""},
		"control characters": {says(500, "api_error", "a\x1b[31m\r\nb\u202e"), llm.KindServer, "a[31m b"},
		"200 with an error": {
			llmtest.Fault{Status: 200, Body: `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, Header: http.Header{"Content-Type": {"application/json"}}},
			llm.KindOverloaded, "busy",
		},
		"200 no stream": {llmtest.Fault{Status: 200, Body: `{"id":"x"}`, Header: http.Header{"Content-Type": {"application/json"}}}, llm.KindStream, "no stream"},
		"200 web page":  {llmtest.Fault{Status: 200, Body: `<html>`, Header: http.Header{"Content-Type": {"text/html"}}}, llm.KindNotFound, "base URL"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv, c := connect(t, llmtest.Sequence(llmtest.Reply{Fault: tt.fault}))
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Status != tt.fault.Status || e.Provider != "anthropic" {
				t.Fatalf("got %v, want kind %s", err, tt.kind)
			}
			if !strings.Contains(e.Error(), tt.text) || strings.ContainsAny(e.Error(), "\x1b\n\r\u202e") {
				t.Errorf("the text is %q, want %q in it", e, tt.text)
			}
			if n := len(srv.Requests()); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	_, c := connect(t, llmtest.Sequence(llmtest.Reply{Fault: llmtest.TooMany("", "7")}))
	_, err := llm.Complete(t.Context(), c, ask())
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindRateLimit || !e.HasRetryAfter || e.RetryAfter != 7*time.Second {
		t.Errorf("got %#v", err)
	}
}

func TestStormIsSurvived(t *testing.T) {
	for _, status := range []int{429, 500, 503, 529} {
		srv, c := connect(t, llmtest.Storm(3, llmtest.Fault{Status: status}, llmtest.Sequence(llmtest.Say("calm"))))
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
	c := newClient(t, anthropic.Config{APIKey: key, BaseURL: srv.URL(), HTTPClient: srv.Client()})
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
			srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Text: "x", Fault: fault}))
			// The server takes its own key only, so that is what travels, by a header that replaces it.
			c := newClient(t, anthropic.Config{
				APIKey: key, BaseURL: srv.URL(), HTTPClient: srv.Client(),
				Headers: map[string]string{"x-api-key": srv.Key(), "X-Second": header},
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
			c := newClient(t, anthropic.Config{BaseURL: url, HTTPClient: hc})
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
		_, c := connect(t, llmtest.Sequence(llmtest.Reply{Fault: llmtest.Fault{Reset: true}}))
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
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Text: "some text", Fault: tt.fault}))
			c := newClient(t, anthropic.Config{
				APIKey: srv.Key(), BaseURL: srv.URL(), HTTPClient: srv.Client(), IdleTimeout: 50 * time.Millisecond,
			})
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.KindTimeout || e.Status != tt.status {
				t.Errorf("got %#v", err)
			}
		})
	}
	t.Run("a slow receiver is not idleness", func(t *testing.T) {
		srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Say("some text of several pieces")))
		c := newClient(t, anthropic.Config{APIKey: srv.Key(), BaseURL: srv.URL(), HTTPClient: srv.Client(), IdleTimeout: 300 * time.Millisecond})
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
		c := newClient(t, anthropic.Config{APIKey: srv.Key(), BaseURL: srv.URL(), HTTPClient: &hc})
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
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			seen := make(chan struct{})
			_, c := connect(t, func(*llmtest.Request) llmtest.Reply {
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
}

func TestNew(t *testing.T) {
	const key = "sk-secret-0123456789"
	tests := map[string]struct {
		cfg  anthropic.Config
		want string
	}{
		"default":          {anthropic.Config{APIKey: key}, ""},
		"no key needed":    {anthropic.Config{BaseURL: "http://localhost:11434/v1"}, ""},
		"no key":           {anthropic.Config{}, "the API key is missing"},
		"no scheme":        {anthropic.Config{APIKey: key, BaseURL: "localhost:1"}, "base URL is not of the form"},
		"not HTTP":         {anthropic.Config{APIKey: key, BaseURL: "ftp://host/v1"}, "base URL is not of the form"},
		"password in URL":  {anthropic.Config{APIKey: key, BaseURL: "http://u:hunter2@:%zz"}, "base URL is not of the form"},
		"query":            {anthropic.Config{APIKey: key, BaseURL: "http://host/v1?x=1"}, "has a query"},
		"line break":       {anthropic.Config{APIKey: key + "\n"}, "the API key has a line break"},
		"header name":      {anthropic.Config{APIKey: key, Headers: map[string]string{"a b": "c"}}, `"a b" is no name`},
		"header value":     {anthropic.Config{APIKey: key, Headers: map[string]string{"a": "c\r\nd"}}, "the header a has a line break"},
		"negative timeout": {anthropic.Config{APIKey: key, IdleTimeout: -1}, "negative"},
	}
	for name, tt := range tests {
		_, err := anthropic.New(tt.cfg)
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
	_, c := connect(t, func(r *llmtest.Request) llmtest.Reply {
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
