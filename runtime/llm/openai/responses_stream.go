package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// responsesEvent has the fields of a stream event that the client reads. The type of the library
// rejects an event for any field of an unexpected form, and lacks the encrypted content of
// reasoning.
type responsesEvent struct {
	OutputIndex  int             `json:"output_index"`
	SummaryIndex int             `json:"summary_index"`
	Delta        string          `json:"delta"`
	Arguments    string          `json:"arguments"`
	Item         json.RawMessage `json:"item"`
	Response     struct {
		ID         string          `json:"id"`
		Model      string          `json:"model"`
		Status     string          `json:"status"`
		Error      json.RawMessage `json:"error"`
		Incomplete *struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
		Output []json.RawMessage `json:"output"`
		Usage  *struct {
			InputTokens  int64 `json:"input_tokens"`
			OutputTokens int64 `json:"output_tokens"`
			Input        struct {
				Cached     int64 `json:"cached_tokens"`
				CacheWrite int64 `json:"cache_write_tokens"`
			} `json:"input_tokens_details"`
			Output struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		} `json:"usage"`
	} `json:"response"`
}

// outputItem has the fields of an output item that the client reads.
type outputItem struct {
	Type             string        `json:"type"`
	CallID           string        `json:"call_id"`
	Name             string        `json:"name"`
	Arguments        string        `json:"arguments"`
	Content          []contentPart `json:"content"`
	Summary          []contentPart `json:"summary"`
	EncryptedContent string        `json:"encrypted_content"`
}

type contentPart struct {
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// responsesDecoder makes deltas of the events of a Responses stream.
type responsesDecoder struct {
	provider string
	calls    []*streamedCall
	// byOutput are the calls by the index of their output item.
	byOutput map[int]*streamedCall
	// texts are the items whose text came in pieces, thoughts those whose reasoning did.
	texts, thoughts map[int]bool
	// lastText is the item of the last emitted delta if that was text.
	lastText *int
	items    int
}

// streamedCall is a tool call whose arguments come in pieces.
type streamedCall struct {
	index int
	id    string
	args  strings.Builder
}

var _ exchange.Decoder = (*responsesDecoder)(nil)

// End implements exchange.Decoder: only an event completes an answer.
func (d *responsesDecoder) End(bool) (llm.Delta, bool) { return llm.Delta{}, false }

// Event implements exchange.Decoder.
func (d *responsesDecoder) Event(data []byte) ([]llm.Delta, error) {
	name, err := exchange.EventType(data)
	if err != nil {
		return nil, err
	}
	typ := goopenai.ResponseStreamEventType(name)
	switch typ {
	case goopenai.ResponseStreamEventOutputItemAdded, goopenai.ResponseStreamEventOutputItemDone,
		goopenai.ResponseStreamEventOutputTextDelta, goopenai.ResponseStreamEventRefusalDelta,
		goopenai.ResponseStreamEventFunctionArgumentsDelta,
		goopenai.ResponseStreamEventFunctionArgumentsDone,
		goopenai.ResponseStreamEventReasoningSummaryTextDelta,
		goopenai.ResponseStreamEventReasoningTextDelta,
		goopenai.ResponseStreamEventReasoningSummaryPartAdded, goopenai.ResponseStreamEventCompleted,
		goopenai.ResponseStreamEventIncomplete, goopenai.ResponseStreamEventFailed:
	default:
		return nil, nil
	}
	var e responsesEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("the event %s is not understood: %w", typ, err)
	}
	return d.known(typ, e)
}

// known returns the deltas of an event of a known type.
func (d *responsesDecoder) known(
	typ goopenai.ResponseStreamEventType, e responsesEvent,
) ([]llm.Delta, error) {
	switch typ {
	case goopenai.ResponseStreamEventOutputItemAdded:
		var item outputItem
		if err := json.Unmarshal(e.Item, &item); err != nil {
			return nil, fmt.Errorf("an output item is not understood: %w", err)
		}
		if item.Type != "function_call" {
			return nil, nil
		}
		_, deltas := d.call(e.OutputIndex, item)
		return deltas, nil
	case goopenai.ResponseStreamEventOutputItemDone:
		return d.itemDone(e.OutputIndex, e.Item)
	case goopenai.ResponseStreamEventOutputTextDelta, goopenai.ResponseStreamEventRefusalDelta:
		return d.text(e.OutputIndex, e.Delta), nil
	case goopenai.ResponseStreamEventFunctionArgumentsDelta:
		call, deltas := d.call(e.OutputIndex, outputItem{})
		return append(deltas, call.grow(e.Delta)), nil
	case goopenai.ResponseStreamEventFunctionArgumentsDone:
		call, deltas := d.call(e.OutputIndex, outputItem{})
		return d.rest(call, deltas, e.Arguments)
	case goopenai.ResponseStreamEventReasoningSummaryPartAdded:
		if e.SummaryIndex == 0 {
			return nil, nil
		}
		return d.thought(e.OutputIndex, "\n\n"), nil
	case goopenai.ResponseStreamEventReasoningSummaryTextDelta,
		goopenai.ResponseStreamEventReasoningTextDelta:
		return d.thought(e.OutputIndex, e.Delta), nil
	}
	return d.finish(typ, e)
}

