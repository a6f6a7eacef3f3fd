package anthropic_test

import (
	"fmt"
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
	block := func(block string) func(int) string {
		return func(i int) string { return sse(start(fmt.Sprint(i), block), stop(fmt.Sprint(i))) }
	}
	return map[string]clienttest.Flood{
		"text": {
			Start: sse(opened, aText), Next: same(piece("0", `{"type":"text_delta","text":"`+long+`"}`)),
			Err: llm.ErrAnswerTooLarge, Text: "longer than 32 MiB",
		},
		"signature": {
			Start: sse(opened, start("0", `{"type":"thinking"}`)),
			Next:  same(piece("0", `{"type":"signature_delta","signature":"`+long[:100]+`"}`)),
			Err:   llm.ErrAnswerTooLarge, Text: "longer than 32 MiB",
		},
		"arguments": {
			Start: sse(opened, start("0", aTool)),
			Next:  same(piece("0", `{"type":"input_json_delta","partial_json":"`+long+`"}`)),
			Err:   llm.ErrArgumentsTooLarge, Text: "longer than 4 MiB",
		},
		"whole arguments": {
			Start: sse(opened), Next: block(`{"type":"tool_use","id":"c","name":"x","input":{"a":"` +
				strings.Repeat(long, 500) + `"}}`),
			Err: llm.ErrArgumentsTooLarge, Text: "longer than 4 MiB",
		},
		"calls": {
			Start: sse(opened), Next: block(aTool),
			Err: llm.ErrTooManyToolCalls, Text: "more than 256 tool calls",
		},
		"parts": {
			Start: sse(opened), Next: block(`{"type":"redacted_thinking","data":"x"}`),
			Err: llm.ErrAnswerTooLarge, Text: "more than 16384 parts",
		},
		"open blocks": {
			Start: sse(opened), Next: func(i int) string { return sse(start(fmt.Sprint(i), `{}`)) },
			Err: llm.ErrAnswerTooLarge, Text: "more than 256 blocks",
		},
	}
}
