package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// decoder makes deltas of the events of one stream.
type decoder struct {
	provider string
	calls    int
	// thought is the text of the last emitted deltas if these were thoughts.
	thought strings.Builder
	// signed is true if the last emitted text has a signature, which does not cover a text after it.
	signed bool
	// finish is empty until a finish reason came. counted is true if a usage came with it or after it.
	finish  llm.FinishReason
	counted bool
	done    llm.Done
}

var _ exchange.Decoder = (*decoder)(nil)

// Event implements exchange.Decoder.
func (d *decoder) Event(data []byte) ([]llm.Delta, error) {
	var r wireResponse
	if err := json.Unmarshal(data, &r); err != nil {
		if info := exchange.RefusalOf(data); info.Found {
			return nil, &info
		}
		return nil, fmt.Errorf("an event is not understood: %w", err)
	}
	if len(r.Error) > 0 && string(r.Error) != "null" {
		info := exchange.RefusalOf(data)
		return nil, &info
	}
	if f := r.PromptFeedback; f != nil && f.BlockReason != "" {
		return nil, refused(f.BlockReason, "content_filter", "the prompt was blocked",
			f.BlockReasonMessage)
	}
	if r.ResponseID != "" {
		d.done.ResponseID = r.ResponseID
	}
	if r.ModelVersion != "" {
		d.done.Model = r.ModelVersion
	}
	var deltas []llm.Delta
	for _, c := range r.Candidates {
		if c.Index != 0 {
			continue
		}
		for _, raw := range c.Content.Parts {
			more, err := d.part(raw)
			deltas = append(deltas, more...)
			if err != nil {
				return deltas, err
			}
		}
		if err := d.finished(c.FinishReason, c.FinishMessage); err != nil {
			return deltas, err
		}
	}
	if u := r.Usage; u != nil {
		// The counts of each event are totals.
		d.done.Usage = llm.Usage{
			Input: max(u.Prompt+u.ToolUse-u.Cached, 0), CacheRead: u.Cached, Output: u.Candidates +
				u.Thoughts, Reasoning: u.Thoughts,
		}
		d.counted = d.finish != ""
	}
	return deltas, nil
}

// End implements exchange.Decoder. An answer is complete after a finish reason, if the stream ended
// regularly or has reported the usage.
func (d *decoder) End(whole bool) (llm.Delta, bool) {
	if d.finish == "" || !whole && !d.counted {
		return llm.Delta{}, false
	}
	done := d.done
	done.Finish = d.finish
	if done.Finish == llm.FinishStop && d.calls > 0 {
		done.Finish = llm.FinishToolCalls
	}
	return llm.Delta{Kind: llm.DeltaDone, Done: &done}, true
}

// part returns the deltas of a part of the answer.
func (d *decoder) part(raw json.RawMessage) ([]llm.Delta, error) {
	var f wirePart
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("a part is not understood: %w", err)
	}
	var p wireAnswerPart
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("a part is not understood: %w", err)
	}
	switch {
	case p.FunctionCall != nil:
		call := llm.ToolCall{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: "{}"}
		if args := p.FunctionCall.Args; len(args) > 0 && string(args) != "null" {
			call.Arguments = string(args)
		}
		mark := wirePart{}
		if p.Signature != "" {
			mark["thoughtSignature"] = f["thoughtSignature"]
		}
		var deltas []llm.Delta
		if p.Signature != "" || call.ID != "" {
			var err error
			if mark["functionCall"], err = withoutArgs(f["functionCall"]); err != nil {
				return nil, err
			}
			if deltas, err = d.opaque(mark); err != nil {
				return nil, err
			}
		}
		return append(deltas, d.call(call)...), nil
	case p.Text != nil && p.Thought:
		return d.thoughts(*p.Text, p.Signature, raw), nil
	case p.Text != nil && (*p.Text != "" || p.Signature == ""):
		return d.text(*p.Text, f["thoughtSignature"], p.Signature != "")
	case len(f) == 0:
		return nil, nil
	}
	return d.keep(raw), nil
}

// withoutArgs returns a function call without its arguments, which the tool call has.
func withoutArgs(raw json.RawMessage) (json.RawMessage, error) {
	var call wirePart
	if err := json.Unmarshal(raw, &call); err != nil {
		return nil, err
	}
	delete(call, "args")
	return json.Marshal(call)
}

func (d *decoder) call(call llm.ToolCall) []llm.Delta {
	index := d.calls
	d.calls++
	d.emitted()
	args := call.Arguments
	call.Arguments = ""
	return []llm.Delta{
		{Kind: llm.DeltaToolCall, Index: index, Call: &call}, {
			Kind: llm.DeltaArguments, Index: index,
			Text: args,
		},
	}
}

// emitted records that the last delta is not a thought.
func (d *decoder) emitted() {
	d.thought.Reset()
	d.signed = false
}

func (d *decoder) thoughts(text, signature string, raw json.RawMessage) []llm.Delta {
	d.signed = false
	var deltas []llm.Delta
	if text != "" {
		d.thought.WriteString(text)
		deltas = append(deltas, llm.Delta{Kind: llm.DeltaReasoning, Text: text})
	}
	if signature == "" {
		return deltas
	}
	return append(deltas, d.keep(raw)...)
}

func (d *decoder) text(text string, signature json.RawMessage, signed bool) ([]llm.Delta, error) {
	if text == "" {
		return nil, nil
	}
	mark := wirePart{}
	if signed {
		mark["thoughtSignature"] = signature
	}
	var deltas []llm.Delta
	if signed || d.signed {
		// The text is a separate part, which an empty mark preserves, too.
		var err error
		if deltas, err = d.opaque(mark); err != nil {
			return nil, err
		}
	}
	d.emitted()
	d.signed = signed
	return append(deltas, llm.Delta{Kind: llm.DeltaText, Text: text}), nil
}

func (d *decoder) opaque(mark wirePart) ([]llm.Delta, error) {
	raw, err := json.Marshal(mark)
	if err != nil {
		return nil, err
	}
	return d.keep(raw), nil
}

// keep emits a part that goes back. It replaces the thoughts directly before it, so it holds their
// text.
func (d *decoder) keep(raw json.RawMessage) []llm.Delta {
	r := &llm.Reasoning{
		Text: d.thought.String(), Provider: d.provider,
		Opaque: append(json.RawMessage(nil), raw...),
	}
	d.emitted()
	return []llm.Delta{{Kind: llm.DeltaPart, Part: &llm.Part{Kind: llm.PartReasoning, Reasoning: r}}}
}

// finished records the finish reason, which is empty before the last event.
func (d *decoder) finished(reason finishReason, message string) error {
	switch reason {
	case "":
	case finishStop:
		d.finish = llm.FinishStop
	case finishMaxTokens:
		d.finish = llm.FinishLength
	case finishSafety, finishRecitation, finishBlocklist, finishProhibitedContent,
		finishSPII, finishLanguage, finishImageSafety,
		finishImageProhibitedContent, finishImageRecitation:
		d.finish = llm.FinishContentFilter
	case finishMissingThoughtSignature:
		return refused(string(reason), "invalid_request_error", "the model has refused the conversation",
			message)
	default:
		// The model failed; another attempt may succeed.
		return errors.New(explained("the model gave up the answer ("+string(reason)+")", message))
	}
	return nil
}

func refused(code, kind, text, message string) error {
	return &exchange.Refusal{
		Code: code, Kind: kind, Message: explained(text+" ("+code+")", message),
		Found: true,
	}
}

func explained(text, message string) string {
	if message == "" {
		return text
	}
	return text + ": " + message
}
