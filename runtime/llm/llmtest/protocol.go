package llmtest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// protocol is a wire format, by what differs between them.
type protocol struct {
	api string
	// key returns the key that a request carries.
	key func(*http.Request) string
	// wrongKey is the error for another key than the server's.
	wrongKey Fault
	// decode reads a request into req.Request, and checks it. Known is what events has returned for
	// earlier answers.
	decode func(req *Request, known map[string]json.RawMessage) (extras, error)
	// events returns the answer as a stream, and the reasoning in it that must come back unchanged, by
	// name.
	events func(*Request, Reply, extras) ([]sseEvent, map[string]json.RawMessage)
	// refusal is the body of an error.
	refusal func(status int, f Fault) []byte
	// failure is the event of an error in a stream.
	failure func(Fault) sseEvent
}

// extras are what an answer needs to know of a request beside its contents.
type extras struct {
	// encrypted is the wish for encrypted reasoning.
	encrypted bool
	// usage is the wish for usage in a Chat stream.
	usage bool
	// thoughts is the wish for thoughts in a Gemini stream.
	thoughts bool
}

// protocolOf returns the protocol that is spoken at a path. If there is none, its errors are those
// of OpenAI.
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
		Code: "invalid_api_key", Type: "invalid_request_error",
		Message: "incorrect API key provided",
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
