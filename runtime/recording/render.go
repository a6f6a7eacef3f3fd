package recording

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// render returns a request as text for comparisons: all that a journal determines, the texts of
// messages normalized.
func render(req llm.Request, dir string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("model %s", req.Model)
	if req.ReasoningEffort != "" {
		line("reasoning effort %s", req.ReasoningEffort)
	}
	line("system:\n%s", req.System)
	for _, t := range req.Tools {
		line("tool %s:\n%s\n%s", t.Name, t.Description, compact(t.Schema))
	}
	for i, m := range req.Messages {
		line("message %d of %s:", i+1, m.Role)
		var inner strings.Builder
		renderParts(&inner, m.Parts)
		b.WriteString(normalize(inner.String(), dir))
	}
	return b.String()
}

func renderParts(b *strings.Builder, parts []llm.Part) {
	for _, p := range parts {
		switch {
		case p.Reasoning != nil:
			fmt.Fprintf(b, "reasoning %s %s\n%s\n", p.Reasoning.Provider, compact(p.Reasoning.Opaque),
				p.Reasoning.Text)
		case p.Image != nil:
			fmt.Fprintf(b, "[an image, %s, %d bytes]\n", p.Image.MIME, len(p.Image.Data))
		case p.ToolCall != nil:
			fmt.Fprintf(b, "call %s %s %s\n", p.ToolCall.ID, p.ToolCall.Name, p.ToolCall.Arguments)
		case p.ToolResult != nil:
			kind := "result"
			if p.ToolResult.IsError {
				kind = "error"
			}
			fmt.Fprintf(b, "%s %s %s:\n", kind, p.ToolResult.CallID, p.ToolResult.Name)
			renderParts(b, p.ToolResult.Parts)
		default:
			b.WriteString(p.Text + "\n")
		}
	}
}

// compact returns JSON as a journal has it.
func compact(raw json.RawMessage) string {
	if text, err := json.Marshal(raw); err == nil {
		return string(text)
	}
	return string(raw)
}

// maxDiff bounds a difference, in bytes.
const maxDiff = 6000

// difference returns the difference of two requests.
func difference(recorded, present string) string {
	text := udiff.Unified("recorded", "present", recorded, present)
	if len(text) <= maxDiff {
		return text
	}
	end := strings.LastIndexByte(text[:maxDiff], '\n') + 1
	if end == 0 {
		end = maxDiff
	}
	return fmt.Sprintf("%s[%d more bytes]\n", strings.ToValidUTF8(text[:end], ""), len(text)-end)
}

// likeness returns the share of lines that two requests have in common, from 0 to 1.
func likeness(a, b string) float64 {
	count := make(map[string]int)
	n, shared := 0, 0
	for line := range strings.SplitSeq(a, "\n") {
		count[line]++
		n++
	}
	for line := range strings.SplitSeq(b, "\n") {
		n++
		if count[line] > 0 {
			count[line]--
			shared += 2
		}
	}
	return float64(shared) / float64(n)
}
