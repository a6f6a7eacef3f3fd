package anthropic

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// noContent stands where the server wants a text and there is none.
const noContent = "(no content)"

// request returns the request body for req, but for the options.
func (c *client) request(req llm.Request) (sdk.MessageNewParams, error) {
	messages, err := c.messages(req.Messages)
	if err != nil {
		return sdk.MessageNewParams{}, err
	}
	body := sdk.MessageNewParams{
		Model: req.Model, MaxTokens: cmp.Or(int64(req.MaxOutputTokens), DefaultMaxTokens), Messages: messages,
	}
	if !isBlank(req.System) {
		body.System = []sdk.TextBlockParam{{Text: req.System}}
	}
	for _, t := range req.Tools {
		tool := sdk.ToolParam{Name: t.Name, InputSchema: schemaOf(t)}
		if t.Description != "" {
			tool.Description = param.NewOpt(t.Description)
		}
		body.Tools = append(body.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	if len(req.Tools) > 0 && !req.ParallelToolCalls {
		body.ToolChoice.OfAuto = &sdk.ToolChoiceAutoParam{DisableParallelToolUse: param.NewOpt(true)}
	}
	if err := reason(&body, req); err != nil {
		return sdk.MessageNewParams{}, err
	}
	if _, own := req.Options["cache_control"]; !own {
		markCache(&body)
	}
	return body, nil
}

func schemaOf(t llm.ToolSpec) sdk.ToolInputSchemaParam {
	if len(t.Schema) == 0 {
		return sdk.ToolInputSchemaParam{Properties: map[string]any{}}
	}
	return param.Override[sdk.ToolInputSchemaParam](t.Schema)
}

// messages returns what is sent of a conversation. The server knows users and assistants only, who take turns: all that
// comes between two answers makes one message, results of calls first, as the server wants them.
func (c *client) messages(messages []llm.Message) ([]sdk.MessageParam, error) {
	var out []sdk.MessageParam
	for i, m := range messages {
		role, blocks, err := c.blocks(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if len(blocks) == 0 {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Role != role {
			out = append(out, sdk.MessageParam{Role: role})
		}
		last := &out[len(out)-1]
		last.Content = append(last.Content, blocks...)
		if role == sdk.MessageParamRoleUser {
			slices.SortStableFunc(last.Content, func(a, b sdk.ContentBlockParamUnion) int {
				return cmp.Compare(resultsFirst(a), resultsFirst(b))
			})
		}
	}
	return trimmed(out), nil
}

func resultsFirst(b sdk.ContentBlockParamUnion) int {
	if b.OfToolResult != nil {
		return 0
	}
	return 1
}

// trimmed takes the white space off the end of a conversation that ends with an answer, which the model is to go on with.
// The server refuses it there, and only there.
func trimmed(messages []sdk.MessageParam) []sdk.MessageParam {
	n := len(messages)
	if n == 0 || messages[n-1].Role != sdk.MessageParamRoleAssistant {
		return messages
	}
	content := messages[n-1].Content
	if text := content[len(content)-1].OfText; text != nil {
		text.Text = strings.TrimRight(text.Text, " \t\r\n")
	}
	return messages
}

// blocks returns the role and the content of m, which is empty if nothing of it can be sent.
func (c *client) blocks(m llm.Message) (sdk.MessageParamRole, []sdk.ContentBlockParamUnion, error) {
	switch m.Role {
	case llm.RoleAssistant:
		blocks, err := c.answer(m)
		return sdk.MessageParamRoleAssistant, blocks, err
	case llm.RoleTool:
		var blocks []sdk.ContentBlockParamUnion
		for _, p := range m.Parts {
			if p.Kind != llm.PartToolResult || p.ToolResult == nil {
				return "", nil, unfit(p, m.Role)
			}
			block, err := result(*p.ToolResult)
			if err != nil {
				return "", nil, err
			}
			blocks = append(blocks, sdk.ContentBlockParamUnion{OfToolResult: block})
		}
		return sdk.MessageParamRoleUser, blocks, nil
	case llm.RoleUser:
		var blocks []sdk.ContentBlockParamUnion
		for _, p := range m.Parts {
			switch {
			case p.Kind == llm.PartText:
				if !isBlank(p.Text) {
					blocks = append(blocks, sdk.NewTextBlock(p.Text))
				}
			case p.Kind == llm.PartImage && p.Image != nil:
				blocks = append(blocks, sdk.ContentBlockParamUnion{OfImage: image(*p.Image)})
			default:
				return "", nil, unfit(p, m.Role)
			}
		}
		if len(blocks) == 0 {
			blocks = append(blocks, sdk.NewTextBlock(noContent))
		}
		return sdk.MessageParamRoleUser, blocks, nil
	}
	return "", nil, fmt.Errorf("the role %q is unknown", m.Role)
}

func unfit(p llm.Part, role llm.Role) error {
	return fmt.Errorf("a part of kind %q cannot be sent in a message of role %q", p.Kind, role)
}

// answer returns the content of a message of the model, in the order in which it came. The server refuses thinking at the
// end of a message, where an answer has been cut.
func (c *client) answer(m llm.Message) ([]sdk.ContentBlockParamUnion, error) {
	var blocks []sdk.ContentBlockParamUnion
	for _, p := range m.Parts {
		switch {
		case p.Kind == llm.PartReasoning:
			if r := p.Reasoning; r != nil && r.Provider == c.provider && len(r.Opaque) > 0 {
				block := param.Override[sdk.ThinkingBlockParam](r.Opaque)
				blocks = append(blocks, sdk.ContentBlockParamUnion{OfThinking: &block})
			}
		case p.Kind == llm.PartText:
			// The server refuses a text without a visible character, though models write them.
			if !isBlank(p.Text) {
				blocks = append(blocks, sdk.NewTextBlock(p.Text))
			}
		case p.Kind == llm.PartToolCall && p.ToolCall != nil:
			call := p.ToolCall
			blocks = append(blocks, sdk.NewToolUseBlock(callID(call.ID), input(call.Arguments), toolName(call.Name)))
		default:
			return nil, unfit(p, m.Role)
		}
	}
	for len(blocks) > 0 && isThinking(blocks[len(blocks)-1]) {
		blocks = blocks[:len(blocks)-1]
	}
	return blocks, nil
}

func isThinking(b sdk.ContentBlockParamUnion) bool { return b.OfThinking != nil }

// result returns the block of a result, whose content may be empty unless it is an error.
func result(r llm.ToolResult) (*sdk.ToolResultBlockParam, error) {
	block := &sdk.ToolResultBlockParam{ToolUseID: callID(r.CallID)}
	for _, p := range r.Parts {
		switch {
		case p.Kind == llm.PartText:
			if !isBlank(p.Text) {
				block.Content = append(block.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: p.Text}})
			}
		case p.Kind == llm.PartImage && p.Image != nil:
			block.Content = append(block.Content, sdk.ToolResultBlockParamContentUnion{OfImage: image(*p.Image)})
		default:
			return nil, fmt.Errorf("result of %s: %w", r.Name, unfit(p, llm.RoleTool))
		}
	}
	if r.IsError {
		block.IsError = param.NewOpt(true)
		if len(block.Content) == 0 {
			block.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: noContent}}}
		}
	}
	return block, nil
}

func image(img llm.Image) *sdk.ImageBlockParam {
	return &sdk.ImageBlockParam{Source: sdk.ImageBlockParamSourceUnion{OfBase64: &sdk.Base64ImageSourceParam{
		MediaType: sdk.Base64ImageSourceMediaType(img.MIME), Data: base64.StdEncoding.EncodeToString(img.Data),
	}}}
}

// input returns the arguments of a call as the object that the server wants. What is none goes into one, under the name
// that Anthropic gives for it, so that the model sees what it wrote.
func input(arguments string) any {
	if object, ok := exchange.Object(arguments); ok {
		return object
	}
	return map[string]string{"INVALID_JSON": arguments}
}

// isBlank reports whether s has no visible character.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// toolName makes a name that the server takes back of one that a model has made up. Other names it refuses, with the whole
// conversation.
func toolName(name string) string {
	name = word(name)
	return cmp.Or(name[:min(len(name), 64)], "_")
}

// callID makes an ID that the server takes of one that another provider has given. Different IDs stay different, for the
// server refuses two calls of one ID.
func callID(id string) string {
	fit := word(id)
	if fit == id {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return fit + "_" + hex.EncodeToString(sum[:4])
}

func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
}
