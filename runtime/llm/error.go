package llm

import (
	"errors"
	"fmt"
	"time"
)

// ErrorKind classifies the failure of a request.
type ErrorKind string

// Kinds of errors. Network, Timeout, RateLimit, Overloaded, Server and Stream are retryable.
const (
	// KindNetwork: no answer, such as a refused connection.
	KindNetwork ErrorKind = "network"
	// KindTimeout: the server reported a timeout (408), or no data came for too long.
	KindTimeout ErrorKind = "timeout"
	// KindRateLimit: too many requests or tokens (429).
	KindRateLimit ErrorKind = "rate_limit"
	// KindOverloaded: the server has no capacity now (529, "overloaded").
	KindOverloaded ErrorKind = "overloaded"
	// KindServer: the server failed (5xx).
	KindServer ErrorKind = "server"
	// KindStream: the answer broke off or is not understood.
	KindStream ErrorKind = "stream"
	// KindAuth: the key is missing, wrong or not allowed (401, 403).
	KindAuth ErrorKind = "auth"
	// KindQuota: the account has no money or quota left.
	KindQuota ErrorKind = "quota"
	// KindNotFound: the model or the address does not exist (404), or the server redirects to another
	// address, which is never followed.
	KindNotFound ErrorKind = "not_found"
	// KindContextLength: the request is longer than the model's context.
	KindContextLength ErrorKind = "context_length"
	// KindInvalid: the server rejected the request as invalid (400, 422).
	KindInvalid ErrorKind = "invalid_request"
	// KindContentFilter: the provider rejected the content.
	KindContentFilter ErrorKind = "content_filter"
	// KindAnswerTooLarge: the answer exceeds one of the bounds such as MaxAnswer. Another attempt
	// would cost as much.
	KindAnswerTooLarge ErrorKind = "answer_too_large"
	// KindReplay: a script or recording has no answer for this request.
	KindReplay ErrorKind = "replay"
	// KindCanceled: the caller's context ended.
	KindCanceled ErrorKind = "canceled"
)

// Error is the error of a Client. Message is the text of the server if it sent one, without control
// characters.
type Error struct {
	Kind     ErrorKind
	Provider string
	// Status is the HTTP status; zero without an answer. It is 200 if an answer started well and
	// failed later.
	Status int
	// Code is the error code of the provider; may be empty.
	Code    string
	Message string
	// RetryAfter is the wait that the server requests; valid if HasRetryAfter.
	RetryAfter    time.Duration
	HasRetryAfter bool
	// Err is the cause; may be nil.
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

// KindOf returns the kind of the *Error in err's chain, or "" without one.
func KindOf(err error) ErrorKind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
