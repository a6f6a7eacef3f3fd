package llmtest

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// API names of Request.
const (
	Responses = "responses"
	Chat      = "chat"
)

// Request is a request of a client.
type Request struct {
	// Request is the decoded body. Consecutive parts of one role make one message; results carry the
	// name of their tool, and IsError only where the wire has it.
	llm.Request
	// API is one of the names above.
	API string
	// Path and Query are those of the URL.
	Path  string
	Query url.Values
	// Number is the number of the request to the server, from 0.
	Number int
	Header http.Header
	// Body is the raw body.
	Body []byte
}

// Brain returns the answer to a request. The server calls it for one request at a time.
type Brain func(*Request) Reply

// Reply is an answer.
type Reply struct {
	Reasoning string
	Text      string
	Calls     []Call
	// Usage is the reported usage; a zero one is estimated from the sizes of request and answer.
	Usage llm.Usage
	// Finish is the finish reason; empty means tool_calls if the answer has calls, else stop.
	Finish llm.FinishReason
	// Model is the model of the answer; empty means that of the request.
	Model string
	Fault Fault
	// Violation, if not empty, rejects the request: it is recorded and answered with status 400.
	Violation string
}

// Call is a tool call. Arguments are sent as they are, well-formed or not.
type Call struct {
	Name      string
	Arguments string
	// ID is generated if it is empty, unless NoID is set.
	ID   string
	NoID bool
}

// Fault is the failure of one answer. The zero value is none.
type Fault struct {
	// Delay is the wait before the answer.
	Delay time.Duration
	// Reset closes the connection instead of answering.
	Reset bool
	// Status, if not zero, is the status of an answer without a stream, with Header and an error of
	// Code, Type and Message, or with Body if that is set.
	Status  int
	Code    string
	Type    string
	Message string
	Header  http.Header
	Body    string

	// OneByte sends each byte of the stream as a separate chunk.
	OneByte bool
	// CRLF ends lines with \r\n.
	CRLF bool
	// Comments adds comments, ids and unknown fields between the events.
	Comments bool
	// Pad is the number of bytes that one event is longer.
	Pad int
	// Pace is the wait between events.
	Pace time.Duration
	// Interleave mixes the pieces of the arguments of parallel calls.
	Interleave bool
	// NoDone omits the data after the event that completes the answer.
	NoDone bool

	// Cut closes the connection at a point of the stream.
	Cut Point
	// End ends the answer regularly at a point of the stream.
	End Point
	// Hang stops sending at a point of the stream until the client disconnects.
	Hang Point
	// Fail sends an error of Code, Type and Message at a point of the stream, and ends the answer.
	Fail Point
	// Length is added to the length of the answer to give a wrong Content-Length. A negative one cuts
	// the answer.
	Length int
	// Gzip declares the stream as compressed, which it is not.
	Gzip bool
}

// Point is a point of a stream.
type Point string

// Points of a stream.
const (
	// AtStart is before the first event.
	AtStart Point = "start"
	// AtText is in the middle of an event with text.
	AtText Point = "text"
	// AtArguments is in the middle of the second event with arguments.
	AtArguments Point = "arguments"
	// AtEnd is before the event that completes the answer.
	AtEnd Point = "end"
)

// Text returns an answer of text.
func Text(text string) Reply { return Reply{Text: text} }

// Use returns an answer of tool calls.
func Use(calls ...Call) Reply { return Reply{Calls: calls} }

// Sequence returns a Brain that gives the replies in order. A request after the last one is a
// violation.
func Sequence(replies ...Reply) Brain {
	next := 0
	return func(*Request) Reply {
		if next >= len(replies) {
			return Reply{Violation: "no reply is left after " + strconv.Itoa(len(replies))}
		}
		next++
		return replies[next-1]
	}
}

// Storm returns a Brain whose first n answers have the fault; next answers the requests after them.
func Storm(n int, fault Fault, next Brain) Brain {
	return func(r *Request) Reply {
		if n > 0 {
			n--
			return Reply{Text: "lost", Fault: fault}
		}
		return next(r)
	}
}

// TooMany returns the fault of a 429 answer with the given Retry-After-Ms and Retry-After headers;
// empty ones are omitted.
func TooMany(afterMS, after string) Fault {
	h := make(http.Header)
	if afterMS != "" {
		h.Set("Retry-After-Ms", afterMS)
	}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return Fault{
		Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", Type: "requests",
		Message: "too many requests", Header: h,
	}
}
