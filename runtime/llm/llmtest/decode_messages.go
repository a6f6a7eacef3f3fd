package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Messages is the API name of Anthropic's interface.
const Messages = "messages"

// messagesBody has the fields that are read of a Messages request.
type messagesBody struct {
	CacheControl *cacheMark      `json:"cache_control"`
	MaxTokens    int             `json:"max_tokens"`
	Messages     []messagesTurn  `json:"messages"`
	Model        string          `json:"model"`
	Stream       bool            `json:"stream"`
	System       json.RawMessage `json:"system"`
	OutputConfig struct {
		Effort string          `json:"effort"`
		Format json.RawMessage `json:"format"`
	} `json:"output_config"`
	Thinking *struct {
		Type         string          `json:"type"`
		BudgetTokens *int            `json:"budget_tokens"`
		Display      string          `json:"display"`
		BlockBinding json.RawMessage `json:"block_binding"`
	} `json:"thinking"`
	ToolChoice struct {
		Type            string `json:"type"`
		Name            string `json:"name"`
		DisableParallel bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	Tools []struct {
		Type         string          `json:"type"`
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"input_schema"`
		Strict       *bool           `json:"strict"`
		CacheControl *cacheMark      `json:"cache_control"`
	} `json:"tools"`
}

var messagesUnread = []string{
	"container", "context_management", "diagnostics", "inference_geo", "mcp_servers", "metadata",
	"service_tier", "speed", "stop_sequences", "temperature", "top_k", "top_p",
}

type messagesTurn struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type cacheMark struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

// The blocks of content of a Messages request.
type textBlock struct {
	Type         string     `json:"type"`
	Text         string     `json:"text"`
	CacheControl *cacheMark `json:"cache_control"`
}

type imageBlock struct {
	Type   string `json:"type"`
	Source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
	CacheControl *cacheMark `json:"cache_control"`
}

type toolUseBlock struct {
	Type         string          `json:"type"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	CacheControl *cacheMark      `json:"cache_control"`
}

type toolResultBlock struct {
	Type         string          `json:"type"`
	ToolUseID    string          `json:"tool_use_id"`
	IsError      bool            `json:"is_error"`
	Content      json.RawMessage `json:"content"`
	CacheControl *cacheMark      `json:"cache_control"`
}

type thinkingBlock struct {
	Type      string  `json:"type"`
	Thinking  *string `json:"thinking"`
	Signature string  `json:"signature"`
}

type redactedBlock struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

var toolUseID = lazyregexp.New(`^[a-zA-Z0-9_-]+$`)

// messagesReader decodes the messages of a request.
type messagesReader struct {
	conversation
	// known is the thinking before a call, by the ID of the call.
	known map[string]json.RawMessage
	// marks is the number of cache marks.
	marks int
	// bare is true if the last answer has calls and does not start with thinking.
	bare bool
}

// decodeMessages validates and decodes a request. Known is the sent thinking by the calls after it.
func decodeMessages(req *Request, known map[string]json.RawMessage) (extras, error) {
	var b messagesBody
	if err := strict(req.Body, &b, messagesUnread...); err != nil {
		return extras{}, err
	}
	if v := req.Header.Get("anthropic-version"); v != "2023-06-01" {
		return extras{}, fmt.Errorf("the header anthropic-version is %q", v)
	}
	if err := b.check(); err != nil {
		return extras{}, err
	}
	r := &messagesReader{known: known}
	system, err := r.system(b.System)
	if err != nil {
		return extras{}, err
	}
	var t tools
	for _, tool := range b.Tools {
		if tool.Type != "" && tool.Type != "custom" {
			return extras{}, fmt.Errorf("the tool %q is of type %q", tool.Name, tool.Type)
		}
		if err := t.add(tool.Name, tool.Description, tool.InputSchema); err != nil {
			return extras{}, err
		}
		if err := r.mark(tool.CacheControl); err != nil {
			return extras{}, err
		}
	}
	if err := r.turns(b.Messages); err != nil {
		return extras{}, err
	}
	if err := r.mark(b.CacheControl); err != nil {
		return extras{}, err
	}
	if b.Thinking != nil && b.Thinking.Type == "enabled" && r.bare {
		return extras{}, errors.New("thinking is enabled, and the last answer with calls does not " +
			"begin with it")
	}
	req.Request = llm.Request{
		Model: b.Model, System: system, Messages: r.messages, Tools: t.specs,
		ReasoningEffort: b.OutputConfig.Effort,
		MaxOutputTokens: b.MaxTokens, ParallelToolCalls: !b.ToolChoice.DisableParallel,
		NoToolCalls: b.ToolChoice.Type == "none",
	}
	return extras{}, nil
}

// check validates the fields beside the messages.
func (b *messagesBody) check() error {
	switch {
	case b.Model == "":
		return errors.New("model is missing")
	case !b.Stream:
		return errors.New("stream is not set")
	case b.MaxTokens < 1:
		return errors.New("max_tokens is missing")
	case len(b.Messages) == 0:
		return errors.New("messages are empty")
	case b.ToolChoice.Type != "" && len(b.Tools) == 0:
		return errors.New("tool_choice without tools")
	case !slices.Contains([]string{"", "auto", "any", "tool", "none"}, b.ToolChoice.Type):
		return fmt.Errorf("tool_choice is of type %q", b.ToolChoice.Type)
	case !slices.Contains([]string{"", "low", "medium", "high", "xhigh", "max"},
		b.OutputConfig.Effort):
		return fmt.Errorf("the effort %q is unknown", b.OutputConfig.Effort)
	case b.Thinking == nil:
		return nil
	case !slices.Contains([]string{"", "summarized", "omitted"}, b.Thinking.Display):
		return fmt.Errorf("the display %q is unknown", b.Thinking.Display)
	}
	budget := b.Thinking.BudgetTokens
	switch b.Thinking.Type {
	case "enabled":
		if budget == nil || *budget < 1024 || *budget >= b.MaxTokens {
			return errors.New("budget_tokens are not at least 1024 and less than max_tokens")
		}
		return nil
	case "adaptive":
		if budget == nil {
			return nil
		}
	case "disabled", "between_tools":
		if budget == nil && b.Thinking.Display == "" {
			return nil
		}
	}
	return fmt.Errorf("thinking of type %q is unknown or has a field too many", b.Thinking.Type)
}

// mark counts a cache mark, of which a request may have four.
func (r *messagesReader) mark(m *cacheMark) error {
	if m == nil {
		return nil
	}
	if m.Type != "ephemeral" || m.TTL != "" && m.TTL != "5m" && m.TTL != "1h" {
		return errors.New("a cache_control is not ephemeral for 5m or 1h")
	}
	if r.marks++; r.marks > 4 {
		return errors.New("more than 4 blocks have cache_control")
	}
	return nil
}

// system decodes the system prompt, a text or a list of texts.
func (r *messagesReader) system(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	blocks, err := blocksOf(raw)
	if err != nil {
		return "", fmt.Errorf("system is %w", err)
	}
	var texts []string
	for _, raw := range blocks {
		part, err := r.content(raw)
		if err != nil {
			return "", fmt.Errorf("system: %w", err)
		}
		texts = append(texts, part.Text)
	}
	return strings.Join(texts, ""), nil
}

// blocksOf decodes content, a list of blocks or a text instead.
func blocksOf(raw json.RawMessage) ([]json.RawMessage, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []json.RawMessage{mustJSON(object{"type": "text", "text": text})}, nil
	}
	var blocks []json.RawMessage
	if json.Unmarshal(raw, &blocks) != nil {
		return nil, errors.New("neither a text nor a list of blocks")
	}
	return blocks, nil
}

// turns adds the messages in order. The results of all calls of a message stand first in the next
// one.
func (r *messagesReader) turns(turns []messagesTurn) error {
	for i, turn := range turns {
		blocks, err := blocksOf(turn.Content)
		if err == nil && len(blocks) == 0 {
			err = errors.New("empty")
		}
		if err != nil {
			return fmt.Errorf("message %d: content is %w", i, err)
		}
		switch {
		case turn.Role != "user" && turn.Role != "assistant":
			err = fmt.Errorf("the role %q is unknown", turn.Role)
		case turn.Role == "assistant" && i == 0:
			err = errors.New("the first message is not the user's")
		case turn.Role == "assistant" && i == len(turns)-1:
			err = errors.New("the conversation does not end with a user message")
		case turn.Role == "assistant":
			err = r.assistant(blocks)
		default:
			if err = r.user(blocks); err == nil {
				err = r.answered()
			}
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// user decodes a message of the user. Each text starts a separate message: clients join several
// into one.
func (r *messagesReader) user(blocks []json.RawMessage) error {
	results := true
	for n, raw := range blocks {
		if typeOf(raw) == "tool_result" {
			if !results {
				return errors.New("a tool_result does not stand first")
			}
			if err := r.toolResult(raw); err != nil {
				return fmt.Errorf("block %d: %w", n, err)
			}
			continue
		}
		part, err := r.content(raw)
		if err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
		if last := len(r.messages) - 1; part.Kind == llm.PartImage && n > 0 && !results {
			r.messages[last].Parts = append(r.messages[last].Parts, part)
		} else {
			r.add(llm.RoleUser, part)
		}
		results = false
	}
	return nil
}

func typeOf(raw json.RawMessage) string {
	var head struct{ Type string }
	// Invalid JSON has no type.
	_ = json.Unmarshal(raw, &head)
	return head.Type
}

// content decodes a text or an image.
func (r *messagesReader) content(raw json.RawMessage) (llm.Part, error) {
	switch typ := typeOf(raw); typ {
	case "text":
		var b textBlock
		if err := strict(raw, &b); err != nil {
			return llm.Part{}, err
		}
		if strings.TrimSpace(b.Text) == "" {
			return llm.Part{}, errors.New("a text has no visible character")
		}
		return llm.Text(b.Text), r.mark(b.CacheControl)
	case "image":
		var b imageBlock
		if err := strict(raw, &b); err != nil {
			return llm.Part{}, err
		}
		if !slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"},
			b.Source.MediaType) {
			return llm.Part{}, fmt.Errorf("an image is of type %q", b.Source.MediaType)
		}
		data, err := base64.StdEncoding.DecodeString(b.Source.Data)
		if err != nil || len(data) == 0 || b.Source.Type != "base64" {
			return llm.Part{}, errors.New("the data of an image is not base64")
		}
		return llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: b.Source.MediaType, Data: data}},
			r.mark(b.CacheControl)
	default:
		return llm.Part{}, fmt.Errorf("a block of type %q is not allowed here", typ)
	}
}

func (r *messagesReader) toolResult(raw json.RawMessage) error {
	var b toolResultBlock
	if err := strict(raw, &b); err != nil {
		return err
	}
	var parts []llm.Part
	if len(b.Content) > 0 {
		blocks, err := blocksOf(b.Content)
		if err != nil {
			return fmt.Errorf("the content of a result is %w", err)
		}
		for _, raw := range blocks {
			part, err := r.content(raw)
			if err != nil {
				return err
			}
			parts = append(parts, part)
		}
	}
	if b.IsError && len(parts) == 0 {
		return errors.New("the result of an error is empty")
	}
	if err := r.result(b.ToolUseID, parts); err != nil {
		return err
	}
	last := r.messages[len(r.messages)-1].Parts
	last[len(last)-1].ToolResult.IsError = b.IsError
	return r.mark(b.CacheControl)
}

// assistant decodes a message of the model.
func (r *messagesReader) assistant(blocks []json.RawMessage) error {
	var thoughts []json.RawMessage
	isCall := func(raw json.RawMessage) bool { return typeOf(raw) == "tool_use" }
	r.bare = slices.ContainsFunc(blocks, isCall) && !strings.HasSuffix(typeOf(blocks[0]), "thinking")
	for n, raw := range blocks {
		var err error
		switch typ := typeOf(raw); typ {
		case "thinking", "redacted_thinking":
			if n == len(blocks)-1 {
				return errors.New("the last block is thinking")
			}
			thoughts = append(thoughts, raw)
			err = r.thinking(typ, raw)
		case "tool_use":
			err = r.toolUse(raw, thoughts)
		default:
			var part llm.Part
			if part, err = r.content(raw); err == nil && part.Kind != llm.PartText {
				err = errors.New("an image is not allowed here")
			}
			r.add(llm.RoleAssistant, part)
		}
		if err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
	}
	return nil
}

func (r *messagesReader) thinking(typ string, raw json.RawMessage) error {
	if typ == "redacted_thinking" {
		var b redactedBlock
		if err := strict(raw, &b); err != nil {
			return err
		}
		if b.Data == "" {
			return errors.New("redacted thinking has no data")
		}
	} else {
		var b thinkingBlock
		if err := strict(raw, &b); err != nil {
			return err
		}
		if b.Thinking == nil || b.Signature != signature(*b.Thinking) {
			return errors.New("invalid signature in a thinking block")
		}
	}
	r.opaque("anthropic", raw)
	return nil
}

// toolUse decodes a call, after the thinking that came with it.
func (r *messagesReader) toolUse(raw json.RawMessage, thoughts []json.RawMessage) error {
	var b toolUseBlock
	if err := strict(raw, &b); err != nil {
		return err
	}
	if !toolUseID().MatchString(b.ID) {
		return fmt.Errorf("%q is not the ID of a call", b.ID)
	}
	if r.names[b.ID] != "" {
		return fmt.Errorf("two calls have the ID %q", b.ID)
	}
	if want := r.known[b.ID]; want != nil {
		came := func(raw json.RawMessage) bool { return sameJSON(raw, want) }
		if !slices.ContainsFunc(thoughts, came) {
			return fmt.Errorf("the thinking before the call %q is missing", b.ID)
		}
	}
	args, err := argumentsOf(b.Input)
	if err != nil {
		return err
	}
	if err := r.call(toolName(), b.ID, b.Name, args); err != nil {
		return err
	}
	return r.mark(b.CacheControl)
}

// argumentsOf returns the arguments as the model wrote them. Arguments that are not an object come
// back in one.
func argumentsOf(input json.RawMessage) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil || fields == nil {
		return "", errors.New("input is not an object")
	}
	var wrong string
	raw, ok := fields["INVALID_JSON"]
	if ok && len(fields) == 1 && json.Unmarshal(raw, &wrong) == nil {
		return wrong, nil
	}
	return htmlEscape().ReplaceAllStringFunc(string(input), func(s string) string {
		if c, ok := map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"}[s]; ok {
			return c
		}
		return s
	}), nil
}

// htmlEscape finds the escapes of JSON, to undo those that Go adds.
var htmlEscape = lazyregexp.New(`\\(?:u003c|u003e|u0026|.)`)
