package openai_test

import (
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/clienttest"
)

// long is the content of the events of a flood.
var long = strings.Repeat("x", 10_000)

// same returns the same events for each piece of a flood.
func same(events ...string) func(int) string {
	stream := sse(events...)
	return func(int) string { return stream }
}

func responsesFloods() map[string]clienttest.Flood {
	const added = "response.output_item.added"
	item := func(i int, fields string) string {
		return fmt.Sprintf(`"output_index":%d,"item":{%s}`, i, fields)
	}
	return map[string]clienttest.Flood{
		"text": {
			Next: same(delta("0", long)), Err: llm.ErrAnswerTooLarge, Text: "longer than 32 MiB",
		},
		"arguments": {
			Start: sse(event(added, item(0, `"type":"function_call","call_id":"c","name":"shell"`))),
			Next: same(event("response.function_call_arguments.delta",
				`"output_index":0,"delta":"`+long+`"`)),
			Err: llm.ErrArgumentsTooLarge, Text: "longer than 4 MiB",
		},
		"whole arguments": {
			Next: func(i int) string {
				return sse(event("response.output_item.done", item(i,
					`"type":"function_call","call_id":"c","arguments":"`+strings.Repeat(long, 500)+`"`)))
			},
			Err: llm.ErrArgumentsTooLarge, Text: "longer than 4 MiB",
		},
		"calls": {
			Next: func(i int) string {
				return sse(event(added, item(i, `"type":"function_call","call_id":"c","name":"shell"`)))
			},
			Err: llm.ErrTooManyToolCalls, Text: "more than 256 tool calls",
		},
		"parts": {
			Next: func(i int) string {
				return sse(event("response.output_item.done", item(i,
					`"type":"reasoning","encrypted_content":"x"`)))
			},
			Err: llm.ErrAnswerTooLarge, Text: "more than 16384 parts",
		},
	}
}

func chatFloods() map[string]clienttest.Flood {
	return map[string]clienttest.Flood{
		"text": {Next: same(content(long)), Err: llm.ErrAnswerTooLarge, Text: "longer than 32 MiB"},
		"arguments": {
			Next: same(toolCalls(`{"index":0,"function":{"name":"shell","arguments":"` + long + `"}}`)),
			Err:  llm.ErrArgumentsTooLarge, Text: "longer than 4 MiB",
		},
		"calls": {
			Next: func(i int) string {
				return sse(toolCalls(fmt.Sprintf(`{"index":%d,"function":{"name":"shell"}}`, i)))
			},
			Err: llm.ErrTooManyToolCalls, Text: "more than 256 tool calls",
		},
		"calls in one event": {
			Next: func(int) string {
				call := `{"id":"%d","function":{"name":"x"}},`
				var calls strings.Builder
				for i := range 50_000 {
					fmt.Fprintf(&calls, call, i)
				}
				return sse(toolCalls(strings.TrimSuffix(calls.String(), ",")))
			},
			Err: llm.ErrTooManyToolCalls, Text: "more than 256 tool calls",
		},
		"parts": {
			Next: same(`{"choices":[{"delta":{"content":"a","reasoning_content":"b"}}]}`),
			Err:  llm.ErrAnswerTooLarge, Text: "more than 16384 parts",
		},
	}
}
