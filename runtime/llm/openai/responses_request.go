package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// noToolCalls is the tool_choice of a request whose answer must have no tool calls.
const noToolCalls = "none"

// functionCallItem is a call by the model, as an input item.
type functionCallItem struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (c *client) responsesRequest(req llm.Request) (goopenai.CreateResponseRequest, error) {
	input, err := c.responsesInput(req.Messages)
	if err != nil {
		return goopenai.CreateResponseRequest{}, err
	}
	store := false
	body := goopenai.CreateResponseRequest{
		Model: req.Model, Instructions: req.System, Input: input, MaxOutputTokens: req.MaxOutputTokens,
		PromptCacheKey: req.SessionID, Store: &store,
	}
	if canReason(req.Model) {
		body.Include = []goopenai.ResponseInclude{goopenai.ResponseIncludeReasoningEncryptedContent}
	}
	if req.ReasoningEffort != "" {
		body.Reasoning = &goopenai.ResponseReasoning{Effort: req.ReasoningEffort}
	}
	if len(req.Tools) > 0 {
		body.ParallelToolCalls = &req.ParallelToolCalls
		if req.NoToolCalls {
			body.ToolChoice = noToolCalls
		}
	}
	for _, t := range req.Tools {
		// The library omits "strict" when false, and the default of the server is true.
		body.Tools = append(body.Tools, goopenai.Tool{
			Type: goopenai.ToolTypeFunction,
			Parameters: map[string]any{
				"name": t.Name, "description": t.Description, "parameters": schemaOf(t), "strict": false,
			},
		})
	}
	return body, nil
}

// canReason reports whether a model accepts the request for encrypted reasoning. Older models of
// OpenAI reject it.
func canReason(model string) bool {
	for _, prefix := range []string{"gpt-3.5", "gpt-4", "chatgpt-"} {
		if strings.HasPrefix(model, prefix) {
			return false
		}
	}
	return true
}

func schemaOf(t llm.ToolSpec) json.RawMessage {
	if len(t.Schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return t.Schema
}

// responsesInput returns the input items for messages.
func (c *client) responsesInput(messages []llm.Message) ([]any, error) {
	items := []any{}
	for i, m := range messages {
		more, err := c.messageItems(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		items = append(items, more...)
	}
	return items, nil
}

// messageItems returns the input items for m. The server rejects an item of reasoning without the
// item that follows it in the message.
func (c *client) messageItems(m llm.Message) ([]any, error) {
	var items, content, reasoning []any
	flush := func() {
		if len(content) > 0 {
			items = append(items, goopenai.ResponseInputMessage{
				Type: "message", Role: string(m.Role),
				Content: content,
			})
			content = nil
		}
	}
	for _, p := range m.Parts {
		if p.Kind == llm.PartReasoning {
			if r := p.Reasoning; r != nil && r.Provider == c.Provider && len(r.Opaque) > 0 {
				flush()
				reasoning = append(reasoning, r.Opaque)
			}
			continue
		}
		items, reasoning = append(items, reasoning...), nil
		switch {
		case p.Kind == llm.PartToolCall && p.ToolCall != nil:
			flush()
			items = append(items, functionCallItem{
				Type: "function_call", CallID: p.ToolCall.ID, Name: exchange.ToolName(p.ToolCall.Name),
				Arguments: p.ToolCall.Arguments,
			})
		case p.Kind == llm.PartToolResult && p.ToolResult != nil:
			flush()
			output, err := resultOutput(*p.ToolResult)
			if err != nil {
				return nil, err
			}
			items = append(items, goopenai.ResponseFunctionCallOutput{
				Type: "function_call_output", CallID: p.ToolResult.CallID, Output: output,
			})
		default:
			item, err := contentItem(m.Role, p)
			if err != nil {
				return nil, err
			}
			content = append(content, item)
		}
	}
	flush()
	return items, nil
}

// resultOutput returns a text, or a list of items for a result with images.
func resultOutput(r llm.ToolResult) (any, error) {
	images := false
	var list []any
	for _, p := range r.Parts {
		item, err := contentItem(llm.RoleUser, p)
		if err != nil {
			return nil, fmt.Errorf("result of %s: %w", r.Name, err)
		}
		list = append(list, item)
		images = images || p.Kind == llm.PartImage
	}
	if images {
		return list, nil
	}
	return r.Text(), nil
}

// contentItem returns a text or an image as a part of a message of role.
func contentItem(role llm.Role, p llm.Part) (any, error) {
	switch {
	case p.Kind == llm.PartText && role == llm.RoleAssistant:
		return goopenai.ResponseInputText{Type: "output_text", Text: p.Text}, nil
	case p.Kind == llm.PartText && role == llm.RoleUser:
		return goopenai.ResponseInputText{Type: "input_text", Text: p.Text}, nil
	case p.Kind == llm.PartImage && p.Image != nil && role == llm.RoleUser:
		return goopenai.ResponseInputImage{Type: "input_image", ImageURL: dataURL(*p.Image)}, nil
	}
	return nil, exchange.UnsendablePart(p, role)
}

func dataURL(img llm.Image) string {
	return "data:" + img.MIME + ";base64," + base64.StdEncoding.EncodeToString(img.Data)
}
