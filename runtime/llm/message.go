package llm

import (
	"encoding/json"
	"strings"
)

// Role says who speaks in a message.
type Role string

// Roles of messages. Instructions of the host are Request.System, not a message.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	// RoleTool holds results of tool calls.
	RoleTool Role = "tool"
)

// Message is one entry of a conversation. Messages are values: whoever holds one does not change
// its parts.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// PartKind says which field of a Part is set.
type PartKind string

// Kinds of parts.
const (
	PartText       PartKind = "text"
	PartReasoning  PartKind = "reasoning"
	PartImage      PartKind = "image"
	PartToolCall   PartKind = "tool_call"
	PartToolResult PartKind = "tool_result"
)

// Part is a piece of a message. Kind says which one of the other fields is meaningful.
type Part struct {
	Kind       PartKind    `json:"kind"`
	Text       string      `json:"text,omitempty"`
	Reasoning  *Reasoning  `json:"reasoning,omitempty"`
	Image      *Image      `json:"image,omitempty"`
	ToolCall   *ToolCall   `json:"tool_call,omitempty"`
	ToolResult *ToolResult `json:"tool_result,omitempty"`
}

// Text makes a text part.
func Text(s string) Part { return Part{Kind: PartText, Text: s} }

// UserText makes a user message of one text.
func UserText(s string) Message { return Message{Role: RoleUser, Parts: []Part{Text(s)}} }

// Reasoning is what a model thought. Opaque is the provider's own form of it, which goes back to
// the same provider unchanged in later requests; Provider names that provider.
type Reasoning struct {
	Text     string          `json:"text,omitempty"`
	Provider string          `json:"provider,omitempty"`
	Opaque   json.RawMessage `json:"opaque,omitempty"`
}

// Image is a picture with its MIME type, such as "image/png".
type Image struct {
	MIME string `json:"mime"`
	Data []byte `json:"data"`
}

// ToolCall is a model's wish to run a tool. Arguments is the JSON text as the model wrote it, which
// may be malformed; ID may be empty or repeated with some servers.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolResult answers the tool call CallID. Parts are texts and images.
type ToolResult struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Parts   []Part `json:"parts"`
	IsError bool   `json:"is_error,omitempty"`
}

// Text returns the texts of m, joined.
func (m Message) Text() string { return joinText(m.Parts) }

// Text returns the texts of r, joined.
func (r ToolResult) Text() string { return joinText(r.Parts) }

func joinText(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Kind == PartText {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// ToolCalls returns the tool calls of m in order.
func (m Message) ToolCalls() []ToolCall {
	var calls []ToolCall
	for _, p := range m.Parts {
		if p.Kind == PartToolCall && p.ToolCall != nil {
			calls = append(calls, *p.ToolCall)
		}
	}
	return calls
}
