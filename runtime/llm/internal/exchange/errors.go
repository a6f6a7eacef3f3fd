package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Refusal is an error as a server reports it, in place of a stream or in an event.
type Refusal struct {
	Message string
	Code    string
	Kind    string
	// Found is true for a refusal in one of the JSON forms of servers.
	Found bool
	// RetryAfter is the wait that the refusal requests; valid if HasRetryAfter.
	RetryAfter    time.Duration
	HasRetryAfter bool
}

func (e *Refusal) Error() string { return e.Message }

// parseRefusal reads the body of an error. Of a web page it takes the title, of another text the
// start.
func parseRefusal(body []byte, contentType string) Refusal {
	body = bytes.TrimSpace(body)
	if info := RefusalOf(body); info.Found {
		return info
	}
	text := strings.ToValidUTF8(string(body), "")
	lower := strings.ToLower(text)
	if strings.Contains(contentType, "html") || strings.HasPrefix(lower, "<!doctype") ||
		strings.HasPrefix(lower, "<html") {
		title := "a web page without a title"
		if i := strings.Index(lower, "<title>"); i >= 0 && len(lower) == len(text) {
			rest := text[i+len("<title>"):]
			end, _, _ := strings.Cut(rest, "<")
			title = "a web page: " + html.UnescapeString(strings.TrimSpace(end))
		}
		return Refusal{Message: title}
	}
	return Refusal{Message: text}
}

// RefusalOf reads {"error": {"message": …}} and its variations: the object alone, a string instead
// of it, a list around it, "detail" for "message", a number for a code.
func RefusalOf(data json.RawMessage) Refusal { return refusalOf(data, 3) }

// refusalOf is RefusalOf for an "error" in an "error" to that depth, since each one is copied.
func refusalOf(data json.RawMessage, depth int) Refusal {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '[' {
		var items []json.RawMessage
		if json.Unmarshal(data, &items) != nil || len(items) == 0 {
			return Refusal{}
		}
		data = items[0]
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return Refusal{}
	}
	if inner := fields["error"]; len(inner) > 0 && string(inner) != "null" {
		if text := Plain(inner); text != "" {
			return Refusal{Message: text, Code: Plain(fields["code"]), Found: true}
		}
		if depth > 0 {
			if info := refusalOf(inner, depth-1); info.Found {
				return info
			}
		}
		return Refusal{Message: string(inner), Found: true}
	}
	info := Refusal{
		Message: Plain(fields["message"]), Code: Plain(fields["code"]),
		Kind: Plain(fields["type"]),
	}
	if info.Message == "" && len(fields["detail"]) > 0 {
		if info.Message = Plain(fields["detail"]); info.Message == "" {
			info.Message = string(fields["detail"])
		}
	}
	info.readGoogle(fields)
	_, found := fields["message"]
	info.Found = found || info.Message != "" || info.Code != ""
	return info
}

