package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Recording is a record with everything that a replay of its session needs.
type Recording struct {
	*Record

	// Exchanges are the answered requests, in order.
	Exchanges []Exchange
	// Inputs has, for each of Runs, the turns of the user: the input, and answers to questions, which
	// are empty if nobody answered and the run went on.
	Inputs [][]Turn
	// Results are the results of tool calls, in order.
	Results []ToolResult
	// Waited are the calls that waited for an approval after the end of their run.
	Waited []string
}

// Exchange is a request to a model, as the journal determines it, with its answer.
type Exchange struct {
	// Run is the index of its run in Record.Runs; negative before the first one.
	Run int
	// Prompt has the parts of the request outside the history.
	Prompt Prompt
	// Summary means that the request asked for a summary, of which the journal has the answer alone.
	Summary bool
	// Answer is the turn of the answer.
	Answer Turn

	turns  []Turn
	pruned []string
}

// Request returns the parts of the request that the journal determines. That of a summary has none.
func (x Exchange) Request() llm.Request {
	if x.Summary {
		return llm.Request{}
	}
	pruned := make(map[string]bool, len(x.pruned))
	for _, id := range x.pruned {
		pruned[id] = true
	}
	return llm.Request{
		Model: x.Prompt.Model, ReasoningEffort: x.Prompt.ReasoningEffort, System: x.Prompt.System,
		Tools: x.Prompt.Tools, Messages: Messages(x.turns, pruned),
	}
}

// LoadRecording reads the journal in the directory of a session, as Load does.
func LoadRecording(dir string) (*Recording, error) {
	f, err := os.Open(filepath.Join(dir, JournalName))
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", filepath.Base(dir), err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	rec := &Recording{}
	if rec.Record, err = load(f, dir, rec); err != nil {
		return nil, err
	}
	for len(rec.Inputs) < len(rec.Runs) {
		rec.Inputs = append(rec.Inputs, nil)
	}
	return rec, nil
}

// addTurn adds a turn that follows those of b. The methods of a nil Recording do nothing.
func (r *Recording) addTurn(b *recordBuilder, t Turn) {
	switch {
	case r == nil:
	case t.Kind == TurnAssistant:
		r.Exchanges = append(r.Exchanges, Exchange{
			Run: len(b.Runs) - 1, Prompt: b.Prompt, Answer: t,
			turns: slices.Clip(b.Turns), pruned: slices.Clip(b.Pruned),
		})
	case t.Kind == TurnUser:
		r.addInput(b, t)
	}
}

func (r *Recording) addInput(b *recordBuilder, t Turn) {
	if len(b.Runs) == 0 {
		return
	}
	for len(r.Inputs) < len(b.Runs) {
		r.Inputs = append(r.Inputs, nil)
	}
	last := &r.Inputs[len(b.Runs)-1]
	*last = append(*last, t)
}

// addState adds an answer that nobody gave.
func (r *Recording) addState(b *recordBuilder, s State) {
	if r != nil && s.From == "awaiting_human" && s.Signal == "continue" {
		r.addInput(b, Turn{Kind: TurnUser})
	}
}

func (r *Recording) addSummary(b *recordBuilder, c Compacted) {
	if r == nil || c.Model == "" { // which was no request
		return
	}
	r.Exchanges = append(r.Exchanges, Exchange{
		Run: len(b.Runs) - 1, Summary: true, Answer: Turn{
			Kind: TurnAssistant, Parts: []llm.Part{llm.Text(c.Summary)}, Usage: c.Usage,
			CostUSD: c.CostUSD, Model: c.Model,
		},
	})
}

func (r *Recording) addResult(t ToolResult) {
	if r != nil {
		r.Results = append(r.Results, t)
	}
}

// PrunedText stands in requests for an output that was removed.
const PrunedText = "[This output was removed to save context. Call the tool again if you need it.]"

// Messages converts turns to messages, without the outputs of the pruned calls. Equal turns give
// equal messages.
func Messages(turns []Turn, pruned map[string]bool) []llm.Message {
	out := make([]llm.Message, 0, len(turns))
	for _, t := range turns {
		switch t.Kind {
		case TurnUser, TurnSteering:
			out = append(out, llm.Message{Role: llm.RoleUser, Parts: t.Parts})
		case TurnAssistant:
			out = append(out, llm.Message{Role: llm.RoleAssistant, Parts: t.Parts})
		case TurnToolResults:
			parts := make([]llm.Part, len(t.Results))
			for i := range t.Results {
				parts[i] = llm.Part{Kind: llm.PartToolResult, ToolResult: &t.Results[i]}
				if pruned[t.Results[i].CallID] {
					r := t.Results[i]
					r.Parts = []llm.Part{llm.Text(PrunedText)}
					parts[i].ToolResult = &r
				}
			}
			out = append(out, llm.Message{Role: llm.RoleTool, Parts: parts})
		}
	}
	return out
}
