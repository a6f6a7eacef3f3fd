package agent

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// TurnKind says who added a turn to the history.
type TurnKind string

// Kinds of turns.
const (
	TurnUser        TurnKind = "user"
	TurnAssistant   TurnKind = "assistant"
	TurnToolResults TurnKind = "tool_results"
	// TurnSteering is a message that the host or the loop put in; the model sees it as the user's.
	TurnSteering TurnKind = "steering"
)

// Turn is one entry of a session's history. Turns are values: whoever holds one does not change its
// parts.
type Turn struct {
	Kind TurnKind  `json:"kind"`
	Time time.Time `json:"time"`
	// Parts are the content of a user, assistant or steering turn.
	Parts []llm.Part `json:"parts,omitempty"`
	// Results are the content of a tool_results turn, in the order of the calls.
	Results []llm.ToolResult `json:"results,omitempty"`
	// Usage, Model and ResponseID belong to an assistant turn.
	Usage      llm.Usage `json:"usage,omitzero"`
	Model      string    `json:"model,omitempty"`
	ResponseID string    `json:"response_id,omitempty"`
}

// Text returns the texts of the turn, joined.
func (t Turn) Text() string { return llm.Message{Parts: t.Parts}.Text() }

// messages makes what a model is sent of a history. Equal histories give equal messages.
func messages(history []Turn) []llm.Message {
	out := make([]llm.Message, 0, len(history))
	for _, t := range history {
		switch t.Kind {
		case TurnUser, TurnSteering:
			out = append(out, llm.Message{Role: llm.RoleUser, Parts: t.Parts})
		case TurnAssistant:
			out = append(out, llm.Message{Role: llm.RoleAssistant, Parts: t.Parts})
		case TurnToolResults:
			parts := make([]llm.Part, len(t.Results))
			for i := range t.Results {
				parts[i] = llm.Part{Kind: llm.PartToolResult, ToolResult: &t.Results[i]}
			}
			out = append(out, llm.Message{Role: llm.RoleTool, Parts: parts})
		}
	}
	return out
}

// withoutImages returns the messages with a text in the place of each image, and the number of
// images.
func withoutImages(list []llm.Message) ([]llm.Message, int) {
	n := 0
	for i, m := range list {
		parts, k := replaceImages(m.Parts)
		for j, p := range parts {
			if p.ToolResult == nil {
				continue
			}
			if inner, in := replaceImages(p.ToolResult.Parts); in > 0 {
				result := *p.ToolResult
				result.Parts = inner
				if k == 0 {
					parts = slices.Clone(parts)
				}
				parts[j].ToolResult = &result
				k += in
			}
		}
		list[i].Parts = parts
		n += k
	}
	return list, n
}

// replaceImages returns the parts with a text in the place of each image, and the number of images.
// It changes a copy.
func replaceImages(parts []llm.Part) ([]llm.Part, int) {
	n := 0
	for i, p := range parts {
		if p.Kind != llm.PartImage || p.Image == nil {
			continue
		}
		if n == 0 {
			parts = slices.Clone(parts)
		}
		parts[i] = llm.Part{Kind: llm.PartText, Text: fmt.Sprintf("[an image, %s, %d bytes; you "+
			"cannot see images]", p.Image.MIME, len(p.Image.Data))}
		n++
	}
	return parts, n
}

// countTurns counts what Limits.MaxTurns limits: inputs, answers, and sets of results.
func countTurns(history []Turn) int {
	n := 0
	for _, t := range history {
		if t.Kind != TurnSteering {
			n++
		}
	}
	return n
}

// approxTokens guesses the size of a request that no answer has told yet: four characters a token.
func approxTokens(req llm.Request) int64 {
	chars := utf8.RuneCountInString(req.System)
	for _, t := range req.Tools {
		chars += utf8.RuneCountInString(t.Description) + len(t.Schema)
	}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			chars += utf8.RuneCountInString(p.Text)
			if p.ToolCall != nil {
				chars += utf8.RuneCountInString(p.ToolCall.Arguments)
			}
			if p.ToolResult != nil {
				chars += utf8.RuneCountInString(p.ToolResult.Text())
			}
		}
	}
	return int64(chars / 4)
}
