package llm

import "errors"

// Bounds of one answer. The clients of this module end an answer beyond one of them with an *Error
// of KindAnswerTooLarge that wraps the error of the bound. What they hold of an answer is a small
// multiple of MaxAnswer at most.
const (
	// MaxAnswer is the length of an answer in bytes, as the server sends it, after decompression.
	MaxAnswer = 32 << 20
	// MaxArguments is the length of the arguments of one tool call in bytes.
	MaxArguments = 4 << 20
	// MaxToolCalls is the number of tool calls in one answer.
	MaxToolCalls = 256
)

// Errors of answers beyond the bounds.
var (
	// ErrAnswerTooLarge: the answer or one of its events is too long, or has too many parts.
	ErrAnswerTooLarge = errors.New("the answer is too large")
	// ErrArgumentsTooLarge: the arguments of a tool call are longer than MaxArguments.
	ErrArgumentsTooLarge = errors.New("the arguments of a tool call are too large")
	// ErrTooManyToolCalls: the answer has more than MaxToolCalls tool calls.
	ErrTooManyToolCalls = errors.New("the answer has too many tool calls")
)
