package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// maxBlocks bounds the unfinished blocks of an answer. Servers have one at a time.
const maxBlocks = 256

// block is an unfinished block of content.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`

	// raw is the first form of the block.
	raw json.RawMessage
	// call is the index of the tool call.
	call int
	// grown is true after a piece of arguments.
	grown               bool
	thinking, signature strings.Builder
}

// decoder makes deltas of the events of a stream.
type decoder struct {
	provider string
	blocks   map[int]*block
	calls    int
	stop     stopReason
	done     llm.Done
}

var _ exchange.Decoder = (*decoder)(nil)

// End implements exchange.Decoder: only message_stop completes an answer.
func (d *decoder) End(bool) (llm.Delta, bool) { return llm.Delta{}, false }

// Event implements exchange.Decoder.
func (d *decoder) Event(data []byte) ([]llm.Delta, error) {
	typ, err := exchange.EventType(data)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop",
		"message_delta", "message_stop":
	default:
		return nil, nil
	}
	var e wireEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("the event %s is not understood: %w", typ, err)
	}
	return d.known(typ, e)
}

// known returns the deltas of an event of a known type.
func (d *decoder) known(typ string, e wireEvent) ([]llm.Delta, error) {
	switch typ {
	case "message_start":
		d.done.ResponseID, d.done.Model = e.Message.ID, e.Message.Model
		e.Message.Usage.addTo(&d.done.Usage)
		return nil, nil
	case "content_block_start":
		return d.start(e.Index, e.ContentBlock)
	case "message_delta":
		if e.Delta.StopReason != "" {
			d.stop = e.Delta.StopReason
		}
		e.Usage.addTo(&d.done.Usage)
		return nil, nil
	case "message_stop":
		if len(d.blocks) > 0 {
			return nil, errors.New("the answer ended within a block")
		}
		done := d.done
		done.Finish = d.finish()
		return []llm.Delta{{Kind: llm.DeltaDone, Done: &done}}, nil
	}
	b := d.blocks[e.Index]
	if b == nil {
		return nil, fmt.Errorf("an event is for block %d, which has not started", e.Index)
	}
	if typ == "content_block_stop" {
		delete(d.blocks, e.Index)
		return d.end(b)
	}
	return b.grow(e), nil
}

// start returns the deltas of the start of a block, which may have content.
func (d *decoder) start(index int, raw json.RawMessage) ([]llm.Delta, error) {
	b := &block{raw: raw}
	if err := json.Unmarshal(raw, b); err != nil {
		return nil, fmt.Errorf("a block is not understood: %w", err)
	}
	if d.blocks[index] != nil {
		return nil, fmt.Errorf("block %d started twice", index)
	}
	if len(d.blocks) == maxBlocks {
		return nil, fmt.Errorf("%w: more than %d blocks are unfinished", llm.ErrAnswerTooLarge, maxBlocks)
	}
	if d.blocks == nil {
		d.blocks = make(map[int]*block)
	}
	d.blocks[index] = b
	switch b.Type {
	case blockText:
		return text(llm.DeltaText, b.Text), nil
	case blockThinking:
		b.thinking.WriteString(b.Thinking)
		b.signature.WriteString(b.Signature)
		return text(llm.DeltaReasoning, b.Thinking), nil
	case blockToolUse:
		b.call = d.calls
		d.calls++
		return []llm.Delta{{Kind: llm.DeltaToolCall, Index: b.call, Call: &llm.ToolCall{
			ID:   b.ID,
			Name: b.Name,
		}}}, nil
	}
	return nil, nil
}

func text(kind llm.DeltaKind, s string) []llm.Delta {
	if s == "" {
		return nil
	}
	return []llm.Delta{{Kind: kind, Text: s}}
}

// grow returns the deltas of a piece of b. Pieces that do not belong to such a block are ignored,
// such as citations.
func (b *block) grow(e wireEvent) []llm.Delta {
	switch b.Type {
	case blockText:
		return text(llm.DeltaText, e.Delta.Text)
	case blockThinking:
		b.signature.WriteString(e.Delta.Signature)
		b.thinking.WriteString(e.Delta.Thinking)
		return text(llm.DeltaReasoning, e.Delta.Thinking)
	case blockToolUse:
		return b.arguments(e.Delta.PartialJSON)
	}
	return nil
}

func (b *block) arguments(piece string) []llm.Delta {
	if piece == "" {
		return nil
	}
	b.grown = true
	return []llm.Delta{{Kind: llm.DeltaArguments, Index: b.call, Text: piece}}
}

// end emits the part of a block that its pieces did not have.
func (d *decoder) end(b *block) ([]llm.Delta, error) {
	switch b.Type {
	case blockToolUse:
		if input := bytes.TrimSpace(b.Input); !b.grown && len(input) > 2 && input[0] == '{' {
			return b.arguments(string(input)), nil
		}
		return nil, nil
	case blockThinking:
		r := &llm.Reasoning{Text: b.thinking.String(), Provider: d.provider}
		// The server rejects thinking without a signature.
		if b.signature.Len() > 0 {
			raw, err := b.whole(r.Text)
			if err != nil {
				return nil, err
			}
			r.Opaque = raw
		}
		if r.Opaque == nil && r.Text == "" {
			return nil, nil
		}
		return []llm.Delta{{Kind: llm.DeltaPart, Part: &llm.Part{Kind: llm.PartReasoning, Reasoning: r}}},
			nil
	case blockRedactedThinking:
		r := &llm.Reasoning{Provider: d.provider, Opaque: b.raw}
		return []llm.Delta{{Kind: llm.DeltaPart, Part: &llm.Part{Kind: llm.PartReasoning, Reasoning: r}}},
			nil
	}
	return nil, nil
}

// whole returns the final form of a block of thinking, with the fields of its start.
func (b *block) whole(thinking string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b.raw, &fields); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"thinking": thinking, "signature": b.signature.String(),
	} {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields[name] = raw
	}
	return json.Marshal(fields)
}

func (d *decoder) finish() llm.FinishReason {
	switch d.stop {
	case stopMaxTokens, stopContextWindow:
		return llm.FinishLength
	case stopRefusal:
		return llm.FinishContentFilter
	}
	if d.calls > 0 {
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