// call returns the call of an output item, and the deltas that start a new one.
func (d *responsesDecoder) call(output int, item outputItem) (*streamedCall, []llm.Delta) {
	if call := d.byOutput[output]; call != nil {
		return call, nil
	}
	call := &streamedCall{index: len(d.calls), id: item.CallID}
	d.calls = append(d.calls, call)
	if d.byOutput == nil {
		d.byOutput = make(map[int]*streamedCall)
	}
	d.byOutput[output] = call
	d.lastText = nil
	return call, []llm.Delta{{
		Kind: llm.DeltaToolCall, Index: call.index, Call: &llm.ToolCall{ID: item.CallID, Name: item.Name},
	}}
}

func (c *streamedCall) grow(piece string) llm.Delta {
	c.args.WriteString(piece)
	return llm.Delta{Kind: llm.DeltaArguments, Index: c.index, Text: piece}
}

// rest emits the missing end of the arguments of call. The server sends them as a whole at their
// end.
func (d *responsesDecoder) rest(
	call *streamedCall, deltas []llm.Delta, whole string,
) ([]llm.Delta, error) {
	if whole == "" {
		return deltas, nil
	}
	missing, ok := strings.CutPrefix(whole, call.args.String())
	if !ok {
		return nil, fmt.Errorf("the arguments of tool call %d differ from their pieces", call.index)
	}
	if missing == "" {
		return deltas, nil
	}
	return append(deltas, call.grow(missing)), nil
}

// text emits a piece of the answer. A blank line separates the texts of two items.
func (d *responsesDecoder) text(output int, piece string) []llm.Delta {
	if piece == "" {
		return nil
	}
	if d.texts == nil {
		d.texts = make(map[int]bool)
	}
	d.texts[output] = true
	var deltas []llm.Delta
	if d.lastText != nil && *d.lastText != output {
		deltas = append(deltas, llm.Delta{Kind: llm.DeltaText, Text: "\n\n"})
	}
	d.lastText = &output
	return append(deltas, llm.Delta{Kind: llm.DeltaText, Text: piece})
}

func (d *responsesDecoder) thought(output int, piece string) []llm.Delta {
	if d.thoughts == nil {
		d.thoughts = make(map[int]bool)
	}
	d.thoughts[output] = true
	d.lastText = nil
	return []llm.Delta{{Kind: llm.DeltaReasoning, Text: piece}}
}

// itemDone emits the parts of an item that its pieces did not have.
func (d *responsesDecoder) itemDone(output int, raw json.RawMessage) ([]llm.Delta, error) {
	d.items++
	var item outputItem
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("an output item is not understood: %w", err)
	}
	switch item.Type {
	case "function_call":
		call, deltas := d.call(output, item)
		if len(deltas) == 0 {
			// The start of the call may have had less.
			deltas = append(deltas, llm.Delta{
				Kind: llm.DeltaToolCall, Index: call.index, Call: &llm.ToolCall{
					ID:   item.CallID,
					Name: item.Name,
				},
			})
		}
		return d.rest(call, deltas, item.Arguments)
	case "message":
		if d.texts[output] {
			return nil, nil
		}
		return d.text(output, joined(item.Content, "")), nil
	case "reasoning":
		d.lastText = nil
		r := &llm.Reasoning{Text: joined(item.Summary, "\n\n"), Provider: d.provider}
		if r.Text == "" {
			r.Text = joined(item.Content, "")
		}
		// A server that stores nothing has no use for an item with only an id.
		if item.EncryptedContent != "" || len(item.Content) > 0 {
			r.Opaque = bytes.Clone(raw)
		}
		if r.Opaque == nil && (r.Text == "" || d.thoughts[output]) {
			return nil, nil
		}
		return []llm.Delta{{Kind: llm.DeltaPart, Part: &llm.Part{Kind: llm.PartReasoning, Reasoning: r}}},
			nil
	}
	return nil, nil
}

func joined(parts []contentPart, separator string) string {
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text+p.Refusal)
	}
	return strings.Join(texts, separator)
}

// finish returns the deltas of the last event of a stream.
func (d *responsesDecoder) finish(
	typ goopenai.ResponseStreamEventType, e responsesEvent,
) ([]llm.Delta, error) {
	r := e.Response
	if typ == goopenai.ResponseStreamEventFailed || r.Status == "failed" || r.Status == "cancelled" {
		info := exchange.RefusalOf(r.Error)
		if info.Message == "" {
			info.Message = exchange.ErrorWithoutText
		}
		return nil, &info
	}
	var deltas []llm.Delta
	if d.items == 0 {
		// Some servers send the whole answer only at its end.
		for i, raw := range r.Output {
			more, err := d.itemDone(i, raw)
			if err != nil {
				return nil, err
			}
			deltas = append(deltas, more...)
		}
	}
	done := &llm.Done{Finish: llm.FinishStop, ResponseID: r.ID, Model: r.Model}
	if len(d.calls) > 0 {
		done.Finish = llm.FinishToolCalls
	}
	if typ == goopenai.ResponseStreamEventIncomplete || r.Status == "incomplete" {
		done.Finish = llm.FinishLength
		if r.Incomplete != nil && r.Incomplete.Reason == "content_filter" {
			done.Finish = llm.FinishContentFilter
		}
	}
	if u := r.Usage; u != nil {
		done.Usage = llm.Usage{
			Input:  max(u.InputTokens-u.Input.Cached-u.Input.CacheWrite, 0),
			Output: u.OutputTokens, Reasoning: u.Output.Reasoning, CacheRead: u.Input.Cached,
			CacheWrite: u.Input.CacheWrite,
		}
	}
	return append(deltas, llm.Delta{Kind: llm.DeltaDone, Done: done}), nil
}
