package llm

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Client asks a model. Implementations are safe for concurrent use.
type Client interface {
	// Stream sends req and yields the answer piece by piece. Nothing is sent before iteration starts;
	// each iteration sends once. After a non-nil error, an *Error, the sequence ends. Breaking off the
	// iteration or ending ctx closes the connection. A sequence that ends without error has yielded
	// DeltaDone last. The request is not modified.
	Stream(ctx context.Context, req Request) iter.Seq2[Delta, error]
}

// ToolSpec describes a tool to a model.
type ToolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Schema is a JSON Schema whose root type is "object".
	Schema json.RawMessage `json:"schema"`
}

// Request is one question to a model.
type Request struct {
	Model    string     `json:"model"`
	System   string     `json:"system,omitempty"`
	Messages []Message  `json:"messages"`
	Tools    []ToolSpec `json:"tools,omitempty"`
	// ReasoningEffort is "low", "medium", "high", a provider's own value such as "xhigh", or empty for
	// its default.
	ReasoningEffort string `json:"reasoning_effort,omitempty"`
	// MaxOutputTokens limits the answer; zero means the provider's limit.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
	// ParallelToolCalls allows several tool calls in one answer.
	ParallelToolCalls bool `json:"parallel_tool_calls,omitempty"`
	// Options are extra fields of the provider's request body, by their name there.
	Options map[string]any `json:"options,omitempty"`
	// SessionID lets a provider keep its cache for a conversation. It carries no meaning.
	SessionID string `json:"session_id,omitempty"`
}

// DeltaKind says what a Delta carries.
type DeltaKind string

// Kinds of deltas.
const (
	// DeltaText carries a piece of the answer in Text.
	DeltaText DeltaKind = "text"
	// DeltaReasoning carries a piece of the model's reasoning in Text.
	DeltaReasoning DeltaKind = "reasoning"
	// DeltaToolCall begins the tool call number Index, with its ID and Name in Call as far as they are
	// known.
	DeltaToolCall DeltaKind = "tool_call"
	// DeltaArguments carries a piece of the arguments of tool call number Index in Text.
	DeltaArguments DeltaKind = "arguments"
	// DeltaPart carries a finished part in Part. Opaque reasoning takes the place of the pieces of
	// reasoning before it.
	DeltaPart DeltaKind = "part"
	// DeltaRetry says that the attempt so far is void and a new one begins after a pause; see Retry.
	DeltaRetry DeltaKind = "retry"
	// DeltaDone ends a complete answer; see Done.
	DeltaDone DeltaKind = "done"
)

// Delta is a piece of an answer.
type Delta struct {
	// Seq numbers the deltas of one stream from 1, so that receivers ignore a repeated delta. A delta
	// without a number, Seq 0, is never ignored.
	Seq  int
	Kind DeltaKind
	Text string
	// Index tells parallel tool calls apart: equal indexes belong to one call.
	Index int
	Call  *ToolCall
	Part  *Part
	Retry *RetryNotice
	Done  *Done
}

// RetryNotice tells why and when a request is sent again.
type RetryNotice struct {
	// Attempt is the number of the coming attempt; the first retry is 2.
	Attempt int
	Delay   time.Duration
	Err     error
}

// FinishReason says why an answer ended.
type FinishReason string

// Finish reasons.
const (
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	// FinishLength: the answer was cut at a token limit. Its tool calls are left out, see Assembler.
	FinishLength FinishReason = "length"
	// FinishContentFilter: the provider cut the answer for its content. Its tool calls are left out,
	// see Assembler.
	FinishContentFilter FinishReason = "content_filter"
)

// Done ends an answer.
type Done struct {
	Finish     FinishReason
	Usage      Usage
	ResponseID string
	// Model is the model that answered, as the provider names it.
	Model string
}

// Usage counts tokens. Input leaves out what was read from or written to a cache; Output includes
// Reasoning.
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

// Total is all tokens of u: what one request and its answer take of the context window.
func (u Usage) Total() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// Response is a complete answer.
type Response struct {
	Message    Message
	Finish     FinishReason
	Usage      Usage
	ResponseID string
	Model      string
}

// Clock is time as retry and the loop see it, so that tests need not wait.
type Clock interface {
	// Now is the time of day, for records. It may jump, so nothing is measured by it.
	Now() time.Time
	// Sleep waits for d or until ctx ends, and then returns context.Cause(ctx).
	Sleep(ctx context.Context, d time.Duration) error
}
