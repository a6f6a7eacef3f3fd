package llmtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

func messagesProtocol() protocol {
	return protocol{
		api:      Messages,
		key:      func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
		wrongKey: Fault{Type: "authentication_error", Message: "invalid x-api-key"},
		decode:   decodeMessages, events: messagesEvents, refusal: messagesRefusal,
		failure: func(f Fault) sseEvent {
			return sseEvent{name: "error", data: messagesRefusal(http.StatusOK, f)}
		},
	}
}

// messagesRefusal returns the body or the event of an error. Anthropic has types or texts for codes
// of OpenAI.
func messagesRefusal(status int, f Fault) []byte {
	known := []string{
		"invalid_request_error", "authentication_error", "billing_error", "permission_error",
		"not_found_error", "conflict_error",
		"request_too_large", "rate_limit_error", "timeout_error", "api_error", "overloaded_error",
	}
	typ, message := f.Type, f.Message
	switch f.Code {
	case "context_length_exceeded":
		typ, message = "invalid_request_error", "prompt is too long: "+message
	case "content_filter":
		typ, message = "invalid_request_error", "Output blocked by content filtering policy: "+message
	case "insufficient_quota":
		typ = "billing_error"
	case "rate_limit_exceeded":
		typ = "rate_limit_error"
	}
	if !slices.Contains(known, typ) {
		typ = map[int]string{
			http.StatusUnauthorized: "authentication_error", http.StatusPaymentRequired: "billing_error",
			http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
			http.StatusConflict:              "conflict_error",
			http.StatusRequestTimeout:        "timeout_error",
			http.StatusRequestEntityTooLarge: "request_too_large",
			http.StatusTooManyRequests:       "rate_limit_error", http.StatusGatewayTimeout: "timeout_error",
			529: "overloaded_error",
		}[status]
		if typ == "" {
			typ = "api_error"
			if status >= 400 && status < 500 {
				typ = "invalid_request_error"
			}
		}
	}
	return mustJSON(object{
		"type": "error", "error": object{"type": typ, "message": message}, "request_id": "req_llmtest",
	})
}

// signature signs thinking, so that any server can verify that it comes back unchanged.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte("llmtest" + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// messagesWriter collects the events of a Messages stream.
type messagesWriter struct {
	events []sseEvent
	blocks int
	pad    int
}

func (w *messagesWriter) add(typ string, at Point, fields object) {
	fields["type"] = typ
	if w.pad > 0 && at == AtText {
		fields["padding"] = strings.Repeat("x", w.pad)
		w.pad = 0
	}
	w.events = append(w.events, sseEvent{name: typ, data: mustJSON(fields), at: at})
}

// start adds the start of the next block and returns its index.
func (w *messagesWriter) start(content object) int {
	w.add("content_block_start", "", object{"index": w.blocks, "content_block": content})
	w.blocks++
	return w.blocks - 1
}

func (w *messagesWriter) delta(index int, at Point, typ, field, piece string) {
	w.add("content_block_delta", at, object{"index": index, "delta": object{
		"type": typ,
		field:  piece,
	}})
}

func (w *messagesWriter) end(index int) { w.add("content_block_stop", "", object{"index": index}) }

// messagesEvents returns the events of an answer, and for each call the thinking that must precede
// it later.
func messagesEvents(req *Request, r Reply, _ extras) ([]sseEvent, map[string]json.RawMessage) {
	w := &messagesWriter{pad: r.Fault.Pad}
	u := r.Usage
	w.add("message_start", AtStart, object{"message": object{
		"id": fmt.Sprintf("msg_%d", req.Number), "type": "message", "role": "assistant", "model": r.Model,
		"content":     []any{},
		"stop_reason": nil, "stop_sequence": nil,
		"usage": object{
			"input_tokens": u.Input, "cache_creation_input_tokens": u.CacheWrite,
			"cache_read_input_tokens": u.CacheRead,
			"output_tokens":           1, "service_tier": "standard",
		},
	}})
	w.add("ping", "", object{})
	var thought json.RawMessage
	if r.Reasoning != "" {
		i := w.start(object{"type": "thinking", "thinking": "", "signature": ""})
		for _, piece := range pieces(r.Reasoning) {
			w.delta(i, "", "thinking_delta", "thinking", piece)
		}
		w.delta(i, "", "signature_delta", "signature", signature(r.Reasoning))
		w.end(i)
		thought = mustJSON(object{
			"type": "thinking", "thinking": r.Reasoning,
			"signature": signature(r.Reasoning),
		})
	}
	known := make(map[string]json.RawMessage)
	for _, c := range r.Calls {
		known[c.ID] = thought
	}
	if r.Text != "" {
		i := w.start(object{"type": "text", "text": ""})
		for _, piece := range pieces(r.Text) {
			w.delta(i, AtText, "text_delta", "text", piece)
		}
		w.end(i)
	}
	first := w.blocks
	walkCalls(r, func(i int) {
		w.start(object{
			"type": "tool_use", "id": r.Calls[i].ID, "name": r.Calls[i].Name,
			"input": object{},
		})
	}, func(i int, piece string) {
		w.delta(first+i, AtArguments, "input_json_delta", "partial_json", piece)
	}, func(i int) { w.end(first + i) })
	stop := map[llm.FinishReason]string{
		llm.FinishToolCalls: "tool_use", llm.FinishLength: "max_tokens",
		llm.FinishContentFilter: "refusal",
	}[r.Finish]
	if stop == "" {
		stop = "end_turn"
	}
	w.add("message_delta", "", object{
		"delta": object{"stop_reason": stop, "stop_sequence": nil},
		"usage": object{
			"output_tokens": u.Output, "output_tokens_details": object{"thinking_tokens": u.Reasoning},
		},
	})
	w.add("message_stop", AtEnd, object{})
	return w.events, known
}
