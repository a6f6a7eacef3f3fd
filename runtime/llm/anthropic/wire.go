package anthropic

import (
	"encoding/base64"
	"encoding/json"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// The types of this file are those of the Messages API, with the fields that the client uses. These
// pages document them:
//
//	https://docs.claude.com/en/api/messages                     requests, blocks, stop reasons, usage
//	https://docs.claude.com/en/docs/build-with-claude/streaming         events
//	https://docs.claude.com/en/docs/build-with-claude/extended-thinking thinking, signatures
//	https://docs.claude.com/en/docs/build-with-claude/effort            output_config
//	https://docs.claude.com/en/docs/build-with-claude/prompt-caching    cache_control
//	https://docs.claude.com/en/api/versioning                           the header anthropic-version

// apiVersion is the value of the header anthropic-version.
const apiVersion = "2023-06-01"

type wireRequest struct {
	MaxTokens    int64             `json:"max_tokens"`
	Messages     []wireMessage     `json:"messages"`
	Model        string            `json:"model"`
	OutputConfig *wireOutputConfig `json:"output_config,omitempty"`
	Stream       bool              `json:"stream"`
	System       []*wireBlock      `json:"system,omitempty"`
	Thinking     *wireThinking     `json:"thinking,omitempty"`
	ToolChoice   *wireToolChoice   `json:"tool_choice,omitempty"`
	Tools        []*wireTool       `json:"tools,omitempty"`
}

// Roles of messages. The results of tool calls are the user's.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

type wireMessage struct {
	Content []*wireBlock `json:"content"`
	Role    string       `json:"role"`
}

type wireOutputConfig struct {
	Effort string `json:"effort"`
}

// wireThinking is of type "adaptive", with Display, or "enabled", with BudgetTokens.
type wireThinking struct {
	BudgetTokens int64  `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
	Type         string `json:"type"`
}

type wireToolChoice struct {
	DisableParallelToolUse bool   `json:"disable_parallel_tool_use,omitempty"`
	Type                   string `json:"type"`
}

type wireTool struct {
	InputSchema  json.RawMessage   `json:"input_schema"`
	Name         string            `json:"name"`
	Description  string            `json:"description,omitempty"`
	CacheControl *wireCacheControl `json:"cache_control,omitempty"`
}

type wireCacheControl struct {
	Type string `json:"type"`
}

// Types of blocks.
const (
	blockText             = "text"
	blockImage            = "image"
	blockToolUse          = "tool_use"
	blockToolResult       = "tool_result"
	blockThinking         = "thinking"
	blockRedactedThinking = "redacted_thinking"
)

// wireBlock is a block of content of a request. Type decides which other fields it has.
type wireBlock struct {
	// Of type tool_result, together with Content and IsError.
	ToolUseID string `json:"tool_use_id,omitempty"`
	IsError   bool   `json:"is_error,omitempty"`
	// Of type tool_use. Input is an object.
	ID    string          `json:"id,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	Name  string          `json:"name,omitempty"`
	// Of type text.
	Text string `json:"text,omitempty"`
	// Of type image.
	Source *wireSource `json:"source,omitempty"`

	CacheControl *wireCacheControl `json:"cache_control,omitempty"`
	Content      []*wireBlock      `json:"content,omitempty"`
	Type         string            `json:"type"`

	// raw replaces all fields: thinking goes back as the server wrote it.
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (b *wireBlock) MarshalJSON() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	type fields wireBlock
	return json.Marshal((*fields)(b))
}

// wireSource is an image in base64.
type wireSource struct {
	Data      string `json:"data"`
	MediaType string `json:"media_type"`
	Type      string `json:"type"`
}

func textBlock(text string) *wireBlock { return &wireBlock{Type: blockText, Text: text} }

func imageBlock(img llm.Image) *wireBlock {
	return &wireBlock{Type: blockImage, Source: &wireSource{
		Data: base64.StdEncoding.EncodeToString(img.Data), MediaType: img.MIME, Type: "base64",
	}}
}

// wireEvent has the fields of all types of events. Those that the client does not use, such as
// citations, have other fields.
type wireEvent struct {
	Index   int `json:"index"`
	Message struct {
		ID    string    `json:"id"`
		Model string    `json:"model"`
		Usage wireUsage `json:"usage"`
	} `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        struct {
		Text        string     `json:"text"`
		Thinking    string     `json:"thinking"`
		Signature   string     `json:"signature"`
		PartialJSON string     `json:"partial_json"`
		StopReason  stopReason `json:"stop_reason"`
	} `json:"delta"`
	Usage wireUsage `json:"usage"`
}

// wireUsage has pointers because a later event may omit numbers of an earlier one.
type wireUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Details    struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// addTo sets the numbers of total that u has. They are totals, too.
func (u wireUsage) addTo(total *llm.Usage) {
	set := func(number, n *int64) {
		if n != nil {
			*number = max(*n, 0)
		}
	}
	set(&total.Input, u.Input)
	set(&total.Output, u.Output)
	set(&total.CacheRead, u.CacheRead)
	set(&total.CacheWrite, u.CacheWrite)
	set(&total.Reasoning, u.Details.Thinking)
}

// stopReason is the reason why an answer ended. The client treats the other ones, end_turn,
// stop_sequence, tool_use and pause_turn, alike.
type stopReason string

const (
	stopMaxTokens     stopReason = "max_tokens"
	stopContextWindow stopReason = "model_context_window_exceeded"
	stopRefusal       stopReason = "refusal"
)
