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

// Request is a request that a client has sent.
type Request struct {
	// Request is what the body says. Consecutive parts of one role make one message; results carry the
	// name of their tool, but never IsError, which the wire does not have.
	llm.Request
	// API is one of the names above.
	API string
	// Path and Query are those of the address.
	Path  string
	Query url.Values
	// Number counts the requests to the server, from 0.
	Number int
	Header http.Header
	// Body is the body as it came.
	Body []byte
}

// Brain decides the answer to a request. It is called for one request at a time.
type Brain func(*Request) Reply

// Reply is an answer.
type Reply struct {
	Reasoning string
	Text      string
	Calls     []Call
	// Usage is reported; a zero one is made up from the sizes of request and answer.
	Usage llm.Usage
	// Finish is left empty for tool_calls if there are calls, else stop.
	Finish llm.FinishReason
	// Model is the model that claims to answer; empty means the requested one.
	Model string
	Fault Fault
	// Violation says that the request is wrong. It is recorded and answered with status 400.
	Violation string
}

// Call is a tool call. Arguments are sent as they are, well-formed or not.
type Call struct {
	Name      string
	Arguments string
	// ID is made up if it is empty, unless NoID is set.
	ID   string
	NoID bool
}

// Fault is how the server misbehaves in one answer. The zero value is no fault.
type Fault struct {
	// Delay is waited for before anything is sent.
	Delay time.Duration
	// Reset closes the connection in place of an answer.
	Reset bool
	// Status, if not zero, is answered in place of a stream, with Header and an error of Code, Type
	// and Message, or with Body if that is set.
	Status  int
	Code    string
	Type    string
	Message string
	Header  http.Header
	Body    string

	// OneByte sends each byte of the stream in a chunk of its own.
	OneByte bool
	// CRLF ends lines with \r\n.
	CRLF bool
	// Comments puts comments, ids and unknown fields between the events.
	Comments bool
	// Pad is the number of bytes by which one event is made longer.
	Pad int
	// Pace is waited for between events.
	Pace time.Duration
	// Interleave mixes the pieces of the arguments of parallel calls.
	Interleave bool
	// NoDone leaves out what follows the last event that is needed.
	NoDone bool

	// Cut breaks the connection off at a point of the stream.
	Cut Point
	// End ends the answer at a point of the stream, as if it were complete.
	End Point
	// Hang stops at a point of the stream and stays silent until the client goes.
	Hang Point
	// Fail sends an error of Code, Type and Message at a point of the stream, and ends the answer.
	Fail Point
	// Length is added to the length of the answer to give a wrong Content-Length. If it is negative
	// the answer is cut.
	Length int
	// Gzip says that the stream is compressed, which it is not.
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
	// AtArguments is in the middle of an event with arguments, after one before it was sent.
	AtArguments Point = "arguments"
	// AtEnd is before the event that completes the answer.
	AtEnd Point = "end"
)

// Say returns an answer of text.
func Say(text string) Reply { return Reply{Text: text} }

// Use returns an answer of tool calls.
func Use(calls ...Call) Reply { return Reply{Calls: calls} }

// Sequence returns a Brain that gives the replies in order. One request more is a violation.
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

// Storm returns a Brain whose first n answers have the fault; the others are those of next, which
// does not see the requests before them.
func Storm(n int, fault Fault, next Brain) Brain {
	return func(r *Request) Reply {
		if n > 0 {
			n--
			return Reply{Text: "lost", Fault: fault}
		}
		return next(r)
	}
}

// TooMany returns the fault of a 429 answer with the given Retry-After-Ms and Retry-After headers,
// each left out if it is empty.
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
