package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// chatBody has the fields that are read of a Chat Completions request.
type chatBody struct {
	Model               string        `json:"model"`
	Messages            []chatMessage `json:"messages"`
	Stream              bool          `json:"stream"`
	MaxCompletionTokens int           `json:"max_completion_tokens"`
	MaxTokens           int           `json:"max_tokens"`
	ReasoningEffort     string        `json:"reasoning_effort"`
	ParallelToolCalls   *bool         `json:"parallel_tool_calls"`
	PromptCacheKey      string        `json:"prompt_cache_key"`
	ToolChoice          any           `json:"tool_choice"`
	StreamOptions       struct {
		IncludeUsage       bool  `json:"include_usage"`
		IncludeObfuscation *bool `json:"include_obfuscation"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
			Strict      *bool           `json:"strict"`
		} `json:"function"`
	} `json:"tools"`
}

var chatUnread = []string{
	"frequency_penalty", "logit_bias", "logprobs", "metadata", "n", "presence_penalty",
	"response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "temperature",
	"top_logprobs", "top_p", "user", "verbosity",
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	Refusal    string          `json:"refusal"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type chatPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	ImageURL *struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
}

// decodeChat validates and decodes a request.
func decodeChat(req *Request, _ map[string]json.RawMessage) (extras, error) {
	var b chatBody
	if err := strict(req.Body, &b, chatUnread...); err != nil {
		return extras{}, err
	}
	switch {
	case b.Model == "":
		return extras{}, errors.New("model is missing")
	case !b.Stream:
		return extras{}, errors.New("stream is not set")
	case len(b.Messages) == 0:
		return extras{}, errors.New("messages are empty")
	}
	var t tools
	for _, tool := range b.Tools {
		if tool.Type != "function" || tool.Function.Strict != nil && *tool.Function.Strict {
			return extras{}, fmt.Errorf("the tool %q is not a function with strict false",
				tool.Function.Name)
		}
		if err := t.add(tool.Function.Name, tool.Function.Description,
			tool.Function.Parameters); err != nil {
			return extras{}, err
		}
	}
	var conv conversation
	system := ""
	for i, m := range b.Messages {
		if m.Role == "system" && i == 0 {
			if err := json.Unmarshal(m.Content, &system); err != nil {
				return extras{}, errors.New("the system message is not a text")
			}
			continue
		}
		if err := conv.chat(m); err != nil {
			return extras{}, fmt.Errorf("message %d: %w", i, err)
		}
	}
	if err := conv.answered(); err != nil {
		return extras{}, err
	}
	if len(conv.messages) == 0 {
		return extras{}, errors.New("the only message is a system message")
	}
	req.Request = llm.Request{
		Model: b.Model, System: system, Messages: conv.messages, Tools: t.specs,
		ReasoningEffort: b.ReasoningEffort,
		MaxOutputTokens: b.MaxCompletionTokens, ParallelToolCalls: b.ParallelToolCalls == nil ||
			*b.ParallelToolCalls,
		SessionID: b.PromptCacheKey, NoToolCalls: b.ToolChoice == "none",
	}
	return extras{usage: b.StreamOptions.IncludeUsage}, nil
}

// chat adds a message. The results of calls must follow them directly.
func (c *conversation) chat(m chatMessage) error {
	parts, err := chatParts(m)
	if err != nil {
		return err
	}
	if m.Role != "tool" {
		if err := c.answered(); err != nil {
			return err
		}
		if m.ToolCallID != "" {
			return errors.New("tool_call_id is only for role tool")
		}
	}
	if m.Role != "assistant" && len(m.ToolCalls) > 0 {
		return errors.New("tool_calls are only for role assistant")
	}
	switch m.Role {
	case "user":
		if len(parts) == 0 {
			return errors.New("content is missing")
		}
		c.add(llm.RoleUser, parts...)
	case "tool":
		if len(parts) == 0 {
			return errors.New("content is missing")
		}
		return c.result(m.ToolCallID, parts)
	case "assistant":
		if len(parts)+len(m.ToolCalls) == 0 {
			return errors.New("the message has neither content nor a tool call")
		}
		if len(parts) > 0 {
			c.add(llm.RoleAssistant, parts...)
		}
		for _, call := range m.ToolCalls {
			if call.Type != "function" || call.Function.Arguments == nil {
				return errors.New("a tool call is not a function with arguments")
			}
			if err := c.call(toolName(), call.ID, call.Function.Name, *call.Function.Arguments); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("the role %q is not allowed here", m.Role)
	}
	return nil
}

// chatParts decodes the content of a message, a string or a list of parts; none if it is missing.
func chatParts(m chatMessage) ([]llm.Part, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []llm.Part{llm.Text(text)}, nil
	}
	var items []chatPart
	if err := strict(m.Content, &items); err != nil {
		return nil, fmt.Errorf("content is neither a text nor a list of parts: %w", err)
	}
	var parts []llm.Part
	for _, item := range items {
		switch {
		case item.Type == "text" && item.Text != nil && item.ImageURL == nil:
			parts = append(parts, llm.Text(*item.Text))
		case item.Type == "image_url" && item.ImageURL != nil && item.Text == nil && m.Role == "user":
			part, err := image(item.ImageURL.URL)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		default:
			return nil, fmt.Errorf("a part of type %q is not allowed here", item.Type)
		}
	}
	return parts, nil
}
