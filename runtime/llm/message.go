package llm

import (
	"encoding/json"
	"strings"
)

// Role is the author of a message.
type Role string

// Roles of messages. Instructions of the host are Request.System, not a message.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	// RoleTool holds results of tool calls.
	RoleTool Role = "tool"
)

// Message is one message of a conversation. Messages are values: nobody changes the parts of a
// message that others may hold.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// PartKind is the field of a Part that is set.
type PartKind string

// Kinds of parts.
const (
	PartText       PartKind = "text"
	PartReasoning  PartKind = "reasoning"
	PartImage      PartKind = "image"
	PartToolCall   PartKind = "tool_call"
	PartToolResult PartKind = "tool_result"
)

// Part is a piece of a message. Kind names the only other field that is set.
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

// Reasoning is the reasoning of a model. Opaque is its form of the provider, which goes back to the
// same provider unchanged in later requests; Provider names that provider.
type Reasoning struct {
	Text     string          `json:"text,omitempty"`
	Provider string          `json:"provider,omitempty"`
	Opaque   json.RawMessage `json:"opaque,omitempty"`
}

// Image is an image with its MIME type, such as "image/png".
type Image struct {
	MIME string `json:"mime"`
	Data []byte `json:"data"`
}

// ToolCall is the call of a tool by a model. Arguments is the JSON text as the model wrote it,
// which may be malformed; some servers leave ID empty or repeat it.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Canonical returns the arguments with their keys in order and without white space. Arguments that
// are no JSON stay as they are.
func (c ToolCall) Canonical() string {
	dec := json.NewDecoder(strings.NewReader(c.Arguments))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		return c.Arguments
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return c.Arguments
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ToolResult is the result of the tool call CallID. Parts are texts and images.
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
