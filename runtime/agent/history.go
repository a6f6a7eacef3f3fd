package agent

import (
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// history holds the turns of a session, and the state that the loop keeps from one run to the next.
type history struct {
	mu    sync.Mutex
	turns []session.Turn
	title string

	// The fields below belong to the loop; runs of a session do not overlap.

	// callIDs are the IDs of all tool calls, and pruned of those whose outputs were removed.
	callIDs, pruned map[string]bool
	// waiting is the answer that waits for an approval; nil without one.
	waiting *waiting
	// compacted is the last summary, the first of the turns.
	compacted session.Compacted
	// prompt is the last one in the journal.
	prompt session.Prompt
	// contextTokens is the context that the last answer took; zero before the first. The turns after
	// the first counted came later.
	contextTokens int64
	counted       int
	contextWarned bool
	imagesWarned  bool
	// titled means that the first run has ended.
	titled   bool
	loops    loopDetector
	failures failure.Ledger
	// last is the last call that does not wait, and equal the number of calls in a row that equal it.
	last  signature
	equal int
}

func (h *history) add(t session.Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = append(h.turns, t)
}

func (h *history) setTitle(title string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.title = title
}

func (h *history) getTitle() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.title
}

// list returns the turns so far.
func (h *history) list() []session.Turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.turns)
}

// withoutImages replaces each image by a text, and returns the number of images.
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

// replaceImages returns a copy of parts with a text for each image, and the number of images.
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

// imageTokens is about the most that providers count for an image.
const imageTokens = 1500

// approxTokens estimates the tokens of a request: four characters a token.
func approxTokens(req llm.Request) int64 {
	chars := utf8.RuneCountInString(req.System)
	for _, t := range req.Tools {
		chars += utf8.RuneCountInString(t.Description) + len(t.Schema)
	}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			chars += utf8.RuneCountInString(p.Text)
			if p.Kind == llm.PartImage {
				chars += imageTokens * 4
			}
			if p.ToolCall != nil {
				chars += utf8.RuneCountInString(p.ToolCall.Arguments)
			}
			if p.ToolResult != nil {
				chars += utf8.RuneCountInString(p.ToolResult.Text())
				for _, inner := range p.ToolResult.Parts {
					if inner.Kind == llm.PartImage {
						chars += imageTokens * 4
					}
				}
			}
		}
	}
	return int64(chars / 4)
}
