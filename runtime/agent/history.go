package agent

import (
	"time"

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

// Turn is one entry of a session's history. Turns are values: whoever holds one does not change its parts.
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

// approxTokens guesses the size of a request before the first answer has told it: four characters a token.
func approxTokens(system string, history []Turn) int64 {
	chars := len(system)
	for _, t := range history {
		chars += len(t.Text())
		for _, r := range t.Results {
			chars += len(r.Text())
		}
	}
	return int64(chars / 4)
}
