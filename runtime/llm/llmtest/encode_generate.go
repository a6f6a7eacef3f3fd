package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

func generateProtocol() protocol {
	return protocol{
		api:      Generate,
		key:      func(r *http.Request) string { return r.Header.Get("X-Goog-Api-Key") },
		wrongKey: Fault{Message: "API key not valid. Please pass a valid API key."},
		decode:   decodeGenerate, events: generateEvents, refusal: generateRefusal,
		failure: func(f Fault) sseEvent {
			status := http.StatusServiceUnavailable
			switch f.Code {
			case "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "insufficient_quota":
				status = http.StatusTooManyRequests
			case "server_error", "INTERNAL":
				status = http.StatusInternalServerError
			}
			return sseEvent{data: generateRefusal(status, f)}
		},
	}
}

var googleStatus = lazyregexp.New(`^[A-Z_]+$`)

// generateRefusal returns the body or the event of an error. Google has texts or details for codes
// of OpenAI.
func generateRefusal(status int, f Fault) []byte {
	name := map[int]string{
		http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED",
		http.StatusNotFound: "NOT_FOUND",
		http.StatusConflict: "ABORTED", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED",
		http.StatusServiceUnavailable: "UNAVAILABLE", http.StatusRequestTimeout: "DEADLINE_EXCEEDED",
		http.StatusGatewayTimeout: "DEADLINE_EXCEEDED", 529: "UNAVAILABLE",
	}[status]
	if name == "" {
		name = "INTERNAL"
		if status >= 300 && status < 500 {
			name = "INVALID_ARGUMENT"
		}
	}
	message, details := f.Message, []any{}
	switch {
	case googleStatus().MatchString(f.Code):
		name = f.Code
	case f.Code == "context_length_exceeded":
		message = "The input token count exceeds the maximum number of tokens allowed. " + message
	case f.Code == "insufficient_quota":
		details = append(details, object{
			"@type":      "type.googleapis.com/google.rpc.QuotaFailure",
			"violations": []any{object{"quotaId": "GenerateRequestsPerDay"}},
		})
	case f.Code == "content_filter":
		message = "Blocked by content filtering policy. " + message
	}
	return mustJSON(object{"error": object{
		"code": status, "message": message, "status": name,
		"details": details,
	}})
}

// generateEvents returns the events of an answer. Signatures verify themselves, so the server
// records no reasoning.
func generateEvents(req *Request, r Reply, ex extras) ([]sseEvent, map[string]json.RawMessage) {
	var events []sseEvent
	pad := r.Fault.Pad
	u := r.Usage
	usage := object{
		"promptTokenCount": u.Input + u.CacheRead + u.CacheWrite,
		"totalTokenCount":  u.Input + u.CacheRead + u.CacheWrite,
	}
	chunk := func(at Point, candidate object) {
		c := object{"usageMetadata": usage, "modelVersion": r.Model, "responseId": fmt.Sprintf("resp-%d",
			req.Number)}
		if candidate != nil {
			candidate["index"] = 0
			c["candidates"] = []any{candidate}
		}
		if pad > 0 && at == AtText {
			c["padding"] = strings.Repeat("x", pad)
			pad = 0
		}
		events = append(events, sseEvent{data: mustJSON(c), at: at})
	}
	part := func(at Point, p object) {
		chunk(at, object{"content": object{"role": "model", "parts": []any{p}}})
	}
	signed := strings.HasPrefix(req.Model, "gemini-")
	chunk(AtStart, nil)
	if ex.thoughts {
		for _, piece := range pieces(r.Reasoning) {
			part("", object{"text": piece, "thought": true})
		}
	}
	for _, piece := range pieces(r.Text) {
		part(AtText, object{"text": piece})
	}
	finish := map[llm.FinishReason]string{
		llm.FinishLength: "MAX_TOKENS", llm.FinishContentFilter: "SAFETY",
	}[r.Finish]
	if finish == "" {
		finish = "STOP"
	}
	for i, c := range r.Calls {
		args := json.RawMessage(c.Arguments)
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		if !json.Valid(args) || args[0] != '{' {
			// The server does not send malformed calls.
			finish = "MALFORMED_FUNCTION_CALL"
			break
		}
		call := object{"name": c.Name, "args": args}
		if c.ID != "" {
			call["id"] = c.ID
		}
		p := object{"functionCall": call}
		if signed && i == 0 {
			p["thoughtSignature"] = callSignature(c.Name, args)
		}
		part(AtArguments, p)
	}
	last := object{"text": ""}
	if signed && len(r.Calls) == 0 {
		last["thoughtSignature"] = signature("")
	}
	usage = object{
		"promptTokenCount": u.Input + u.CacheRead + u.CacheWrite, "cachedContentTokenCount": u.CacheRead,
		"candidatesTokenCount": u.Output - u.Reasoning, "thoughtsTokenCount": u.Reasoning,
		"totalTokenCount": u.Total(),
	}
	chunk(AtEnd, object{
		"content":      object{"role": "model", "parts": []any{last}},
		"finishReason": finish,
	})
	return events, nil
}
