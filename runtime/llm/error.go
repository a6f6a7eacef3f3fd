package llm

import (
	"errors"
	"fmt"
	"time"
)

// ErrorKind classifies what went wrong with a request.
type ErrorKind string

// Kinds of errors. Retryable are Network, Timeout, RateLimit, Overloaded, Server and Stream.
const (
	// KindNetwork: no answer came, such as a refused connection.
	KindNetwork ErrorKind = "network"
	// KindTimeout: the server said that it took too long (408), or nothing came for too long.
	KindTimeout ErrorKind = "timeout"
	// KindRateLimit: too many requests or tokens (429).
	KindRateLimit ErrorKind = "rate_limit"
	// KindOverloaded: the server has no capacity now (529, "overloaded").
	KindOverloaded ErrorKind = "overloaded"
	// KindServer: the server failed (5xx).
	KindServer ErrorKind = "server"
	// KindStream: the answer broke off or could not be understood.
	KindStream ErrorKind = "stream"
	// KindAuth: the key is missing, wrong or not allowed (401, 403).
	KindAuth ErrorKind = "auth"
	// KindQuota: the account has no money or quota left.
	KindQuota ErrorKind = "quota"
	// KindNotFound: the model or the address does not exist (404).
	KindNotFound ErrorKind = "not_found"
	// KindContextLength: the request is longer than the model's context.
	KindContextLength ErrorKind = "context_length"
	// KindInvalid: the server refused the request as wrong (400, 422).
	KindInvalid ErrorKind = "invalid_request"
	// KindContentFilter: the provider refused the content.
	KindContentFilter ErrorKind = "content_filter"
	// KindReplay: a script or recording has no answer for this request.
	KindReplay ErrorKind = "replay"
	// KindCanceled: the caller's context ended.
	KindCanceled ErrorKind = "canceled"
)

// Error is what a Client reports. Message is the server's own text where there is one, without
// control characters.
type Error struct {
	Kind     ErrorKind
	Provider string
	// Status is the HTTP status; zero if no answer came. It is 200 if an answer began well and failed
	// later.
	Status int
	// Code is the provider's own code; may be empty.
	Code    string
	Message string
	// RetryAfter is the wait that the server asked for; meaningful if HasRetryAfter.
	RetryAfter    time.Duration
	HasRetryAfter bool
	// Err is the cause, if there is one.
	Err error
}

func (e *Error) Error() string {
	msg := e.Message
	if msg == "" && e.Err != nil {
		msg = e.Err.Error()
	}
	s := string(e.Kind)
	if e.Status >= 300 {
		s = fmt.Sprintf("%s (HTTP %d)", s, e.Status)
	}
	if e.Provider != "" {
		s = e.Provider + ": " + s
	}
	if msg != "" {
		s += ": " + msg
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether sending the same request again may help.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case KindNetwork, KindTimeout, KindRateLimit, KindOverloaded, KindServer, KindStream:
		return true
	}
	return false
}

// KindOf returns the kind of the *Error in err's chain, or "" if there is none.
func KindOf(err error) ErrorKind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
