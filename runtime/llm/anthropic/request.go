package anthropic

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// noContent replaces a missing text where the server requires one.
const noContent = "(no content)"

// request returns the request body for req without the options.
func (c *client) request(req llm.Request) (wireRequest, error) {
	messages, err := c.messages(req.Messages)
	if err != nil {
		return wireRequest{}, err
	}
	body := wireRequest{
		Stream: true, Model: req.Model, MaxTokens: cmp.Or(int64(req.MaxOutputTokens),
			DefaultMaxTokens), Messages: messages,
	}
	if !isBlank(req.System) {
		body.System = []*wireBlock{textBlock(req.System)}
	}
	for _, t := range req.Tools {
		tool := &wireTool{Name: t.Name, Description: t.Description, InputSchema: t.Schema}
		if len(t.Schema) == 0 {
			tool.InputSchema = json.RawMessage(`{"properties":{},"type":"object"}`)
		}
		body.Tools = append(body.Tools, tool)
	}
	switch {
	case len(req.Tools) == 0:
	case req.NoToolCalls:
		body.ToolChoice = &wireToolChoice{Type: "none"}
	case !req.ParallelToolCalls:
		body.ToolChoice = &wireToolChoice{Type: "auto", DisableParallelToolUse: true}
	}
	if err := reason(&body, req); err != nil {
		return wireRequest{}, err
	}
	if _, replaced := req.Options["cache_control"]; !replaced {
		markCache(&body)
	}
	return body, nil
}

// messages returns the wire form of a conversation. The server has only the roles user and
// assistant, which alternate: the messages between two answers become one, results of calls first,
// as the server requires.
func (c *client) messages(messages []llm.Message) ([]wireMessage, error) {
	var out []wireMessage
	for i, m := range messages {
		role, blocks, err := c.blocks(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if len(blocks) == 0 {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Role != role {
			out = append(out, wireMessage{Role: role})
		}
		last := &out[len(out)-1]
		last.Content = append(last.Content, blocks...)
		if role == roleUser {
			slices.SortStableFunc(last.Content, func(a, b *wireBlock) int {
				return cmp.Compare(resultsFirst(a), resultsFirst(b))
			})
		}
	}
	return trimmed(out), nil
}

func resultsFirst(b *wireBlock) int {
	if b.Type == blockToolResult {
		return 0
	}
	return 1
}

// trimmed removes the white space at the end of a conversation whose last message is an answer,
// which the model continues. The server rejects it only at that end.
func trimmed(messages []wireMessage) []wireMessage {
	n := len(messages)
	if n == 0 || messages[n-1].Role != roleAssistant {
		return messages
	}
	content := messages[n-1].Content
	last := content[len(content)-1]
	last.Text = strings.TrimRight(last.Text, " \t\r\n")
	return messages
}

// blocks returns the role and the content of m, which is empty if the server accepts nothing of m.
func (c *client) blocks(m llm.Message) (string, []*wireBlock, error) {
	switch m.Role {
	case llm.RoleAssistant:
		blocks, err := c.answer(m)
		return roleAssistant, blocks, err
	case llm.RoleTool:
		var blocks []*wireBlock
		for _, p := range m.Parts {
			if p.Kind != llm.PartToolResult || p.ToolResult == nil {
				return "", nil, exchange.UnsendablePart(p, m.Role)
			}
			block, err := result(*p.ToolResult)
			if err != nil {
				return "", nil, err
			}
			blocks = append(blocks, block)
		}
		return roleUser, blocks, nil
	case llm.RoleUser:
		var blocks []*wireBlock
		for _, p := range m.Parts {
			switch {
			case p.Kind == llm.PartText:
				if !isBlank(p.Text) {
					blocks = append(blocks, textBlock(p.Text))
				}
			case p.Kind == llm.PartImage && p.Image != nil:
				blocks = append(blocks, imageBlock(*p.Image))
			default:
				return "", nil, exchange.UnsendablePart(p, m.Role)
			}
		}
		if len(blocks) == 0 {
			blocks = append(blocks, textBlock(noContent))
		}
		return roleUser, blocks, nil
	}
	return "", nil, exchange.UnknownRole(m.Role)
}

// answer returns the content of a message of the model, in its order. The server rejects thinking
// at the end of a message, where an answer was cut.
func (c *client) answer(m llm.Message) ([]*wireBlock, error) {
	var blocks []*wireBlock
	for _, p := range m.Parts {
		switch {
		case p.Kind == llm.PartReasoning:
			if r := p.Reasoning; r != nil && r.Provider == c.Provider && len(r.Opaque) > 0 {
				blocks = append(blocks, &wireBlock{Type: blockThinking, raw: r.Opaque})
			}
		case p.Kind == llm.PartText:
			// The server rejects a text without a visible character, though models write such texts.
			if !isBlank(p.Text) {
				blocks = append(blocks, textBlock(p.Text))
			}
		case p.Kind == llm.PartToolCall && p.ToolCall != nil:
			call := p.ToolCall
			blocks = append(blocks, &wireBlock{
				Type: blockToolUse, ID: callID(call.ID), Name: exchange.ToolName(call.Name),
				Input: input(call.Arguments),
			})
		default:
			return nil, exchange.UnsendablePart(p, m.Role)
		}
	}
	for len(blocks) > 0 && isThinking(blocks[len(blocks)-1]) {
		blocks = blocks[:len(blocks)-1]
	}
	return blocks, nil
}

func isThinking(b *wireBlock) bool { return b.Type == blockThinking }

// result returns the block of a result. Its content may be empty unless it is an error.
func result(r llm.ToolResult) (*wireBlock, error) {
	block := &wireBlock{Type: blockToolResult, ToolUseID: callID(r.CallID)}
	for _, p := range r.Parts {
		switch {
		case p.Kind == llm.PartText:
			if !isBlank(p.Text) {
				block.Content = append(block.Content, textBlock(p.Text))
			}
		case p.Kind == llm.PartImage && p.Image != nil:
			block.Content = append(block.Content, imageBlock(*p.Image))
		default:
			return nil, fmt.Errorf("result of %s: %w", r.Name, exchange.UnsendablePart(p, llm.RoleTool))
		}
	}
	if r.IsError {
		block.IsError = true
		if len(block.Content) == 0 {
			block.Content = []*wireBlock{textBlock(noContent)}
		}
	}
	return block, nil
}

// input returns the arguments of a call as the object that the server requires. Other arguments go
// into an object under the name that Anthropic defines for them, so that the model sees the
// text that it wrote.
func input(arguments string) json.RawMessage {
	return exchange.ArgumentsObject(arguments, "INVALID_JSON")
}

// isBlank reports whether s has no visible character.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// callID returns an ID that the server accepts for the ID of any provider. Different IDs stay
// different: the server rejects two calls of one ID.
func callID(id string) string {
	fit := exchange.Word(id)
	if fit == id {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return fit + "_" + hex.EncodeToString(sum[:4])
}