// Plain returns the text of a JSON string or number, "" of anything else.
func Plain(data json.RawMessage) string {
	var s string
	if json.Unmarshal(data, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(data, &n) == nil {
		return n.String()
	}
	return ""
}

// Codes and texts of servers, by the kind of the error. The context ones are about requests that
// are longer than the context of the model.
var (
	contextCodes = []string{
		"context_length_exceeded", "exceed_context_size_error", "request_too_large",
	}
	contextTexts = []string{
		"maximum context length", "context length exceeded", "context_length_exceeded", "context window",
		"exceeds the available context size", "exceeds the context", "maximum prompt length",
		"maximum input length",
		"prompt is too long", "input is too long", "input length and `max_tokens` exceed",
		"request too large",
		"reduce the length of the messages", "input token count exceeds",
		"exceeds the maximum number of tokens allowed",
		"request payload size exceeds",
	}
	quotaCodes = []string{
		"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error",
	}
	quotaTexts = []string{
		"insufficient balance", "insufficient credits", "insufficient funds",
		"credit balance is too low", "api usage limits", "credits are depleted",
	}
	authCodes   = []string{"invalid_api_key", "authentication_error", "permission_error"}
	filterCodes = []string{
		"content_filter", "content_policy_violation", "moderation_blocked", "cyber_policy",
	}
	overloadCodes = []string{
		"overloaded_error", "overloaded", "server_is_overloaded", "slow_down", "engine_overloaded_error",
	}
	serverCodes = []string{"server_error", "internal_error", "internal_server_error", "api_error"}
)

// kindOf classifies an error with an HTTP status; below 300 the error came in a stream.
func kindOf(status int, info Refusal) llm.ErrorKind {
	if n, err := strconv.Atoi(info.Code); err == nil && status < 300 && n >= 400 && n <= 599 {
		// Gateways send the status of the server behind them as the code.
		status = n
	}
	text := strings.ToLower(info.Message)
	is := func(codes []string) bool {
		return slices.Contains(codes, info.Code) || slices.Contains(codes, info.Kind)
	}
	has := func(texts []string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
	}
	// These codes and texts are more precise than a status.
	switch {
	case status == http.StatusUnauthorized:
		return llm.KindAuth
	case is(contextCodes) || status != http.StatusForbidden && has(contextTexts):
		return llm.KindContextLength
	case is(quotaCodes) || status == http.StatusPaymentRequired || has(quotaTexts):
		return llm.KindQuota
	case is(authCodes) || strings.Contains(text, "api key not valid"):
		return llm.KindAuth
	case is(filterCodes) || strings.Contains(text, "content filtering policy") ||
		info.Code == "invalid_prompt" && strings.Contains(text, "policy"):
		return llm.KindContentFilter
	case is([]string{"model_not_found", "not_found_error"}):
		return llm.KindNotFound
	case is(overloadCodes) || (status >= 500 || status < 300) && strings.Contains(text, "overloaded"):
		return llm.KindOverloaded
	case is([]string{"rate_limit_exceeded", "rate_limit_error"}):
		return llm.KindRateLimit
	case is([]string{"timeout_error"}):
		return llm.KindTimeout
	case status < 300 && is([]string{"invalid_request_error", "invalid_prompt"}):
		return llm.KindInvalid
	case is(serverCodes):
		return llm.KindServer
	}
	if kind, ok := googleKind(info.Code); ok {
		return kind
	}
	return kindOfStatus(status)
}

func kindOfStatus(status int) llm.ErrorKind {
	switch status {
	case http.StatusForbidden:
		return llm.KindAuth
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return llm.KindNotFound
	case http.StatusRequestTimeout:
		return llm.KindTimeout
	case http.StatusConflict, http.StatusTooEarly:
		// These are temporary, like the failures of a server.
		return llm.KindServer
	case http.StatusRequestEntityTooLarge:
		return llm.KindContextLength
	case http.StatusTooManyRequests:
		return llm.KindRateLimit
	case 529:
		return llm.KindOverloaded
	}
	if status >= 300 && status <= 499 {
		return llm.KindInvalid
	}
	return llm.KindServer
}

// retryAfter returns the wait that a server requests, in Retry-After-Ms or as seconds or date in
// Retry-After.
func retryAfter(h http.Header) (time.Duration, bool) {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		return duration(ms, time.Millisecond), true
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return duration(s, time.Second), true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	// The date is relative to the clock of the server.
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(date.Sub(now), 0), true
}

// duration returns n units, at least zero and as many as fit.
func duration(n float64, unit time.Duration) time.Duration {
	d := n * float64(unit)
	switch {
	case math.IsNaN(d) || d <= 0:
		return 0
	case d >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(d)
}

// redactor returns a function that redacts secrets in a text. Very short ones are not secrets.
func redactor(secrets []string) func(string) string {
	var pairs []string
	for _, s := range secrets {
		if len(s) >= 8 {
			pairs = append(pairs, s, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

// clean returns a text of a server as a Message: one line, without control characters, not too
// long.
func clean(text string) string {
	const limit = 2000
	length := len(text)
	text = text[:min(length, maxErrorBody)]
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + fmt.Sprintf("… (%d bytes)", length)
	}
	return text
}
