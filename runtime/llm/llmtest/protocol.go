package llmtest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// protocol has the differences between the wire formats.
type protocol struct {
	api string
	// key returns the API key of a request.
	key func(*http.Request) string
	// wrongKey is the error for a wrong key.
	wrongKey Fault
	// decode validates a request and decodes it into req.Request. Known is the reasoning that events
	// returned for earlier answers.
	decode func(req *Request, known map[string]json.RawMessage) (extras, error)
	// events returns the stream of an answer, and the reasoning in it that must come back unchanged,
	// by name.
	events func(*Request, Reply, extras) ([]sseEvent, map[string]json.RawMessage)
	// refusal is the body of an error.
	refusal func(status int, f Fault) []byte
	// failure returns the event of an error in a stream.
	failure func(Fault) sseEvent
}

// extras are fields of a request that decide about the answer, beside its contents.
type extras struct {
	// encrypted is true if the request includes encrypted reasoning.
	encrypted bool
	// usage is true if the request includes usage in a Chat stream.
	usage bool
	// thoughts is true if the request includes thoughts in a Gemini stream.
	thoughts bool
}

// protocolOf returns the protocol of a path; for an unknown one false, and the protocol of its
// error.
func protocolOf(path string) (protocol, bool) {
	switch path {
	case "/v1/responses":
		return responsesProtocol(), true
	case "/v1/chat/completions":
		return chatProtocol(), true
	case "/v1/messages":
		return messagesProtocol(), true
	}
	if generatePath().MatchString(path) {
		return generateProtocol(), true
	}
	return responsesProtocol(), false
}

func bearer(r *http.Request) string {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return key
}

func openaiWrongKey() Fault {
	return Fault{
		Code: "invalid_api_key", Type: "invalid_request_error", Message: "incorrect API key provided",
	}
}

func responsesProtocol() protocol {
	return protocol{
		api: Responses, key: bearer, wrongKey: openaiWrongKey(), decode: decodeResponses,
		events:  responsesEvents,
		refusal: openaiRefusal,
		failure: func(f Fault) sseEvent {
			return sseEvent{name: "error", data: mustJSON(object{
				"type": "error", "code": f.Code,
				"message": f.Message, "param": nil,
			})}
		},
	}
}

func chatProtocol() protocol {
	return protocol{
		api: Chat, key: bearer, wrongKey: openaiWrongKey(), decode: decodeChat, events: chatEvents,
		refusal: openaiRefusal,
		failure: func(f Fault) sseEvent {
			return sseEvent{name: "error", data: openaiRefusal(http.StatusOK, f)}
		},
	}
}

func openaiRefusal(_ int, f Fault) []byte {
	detail := object{"message": f.Message, "type": f.Type, "param": nil, "code": nil}
	if f.Code != "" {
		detail["code"] = f.Code
	}
	return mustJSON(object{"error": detail})
}
