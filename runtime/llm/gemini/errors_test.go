package gemini_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// refused writes an error as Google does.
func refused(code int, status, message, details string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, code, message, status, details)
}

func TestErrorKinds(t *testing.T) {
	const (
		day    = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`
		minute = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}`
		noKey  = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`
		quota  = "You exceeded your current quota, please check your plan and billing details."
	)
	tests := map[string]struct {
		status     int
		name, text string
		details    string
		kind       llm.ErrorKind
	}{
		"invalid":         {400, "INVALID_ARGUMENT", "bad field", "", llm.KindInvalid},
		"precondition":    {400, "FAILED_PRECONDITION", "User location is not supported for the API use.", "", llm.KindInvalid},
		"wrong key":       {400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", noKey, llm.KindAuth},
		"expired key":     {400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.", noKey, llm.KindAuth},
		"too many tokens": {400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "", llm.KindContextLength},
		"too many, older": {400, "INVALID_ARGUMENT", "The input token count exceeds the maximum.", "", llm.KindContextLength},
		"too many bytes":  {400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes.", "", llm.KindContextLength},
		"unauthenticated": {401, "UNAUTHENTICATED", "no credentials", "", llm.KindAuth},
		"denied":          {403, "PERMISSION_DENIED", "not for you", "", llm.KindAuth},
		"not found":       {404, "NOT_FOUND", "models/x is not found", "", llm.KindNotFound},
		"quota of minute": {429, "RESOURCE_EXHAUSTED", quota, minute, llm.KindRateLimit},
		"quota of day":    {429, "RESOURCE_EXHAUSTED", quota, day, llm.KindQuota},
		"credits":         {429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.", "", llm.KindQuota},
		"canceled":        {499, "CANCELLED", "The operation was cancelled.", "", llm.KindServer},
		"internal":        {500, "INTERNAL", "An internal error has occurred.", "", llm.KindServer},
		"overloaded":      {503, "UNAVAILABLE", "The model is overloaded. Please try again later.", "", llm.KindOverloaded},
		"unavailable":     {503, "UNAVAILABLE", "The service is currently unavailable.", "", llm.KindOverloaded},
		"deadline":        {504, "DEADLINE_EXCEEDED", "Deadline expired.", "", llm.KindTimeout},
		"a new status":    {503, "SOMETHING", "x", "", llm.KindServer},
		"odd details":     {500, "INTERNAL", "x", `7,{"@type":8}`, llm.KindServer},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := refused(tt.status, tt.name, tt.text, tt.details)
			for form, fault := range map[string]llmtest.Fault{
				"object": {Status: tt.status, Body: body}, "list": {Status: tt.status, Body: "[" + body + "]"},
			} {
				_, c := connect(t, llmtest.Sequence(llmtest.Reply{Fault: fault}))
				_, err := llm.Complete(t.Context(), c, ask())
				var e *llm.Error
				if !errors.As(err, &e) || e.Kind != tt.kind || e.Status != tt.status || !strings.Contains(e.Message, tt.text) {
					t.Errorf("%s: got %#v, want kind %s", form, err, tt.kind)
				}
				if e != nil && tt.name != "SOMETHING" && e.Code != tt.name {
					t.Errorf("%s: the code is %q", form, e.Code)
				}
			}
			// The same inside of a stream, whose status tells nothing.
			_, err := llm.Complete(t.Context(), raw(t, sse(text("a"), body)), ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Status != 200 {
				t.Errorf("in the stream: got %#v, want kind %s", err, tt.kind)
			}
		})
	}
}

func TestOtherErrors(t *testing.T) {
	tests := map[string]struct {
		fault llmtest.Fault
		kind  llm.ErrorKind
	}{
		"web page":      {llmtest.Fault{Status: 502, Body: "<html><title>502</title>"}, llm.KindServer},
		"not JSON":      {llmtest.Fault{Status: 503, Body: "upstream connect error"}, llm.KindServer},
		"200 no stream": {llmtest.Fault{Status: 200, Body: `[{"candidates":[]}]`, Header: http.Header{"Content-Type": {"application/json"}}}, llm.KindStream},
		"200 web page":  {llmtest.Fault{Status: 200, Body: `<html>`, Header: http.Header{"Content-Type": {"text/html"}}}, llm.KindNotFound},
		"reset":         {llmtest.Fault{Reset: true}, llm.KindNetwork},
		"by a script":   {llmtest.Fault{Status: 400, Code: "context_length_exceeded", Message: "too long"}, llm.KindContextLength},
		"quota":         {llmtest.Fault{Status: 429, Code: "insufficient_quota", Message: "pay"}, llm.KindQuota},
		"rate limit":    {llmtest.TooMany("", ""), llm.KindRateLimit},
		"filter":        {llmtest.Fault{Status: 400, Code: "content_filter", Message: "no"}, llm.KindContentFilter},
		"overloaded":    {llmtest.Fault{Status: 529}, llm.KindOverloaded},
	}
	for name, tt := range tests {
		_, c := connect(t, llmtest.Sequence(llmtest.Reply{Fault: tt.fault}))
		if _, err := llm.Complete(t.Context(), c, ask()); llm.KindOf(err) != tt.kind {
			t.Errorf("%s: got %v, want kind %s", name, err, tt.kind)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	info := func(delay string) string {
		return refused(429, "RESOURCE_EXHAUSTED", "x", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`+delay+`"}`)
	}
	tests := map[string]struct {
		body, header string
		want         time.Duration
		none         bool
	}{
		"seconds":           {body: info("34s"), want: 34 * time.Second},
		"part of a second":  {body: info("0.250s"), want: 250 * time.Millisecond},
		"zero":              {body: info("0s")},
		"negative":          {body: info("-3s")},
		"nonsense":          {body: info("soon"), none: true},
		"none":              {body: refused(429, "RESOURCE_EXHAUSTED", "x", ""), none: true},
		"header":            {body: refused(429, "RESOURCE_EXHAUSTED", "x", ""), header: "7", want: 7 * time.Second},
		"header says first": {body: info("34s"), header: "7", want: 7 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fault := llmtest.Fault{Status: 429, Body: tt.body, Header: http.Header{"Content-Type": {"application/json"}}}
			if tt.header != "" {
				fault.Header.Set("Retry-After", tt.header)
			}
			_, c := connect(t, llmtest.Sequence(llmtest.Reply{Fault: fault}))
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.HasRetryAfter == tt.none || e.RetryAfter != tt.want {
				t.Errorf("got %#v", err)
			}
			if tt.header == "" {
				_, err = llm.Complete(t.Context(), raw(t, sse(tt.body)), ask())
				if !errors.As(err, &e) || e.HasRetryAfter == tt.none || e.RetryAfter != tt.want {
					t.Errorf("in the stream: got %#v", err)
				}
			}
		})
	}
}

