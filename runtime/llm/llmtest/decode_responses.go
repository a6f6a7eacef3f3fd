package llmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// responsesBody has the fields that are read of a Responses request.
type responsesBody struct {
	Include           []string          `json:"include"`
	Input             []json.RawMessage `json:"input"`
	Instructions      string            `json:"instructions"`
	MaxOutputTokens   int               `json:"max_output_tokens"`
	Model             string            `json:"model"`
	ParallelToolCalls bool              `json:"parallel_tool_calls"`
	PromptCacheKey    string            `json:"prompt_cache_key"`
	Reasoning         struct {
		Effort          string `json:"effort"`
		Summary         string `json:"summary"`
		GenerateSummary string `json:"generate_summary"`
	} `json:"reasoning"`
	Store      *bool `json:"store"`
	Stream     bool  `json:"stream"`
	ToolChoice any   `json:"tool_choice"`
	Tools      []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"tools"`
}

var responsesUnread = []string{
	"background", "context_management", "conversation", "max_tool_calls", "metadata",
	"previous_response_id", "prompt", "prompt_cache_options", "prompt_cache_retention",
	"safety_identifier", "service_tier", "stream_options", "temperature", "text", "top_logprobs",
	"top_p", "truncation", "user",
}

// The input items of a Responses request.
type messageItem struct {
	Type    string        `json:"type"`
	ID      string        `json:"id"`
	Role    string        `json:"role"`
	Status  string        `json:"status"`
	Content []contentItem `json:"content"`
}

type contentItem struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL string `json:"image_url"`
	Detail   string `json:"detail"`
}

type callItem struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Status    string  `json:"status"`
	CallID    string  `json:"call_id"`
	Name      string  `json:"name"`
	Arguments *string `json:"arguments"`
}

type outputItem struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Status string          `json:"status"`
	CallID string          `json:"call_id"`
	Output json.RawMessage `json:"output"`
}

type reasoningItem struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Status           *string         `json:"status"`
	Summary          json.RawMessage `json:"summary"`
	Content          json.RawMessage `json:"content"`
	EncryptedContent string          `json:"encrypted_content"`
}

// decodeResponses validates and decodes a request. Known are the sent reasoning items by their ids.
func decodeResponses(req *Request, known map[string]json.RawMessage) (extras, error) {
	var b responsesBody
	if err := strict(req.Body, &b, responsesUnread...); err != nil {
		return extras{}, err
	}
	switch {
	case b.Model == "":
		return extras{}, errors.New("model is missing")
	case !b.Stream:
		return extras{}, errors.New("stream is not set")
	case b.Store == nil || *b.Store:
		return extras{}, errors.New("store is not false")
	case len(b.Input) == 0:
		return extras{}, errors.New("input is empty")
	}
	var t tools
	for _, tool := range b.Tools {
		if tool.Type != "function" || tool.Strict == nil || *tool.Strict {
			return extras{}, fmt.Errorf("the tool %q is not a function with strict false", tool.Name)
		}
		if err := t.add(tool.Name, tool.Description, tool.Parameters); err != nil {
			return extras{}, err
		}
	}
	var conv conversation
	if err := conv.input(b.Input, known); err != nil {
		return extras{}, err
	}
	if err := conv.answered(); err != nil {
		return extras{}, err
	}
	req.Request = llm.Request{
		Model: b.Model, System: b.Instructions, Messages: conv.messages, Tools: t.specs,
		ReasoningEffort: b.Reasoning.Effort, MaxOutputTokens: b.MaxOutputTokens,
		ParallelToolCalls: b.ParallelToolCalls, SessionID: b.PromptCacheKey,
		NoToolCalls: b.ToolChoice == "none",
	}
	var ex extras
	for _, inc := range b.Include {
		if inc == "reasoning.encrypted_content" {
			ex.encrypted = true
		}
	}
	return ex, nil
}

// input adds the items of the input in order.
func (c *conversation) input(items []json.RawMessage, known map[string]json.RawMessage) error {
	// alone is true after reasoning whose item has not come.
	alone := false
	for i, raw := range items {
		var head struct{ Type, Role string }
		if err := json.Unmarshal(raw, &head); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		byModel := head.Type == "function_call" || head.Type == "reasoning" || head.Type == "message" &&
			head.Role == "assistant"
		if alone && !byModel {
			return fmt.Errorf("input %d: the reasoning before it stands alone", i)
		}
		alone = head.Type == "reasoning"
		if err := c.item(head.Type, raw, known); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
	}
	if alone {
		return errors.New("reasoning stands alone at the end of the input")
	}
	return nil
}

func (c *conversation) item(
	typ string, raw json.RawMessage, known map[string]json.RawMessage,
) error {
	switch typ {
	case "message":
		var m messageItem
		if err := strict(raw, &m); err != nil {
			return err
		}
		return c.messageItem(m)
	case "function_call":
		var call callItem
		if err := strict(raw, &call); err != nil {
			return err
		}
		if call.Arguments == nil {
			return errors.New("arguments are missing")
		}
		return c.call(toolName(), call.CallID, call.Name, *call.Arguments)
	case "function_call_output":
		var out outputItem
		if err := strict(raw, &out); err != nil {
			return err
		}
		parts, err := outputParts(out.Output)
		if err != nil {
			return err
		}
		return c.result(out.CallID, parts)
	case "reasoning":
		var r reasoningItem
		if err := strict(raw, &r); err != nil {
			return err
		}
		if len(r.Summary) == 0 {
			return errors.New("the summary of reasoning is missing")
		}
		if sent := known[r.ID]; sent != nil && !sameJSON(sent, raw) {
			return fmt.Errorf("the reasoning %q was changed", r.ID)
		}
		c.opaque("openai", raw)
		return nil
	}
	return fmt.Errorf("the type %q is unknown", typ)
}

func (c *conversation) messageItem(m messageItem) error {
	role, textType := llm.RoleUser, "input_text"
	switch m.Role {
	case "user":
	case "assistant":
		role, textType = llm.RoleAssistant, "output_text"
	default:
		return fmt.Errorf("the role %q is unknown", m.Role)
	}
	parts, err := contentParts(m.Content, textType, role == llm.RoleUser)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return errors.New("a message has no content")
	}
	c.add(role, parts...)
	return nil
}

func contentParts(items []contentItem, textType string, images bool) ([]llm.Part, error) {
	var parts []llm.Part
	for _, item := range items {
		switch {
		case item.Type == textType && item.ImageURL == "":
			parts = append(parts, llm.Text(item.Text))
		case item.Type == "input_image" && images && item.Text == "":
			part, err := image(item.ImageURL)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		default:
			return nil, fmt.Errorf("content of type %q is not allowed here", item.Type)
		}
	}
	return parts, nil
}

// outputParts decodes the output of a call, a string or a list of content.
func outputParts(raw json.RawMessage) ([]llm.Part, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []llm.Part{llm.Text(text)}, nil
	}
	var items []contentItem
	if err := strict(raw, &items); err != nil {
		return nil, fmt.Errorf("output is neither a text nor a list of content: %w", err)
	}
	return contentParts(items, "input_text", true)
}

// sameJSON compares two JSON texts without white space, escapes and the order of fields.
func sameJSON(a, b []byte) bool {
	var values [2]any
	if json.Unmarshal(a, &values[0]) != nil || json.Unmarshal(b, &values[1]) != nil {
		return false
	}
	x, errX := json.Marshal(values[0])
	y, errY := json.Marshal(values[1])
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
