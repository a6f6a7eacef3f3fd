package gemini_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// refused writes an error as Google does.
func refused(code int, status, message, details string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, code, message,
		status, details)
}

func TestErrorKinds(t *testing.T) {
	const (
		day = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure",` +
			`"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`
		minute = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure",` +
			`"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}`
		noKey = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID",` +
			`"domain":"googleapis.com"}`
		quota = "You exceeded your current quota, please check your plan and billing details."
	)
	tests := map[string]struct {
		status     int
		name, text string
		details    string
		kind       llm.ErrorKind
	}{
		"invalid": {400, "INVALID_ARGUMENT", "bad field", "", llm.KindInvalid},
		"precondition": {
			400, "FAILED_PRECONDITION", "User location is not supported for the API use.",
			"", llm.KindInvalid,
		},
		"wrong key": {
			400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", noKey, llm.KindAuth,
		},
		"expired key": {
			400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.", noKey, llm.KindAuth,
		},
		"too many tokens": {
			400, "INVALID_ARGUMENT",
			"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "",
			llm.KindContextLength,
		},
		"too many, older": {
			400, "INVALID_ARGUMENT", "The input token count exceeds the maximum.", "", llm.KindContextLength,
		},
		"too many bytes": {
			400, "INVALID_ARGUMENT",
			"Request payload size exceeds the limit: 20971520 bytes.", "", llm.KindContextLength,
		},
		"unauthenticated": {401, "UNAUTHENTICATED", "no credentials", "", llm.KindAuth},
		"denied":          {403, "PERMISSION_DENIED", "not for you", "", llm.KindAuth},
		"not found":       {404, "NOT_FOUND", "models/x is not found", "", llm.KindNotFound},
		"quota of minute": {429, "RESOURCE_EXHAUSTED", quota, minute, llm.KindRateLimit},
		"quota of day":    {429, "RESOURCE_EXHAUSTED", quota, day, llm.KindQuota},
		"credits": {
			429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.", "", llm.KindQuota,
		},
		"canceled": {499, "CANCELLED", "The operation was cancelled.", "", llm.KindServer},
		"internal": {500, "INTERNAL", "An internal error has occurred.", "", llm.KindServer},
		"overloaded": {
			503, "UNAVAILABLE", "The model is overloaded. Please try again later.", "", llm.KindOverloaded,
		},
		"unavailable": {
			503, "UNAVAILABLE", "The service is currently unavailable.", "", llm.KindOverloaded,
		},
		"deadline":     {504, "DEADLINE_EXCEEDED", "Deadline expired.", "", llm.KindTimeout},
		"a new status": {503, "SOMETHING", "x", "", llm.KindServer},
		"odd details":  {500, "INTERNAL", "x", `7,{"@type":8}`, llm.KindServer},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := refused(tt.status, tt.name, tt.text, tt.details)
			for form, fault := range map[string]llmtest.Fault{
				"object": {Status: tt.status, Body: body}, "list": {Status: tt.status, Body: "[" + body + "]"},
			} {
				_, c := wire().Connect(t, llmtest.Sequence(llmtest.Reply{Fault: fault}))
				_, err := llm.Complete(t.Context(), c, newRequest())
				var e *llm.Error
				if !errors.As(err, &e) || e.Kind != tt.kind || e.Status != tt.status ||
					!strings.Contains(e.Message, tt.text) {
					t.Errorf("%s: got %#v, want kind %s", form, err, tt.kind)
				}
				if e != nil && tt.name != "SOMETHING" && e.Code != tt.name {
					t.Errorf("%s: the code is %q", form, e.Code)
				}
			}
			// The same in a stream, whose status is 200.
			_, err := llm.Complete(t.Context(), wire().Raw(t, sse(text("a"), body)), newRequest())
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Status != 200 {
				t.Errorf("in the stream: got %#v, want kind %s", err, tt.kind)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	info := func(delay string) string {
		return refused(429, "RESOURCE_EXHAUSTED", "x",
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`+delay+`"}`)
	}
	tests := map[string]struct {
		body, header string
		want         time.Duration
		none         bool
	}{
		"seconds":          {body: info("34s"), want: 34 * time.Second},
		"part of a second": {body: info("0.250s"), want: 250 * time.Millisecond},
		"zero":             {body: info("0s")},
		"negative":         {body: info("-3s")},
		"nonsense":         {body: info("soon"), none: true},
		"none":             {body: refused(429, "RESOURCE_EXHAUSTED", "x", ""), none: true},
		"header": {
			body: refused(429, "RESOURCE_EXHAUSTED", "x", ""), header: "7", want: 7 * time.Second,
		},
		"header comes first": {body: info("34s"), header: "7", want: 7 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fault := llmtest.Fault{
				Status: 429, Body: tt.body, Header: http.Header{"Content-Type": {"application/json"}},
			}
			if tt.header != "" {
				fault.Header.Set("Retry-After", tt.header)
			}
			_, c := wire().Connect(t, llmtest.Sequence(llmtest.Reply{Fault: fault}))
			_, err := llm.Complete(t.Context(), c, newRequest())
			var e *llm.Error
			if !errors.As(err, &e) || e.HasRetryAfter == tt.none || e.RetryAfter != tt.want {
				t.Errorf("got %#v", err)
			}
			if tt.header == "" {
				_, err = llm.Complete(t.Context(), wire().Raw(t, sse(tt.body)), newRequest())
				if !errors.As(err, &e) || e.HasRetryAfter == tt.none || e.RetryAfter != tt.want {
					t.Errorf("in the stream: got %#v", err)
				}
			}
		})
	}
}

func TestKeyInAFinishMessage(t *testing.T) {
	stream := sse(`{"candidates":[{"finishReason":"OTHER","finishMessage":"` + clienttest.Key + `"}]}`)
	_, err := llm.Complete(t.Context(), wire().Raw(t, stream), newRequest())
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), clienttest.Key) {
		t.Errorf("got %v", err)
	}
}
