package openai

import (
	"fmt"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// chatRequest returns the request body for req, but for the model and the options.
func chatRequest(req llm.Request) (goopenai.ChatCompletionRequest, error) {
	body := goopenai.ChatCompletionRequest{
		MaxCompletionTokens: req.MaxOutputTokens, ReasoningEffort: req.ReasoningEffort,
		StreamOptions: &goopenai.StreamOptions{IncludeUsage: true},
	}
	if len(req.Tools) > 0 && !req.ParallelToolCalls {
		// True is the default of servers, some of which reject the field.
		body.ParallelToolCalls = false
	}
	if len(req.Tools) > 0 && req.NoToolCalls {
		body.ToolChoice = noToolCalls
	}
	for _, t := range req.Tools {
		body.Tools = append(body.Tools, goopenai.Tool{
			Type: goopenai.ToolTypeFunction,
			Function: &goopenai.FunctionDefinition{
				Name: t.Name, Description: t.Description, Parameters: schemaOf(t),
			},
		})
	}
	if req.System != "" {
		body.Messages = append(body.Messages, goopenai.ChatCompletionMessage{
			Role: goopenai.ChatMessageRoleSystem, Content: req.System,
		})
	}
	// The images of the tool results of a round follow the results: results cannot hold images, and
	// must directly follow their calls.
	var images []goopenai.ChatMessagePart
	flush := func() {
		if len(images) > 0 {
			body.Messages = append(body.Messages, goopenai.ChatCompletionMessage{
				Role: goopenai.ChatMessageRoleUser, MultiContent: images,
			})
			images = nil
		}
	}
	for i, m := range req.Messages {
		messages, more, err := chatMessages(m)
		if err != nil {
			return body, fmt.Errorf("message %d: %w", i, err)
		}
		if m.Role != llm.RoleTool {
			flush()
		}
		body.Messages = append(body.Messages, messages...)
		images = append(images, more...)
	}
	flush()
	return body, nil
}

// chatMessages returns the wire form of m, and the images of its tool results.
func chatMessages(
	m llm.Message,
) (messages []goopenai.ChatCompletionMessage, images []goopenai.ChatMessagePart, err error) {
	switch m.Role {
	case llm.RoleUser:
		msg, err := chatUser(m)
		return []goopenai.ChatCompletionMessage{msg}, nil, err
	case llm.RoleAssistant:
		msg := goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleAssistant, Content: m.Text()}
		for _, call := range m.ToolCalls() {
			if call.Arguments == "" {
				// The library would omit the field, and servers reject calls without it.
				call.Arguments = "{}"
			}
			msg.ToolCalls = append(msg.ToolCalls, goopenai.ToolCall{
				ID: call.ID, Type: goopenai.ToolTypeFunction,
				Function: goopenai.FunctionCall{Name: exchange.ToolName(call.Name), Arguments: call.Arguments},
			})
		}
		if msg.Content == "" && len(msg.ToolCalls) == 0 {
			return nil, nil, nil
		}
		return []goopenai.ChatCompletionMessage{msg}, nil, nil
	case llm.RoleTool:
		for _, p := range m.Parts {
			if p.Kind != llm.PartToolResult || p.ToolResult == nil {
				return nil, nil, exchange.UnsendablePart(p, m.Role)
			}
			messages = append(messages, goopenai.ChatCompletionMessage{
				Role: goopenai.ChatMessageRoleTool, ToolCallID: p.ToolResult.CallID,
				Content: notEmpty(p.ToolResult.Text()),
			})
			for _, part := range p.ToolResult.Parts {
				if part.Kind == llm.PartImage && part.Image != nil {
					images = append(images, chatImage(*part.Image))
				}
			}
		}
		return messages, images, nil
	}
	return nil, nil, exchange.UnknownRole(m.Role)
}

// chatUser returns a user message: a plain text, which all servers accept, unless m has images.
func chatUser(m llm.Message) (goopenai.ChatCompletionMessage, error) {
	msg := goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleUser}
	var parts []goopenai.ChatMessagePart
	images := false
	for _, p := range m.Parts {
		switch {
		case p.Kind == llm.PartText:
			if p.Text != "" {
				parts = append(parts, goopenai.ChatMessagePart{
					Type: goopenai.ChatMessagePartTypeText,
					Text: p.Text,
				})
			}
		case p.Kind == llm.PartImage && p.Image != nil:
			parts = append(parts, chatImage(*p.Image))
			images = true
		default:
			return msg, exchange.UnsendablePart(p, m.Role)
		}
	}
	if images {
		msg.MultiContent = parts
		return msg, nil
	}
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	msg.Content = notEmpty(strings.Join(texts, "\n\n"))
	return msg, nil
}

func chatImage(img llm.Image) goopenai.ChatMessagePart {
	return goopenai.ChatMessagePart{
		Type:     goopenai.ChatMessagePartTypeImageURL,
		ImageURL: &goopenai.ChatMessageImageURL{URL: dataURL(img)},
	}
}

// notEmpty returns text, or a space for an empty one: the library would omit the content, and
// servers reject messages without it.
func notEmpty(text string) string {
	if text == "" {
		return " "
	}
	return text
}
