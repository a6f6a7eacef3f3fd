package gemini_test

import (
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
)

func floods() map[string]clienttest.Flood {
	long := strings.Repeat("x", 10_000)
	same := func(event string) func(int) string {
		stream := sse(event)
		return func(int) string { return stream }
	}
	return map[string]clienttest.Flood{
		"text": {Next: same(text(long)), Err: llm.ErrAnswerTooLarge, Text: "longer than 32 MiB"},
		"thoughts": {
			Next: same(chunk(`{"text":"` + long + `","thought":true}`)),
			Err:  llm.ErrAnswerTooLarge, Text: "longer than 32 MiB",
		},
		"arguments": {
			Next: same(chunk(`{"functionCall":{"name":"x","args":{"a":"` + strings.Repeat(long, 500) +
				`"}}}`)),
			Err: llm.ErrArgumentsTooLarge, Text: "longer than 4 MiB",
		},
		"calls": {
			Next: same(chunk(`{"functionCall":{"name":"x"}}`)),
			Err:  llm.ErrTooManyToolCalls, Text: "more than 256 tool calls",
		},
		"parts": {
			Next: same(chunk(`{"x":1}`, `{"x":1}`)),
			Err:  llm.ErrAnswerTooLarge, Text: "more than 16384 parts",
		},
	}
}