func TestStormIsSurvived(t *testing.T) {
	for _, status := range []int{429, 500, 503, 504, 529} {
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
	key := "key-secret-0123456789"
	c := newClient(t, gemini.Config{APIKey: key, BaseURL: root(srv), HTTPClient: srv.Client()})
	_, err := llm.Complete(t.Context(), llm.Retry(c, llm.RetryPolicy{}), ask())
	if llm.KindOf(err) != llm.KindAuth || strings.Contains(fmt.Sprintf("%v %+v", err, err), key) {
		t.Errorf("got %v", err)
	}
}

// Servers repeat keys in their texts.
func TestKeyIsNeverInAnError(t *testing.T) {
	const key, header = "key-secret-0123456789", "second-secret-42"
	faults := map[string]llmtest.Fault{
		"message": {Status: 401, Message: "incorrect API key: " + key + ", " + header},
		"code":    {Status: 400, Body: `{"error":{"code":"` + key + `","message":"x"}}`},
		"page":    {Status: 403, Body: "<html><title>" + key + header + "</title>"},
		"text":    {Status: 500, Body: key + " " + header},
		"stream":  {Fail: llmtest.AtStart, Code: header, Message: "not " + key},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Reply{Text: "x", Fault: fault}))
			// The server takes its own key only, so that is what travels, by a header that replaces it.
			c := newClient(t, gemini.Config{
				APIKey: key, BaseURL: root(srv), HTTPClient: srv.Client(),
				Headers: map[string]string{"x-goog-api-key": srv.Key(), "X-Second": header},
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
	t.Run("finish message", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, sse(`{"candidates":[{"finishReason":"OTHER","finishMessage":"`+key+`"}]}`))
		}))
		defer srv.Close()
		c := newClient(t, gemini.Config{APIKey: key, BaseURL: srv.URL, HTTPClient: srv.Client()})
		_, err := llm.Complete(t.Context(), c, ask())
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), key) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNetworkErrors(t *testing.T) {
	for name, url := range map[string]string{
		// No system gives port 1 to a program that asks for any free port, so nothing comes to listen there.
		"refused": "http://127.0.0.1:1", "no such host": "http://no-such-host.invalid",
	} {
		hc := &http.Client{Transport: &http.Transport{}}
		c := newClient(t, gemini.Config{BaseURL: url, HTTPClient: hc})
		_, err := llm.Complete(t.Context(), c, ask())
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.KindNetwork || e.Status != 0 {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

func TestIdleTimeout(t *testing.T) {
	tests := map[string]struct {
		fault  llmtest.Fault
		status int
	}{
		"before the headers": {llmtest.Fault{Delay: time.Hour}, 0},
		"before the first":   {llmtest.Fault{Hang: llmtest.AtStart}, 200},
		"in a text":          {llmtest.Fault{Hang: llmtest.AtText}, 200},
		"in arguments":       {llmtest.Fault{Hang: llmtest.AtArguments}, 200},
		"before the end":     {llmtest.Fault{Hang: llmtest.AtEnd}, 200},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reply := fullReply()
			reply.Fault = tt.fault
			srv := llmtest.NewServer(t, llmtest.Sequence(reply))
			c := newClient(t, gemini.Config{
				APIKey: srv.Key(), BaseURL: root(srv), HTTPClient: srv.Client(), IdleTimeout: 50 * time.Millisecond,
			})
			_, err := llm.Complete(t.Context(), c, ask())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.KindTimeout || e.Status != tt.status {
				t.Errorf("got %#v", err)
			}
		})
	}
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
	const key = "key-secret-0123456789"
	tests := map[string]struct {
		cfg  gemini.Config
		want string
	}{
		"default":          {gemini.Config{APIKey: key}, ""},
		"no key needed":    {gemini.Config{BaseURL: "http://localhost:8080"}, ""},
		"no key":           {gemini.Config{}, "the API key is missing"},
		"no scheme":        {gemini.Config{APIKey: key, BaseURL: "localhost:1"}, "base URL is not of the form"},
		"password in URL":  {gemini.Config{APIKey: key, BaseURL: "http://u:hunter2@:%zz"}, "base URL is not of the form"},
		"query":            {gemini.Config{APIKey: key, BaseURL: "http://host/?x=1"}, "has a query"},
		"line break":       {gemini.Config{APIKey: key + "\n"}, "the API key has a line break"},
		"header name":      {gemini.Config{APIKey: key, Headers: map[string]string{"a b": "c"}}, `"a b" is no name`},
		"negative timeout": {gemini.Config{APIKey: key, IdleTimeout: -1}, "negative"},
	}
	for name, tt := range tests {
		_, err := gemini.New(tt.cfg)
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
