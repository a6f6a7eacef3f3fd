package llm

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Client sends requests to a model. Implementations are safe for concurrent use.
type Client interface {
	// Stream sends req and yields the answer in pieces. Nothing is sent before the iteration starts;
	// each iteration sends once. After a non-nil error, an *Error, the sequence ends. Leaving the
	// iteration or ending ctx closes the connection. A sequence without an error ends with DeltaDone.
	// The client does not modify req.
	Stream(ctx context.Context, req Request) iter.Seq2[Delta, error]
}

// ClientFunc is a function as a Client.
type ClientFunc func(ctx context.Context, req Request) iter.Seq2[Delta, error]

// Stream implements Client.
func (f ClientFunc) Stream(ctx context.Context, req Request) iter.Seq2[Delta, error] {
	return f(ctx, req)
}

// ToolSpec describes a tool to a model.
type ToolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Schema is a JSON Schema whose root type is "object".
	Schema json.RawMessage `json:"schema"`
}

// Request is one request to a model.
type Request struct {
	Model    string     `json:"model"`
	System   string     `json:"system,omitempty"`
	Messages []Message  `json:"messages"`
	Tools    []ToolSpec `json:"tools,omitempty"`
	// ReasoningEffort is "low", "medium", "high", another value of the provider such as "xhigh", or
	// empty for its default.
	ReasoningEffort string `json:"reasoning_effort,omitempty"`
	// MaxOutputTokens limits the answer; zero means the provider's limit.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
	// ParallelToolCalls allows several tool calls in one answer.
	ParallelToolCalls bool `json:"parallel_tool_calls,omitempty"`
	// NoToolCalls forbids tool calls in the answer; Tools stay, for the calls in Messages. Some
	// servers ignore it.
	NoToolCalls bool `json:"no_tool_calls,omitempty"`
	// Options are extra fields of the request body, by the names of the provider.
	Options map[string]any `json:"options,omitempty"`
	// SessionID identifies the conversation for the cache of a provider. It has no other meaning.
	SessionID string `json:"session_id,omitempty"`
	// RunID and ModelCall tell a Client which request of which run this is; ModelCall counts from 1.
	// They are not sent, so that equal conversations give equal requests.
	RunID     string `json:"-"`
	ModelCall int    `json:"-"`
}

// DeltaKind is the content of a Delta.
type DeltaKind string

// Kinds of deltas.
const (
	// DeltaText carries a piece of the answer in Text.
	DeltaText DeltaKind = "text"
	// DeltaReasoning carries a piece of the model's reasoning in Text.
	DeltaReasoning DeltaKind = "reasoning"
	// DeltaToolCall starts the tool call Index, with ID and Name in Call as far as the server has sent
	// them.
	DeltaToolCall DeltaKind = "tool_call"
	// DeltaArguments carries a piece of the arguments of the tool call Index in Text.
	DeltaArguments DeltaKind = "arguments"
	// DeltaPart carries a finished part in Part. Opaque reasoning replaces the pieces of reasoning
	// directly before it.
	DeltaPart DeltaKind = "part"
	// DeltaRetry discards the attempt so far; another one starts after a pause, see Retry.
	DeltaRetry DeltaKind = "retry"
	// DeltaDone ends a complete answer; see Done.
	DeltaDone DeltaKind = "done"
)

// Delta is a piece of an answer.
type Delta struct {
	Kind DeltaKind
	Text string
	// Index identifies the tool call of the delta within the answer.
	Index int
	Call  *ToolCall
	Part  *Part
	Retry *RetryNotice
	Done  *Done
}

// RetryNotice announces that a request is sent again.
type RetryNotice struct {
	// Attempt is the number of the coming attempt; the first retry is 2.
	Attempt int
	Delay   time.Duration
	Err     error
}

// FinishReason is the reason why an answer ended.
type FinishReason string

// Finish reasons.
const (
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	// FinishLength: a token limit cut the answer. Its tool calls are discarded, see Assembler.
	FinishLength FinishReason = "length"
	// FinishContentFilter: the provider cut the answer for its content. Its tool calls are discarded,
	// see Assembler.
	FinishContentFilter FinishReason = "content_filter"
)

// Done ends an answer.
type Done struct {
	Finish     FinishReason
	Usage      Usage
	ResponseID string
	// Model is the model of the answer, as the provider names it.
	Model string
}

// Usage counts tokens. Input excludes tokens that were read from or written to a cache; Output
// includes Reasoning.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output, Reasoning: u.Reasoning + v.Reasoning,
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
	}
}

// Total returns all tokens of u: the part of the context window that the request and its answer
// use.
func (u Usage) Total() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// Response is a complete answer.
type Response struct {
	Message    Message
	Finish     FinishReason
	Usage      Usage
	ResponseID string
	Model      string
}

// Clock is the time of retry and of the agent loop. Tests replace it so as not to wait.
type Clock interface {
	// Now returns the time of day, for records. It may jump, so durations are not measured by it.
	Now() time.Time
	// Sleep waits for d or until ctx ends, and then returns context.Cause(ctx).
	Sleep(ctx context.Context, d time.Duration) error
}
