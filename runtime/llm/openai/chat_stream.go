package openai

import (
	"encoding/json"
	"fmt"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// chatChunk has the fields of a chunk that the client reads. The type of the library rejects a
// chunk for any field of an unexpected form.
type chatChunk struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content string `json:"content"`
			Refusal string `json:"refusal"`
			// Reasoning has two names among servers.
			ReasoningContent string          `json:"reasoning_content"`
			Reasoning        json.RawMessage `json:"reasoning"`
			ToolCalls        []chatCall      `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
		Prompt           struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Completion struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
}

type chatCall struct {
	// Some servers omit Index.
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// chatDecoder makes deltas of the chunks of a Chat stream.
type chatDecoder struct {
	calls []*streamedCall
	// byIndex are the newest calls of each index.
	byIndex map[int]*streamedCall
	// finish is empty until a finish_reason came.
	finish llm.FinishReason
	done   llm.Done
}

var _ exchange.Decoder = (*chatDecoder)(nil)

// End implements exchange.Decoder. An answer is complete after a finish_reason, also if the stream
// breaks off then.
func (d *chatDecoder) End(bool) (llm.Delta, bool) {
	if d.finish == "" {
		return llm.Delta{}, false
	}
	done := d.done
	done.Finish = d.finish
	return llm.Delta{Kind: llm.DeltaDone, Done: &done}, true
}

// Event implements exchange.Decoder.
func (d *chatDecoder) Event(data []byte) ([]llm.Delta, error) {
	var chunk chatChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		if info := exchange.RefusalOf(data); info.Found {
			return nil, &info
		}
		return nil, fmt.Errorf("a chunk is not understood: %w", err)
	}
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		info := exchange.RefusalOf(data)
		return nil, &info
	}
	if chunk.ID != "" {
		d.done.ResponseID = chunk.ID
	}
	if chunk.Model != "" {
		d.done.Model = chunk.Model
	}
	if u := chunk.Usage; u != nil {
		d.done.Usage = llm.Usage{
			Input: max(u.PromptTokens-u.Prompt.Cached, 0), Output: u.CompletionTokens,
			Reasoning: u.Completion.Reasoning,
			CacheRead: u.Prompt.Cached,
		}
	}
	var deltas []llm.Delta
	for _, choice := range chunk.Choices {
		if choice.Index != 0 || d.finish != "" {
			continue
		}
		delta := choice.Delta
		thought := delta.ReasoningContent
		if thought == "" {
			thought = exchange.Plain(delta.Reasoning)
		}
		if thought != "" {
			deltas = append(deltas, llm.Delta{Kind: llm.DeltaReasoning, Text: thought})
		}
		if text := delta.Content + delta.Refusal; text != "" {
			deltas = append(deltas, llm.Delta{Kind: llm.DeltaText, Text: text})
		}
		for _, call := range delta.ToolCalls {
			deltas = append(deltas, d.toolCall(call)...)
		}
		if choice.FinishReason == "error" {
			return deltas, &exchange.Refusal{Message: exchange.ErrorWithoutText}
		}
		d.finished(choice.FinishReason)
	}
	return deltas, nil
}

// toolCall returns the deltas of a piece of a tool call. A piece starts a call if its index is new,
// or if it has a name and another id than the call so far: some servers give all calls one index or
// none.
func (d *chatDecoder) toolCall(piece chatCall) []llm.Delta {
	index := 0
	if piece.Index != nil {
		index = *piece.Index
	}
	call := d.byIndex[index]
	name := piece.Function.Name
	fresh := call == nil
	if call != nil && name != "" {
		fresh = piece.ID != "" && piece.ID != call.id || piece.ID == "" && piece.Index == nil
	}
	var deltas []llm.Delta
	if fresh {
		call = &streamedCall{index: len(d.calls), id: piece.ID}
		d.calls = append(d.calls, call)
		if d.byIndex == nil {
			d.byIndex = make(map[int]*streamedCall)
		}
		d.byIndex[index] = call
	}
	if fresh || piece.ID != "" && call.id == "" || name != "" {
		if call.id == "" {
			call.id = piece.ID
		}
		deltas = append(deltas, llm.Delta{
			Kind: llm.DeltaToolCall, Index: call.index, Call: &llm.ToolCall{ID: piece.ID, Name: name},
		})
	}
	if piece.Function.Arguments != "" {
		deltas = append(deltas, llm.Delta{
			Kind: llm.DeltaArguments, Index: call.index,
			Text: piece.Function.Arguments,
		})
	}
	return deltas
}

// finished records the finish_reason, which is empty before the last piece.
func (d *chatDecoder) finished(reason string) {
	switch goopenai.FinishReason(reason) {
	case "":
		return
	case goopenai.FinishReasonLength:
		d.finish = llm.FinishLength
		return
	case goopenai.FinishReasonContentFilter:
		d.finish = llm.FinishContentFilter
		return
	}
	// The finish reasons of answers with calls differ between servers, so the calls decide.
	d.finish = llm.FinishStop
	if len(d.calls) > 0 {
		d.finish = llm.FinishToolCalls
	}
}
