package openai

import (
	"errors"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

func FuzzDecoders(f *testing.F) {
	f.Add(`{"type":"response.output_item.done","output_index":1,"item":{"type":"reasoning",`+
		`"encrypted_content":"x"}}`,
		`{"choices":[{"delta":{"tool_calls":[{"id":"1","function":{"name":"x","arguments":"{"}}]},`+
			`"finish_reason":"stop"}]}`)
	f.Add(`{"type":"response.completed","response":{"output":[{"type":"function_call"}]}}`,
		`{"error":[]}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, dec := range []exchange.Decoder{&responsesDecoder{provider: "p"}, &chatDecoder{}} {
			var a llm.Assembler
			for _, data := range []string{first, second, first} {
				deltas, err := dec.Event([]byte(data))
				for _, d := range deltas {
					a.Add(d)
				}
				var info *exchange.Refusal
				if errors.As(err, &info) && info.Error() == "" && info.Code == "" {
					t.Errorf("the error %q has no kind", err)
				}
			}
			dec.End(true)
			if resp, err := a.Response(); err == nil && resp.Finish == "" {
				t.Error("an answer without a finish reason")
			}
		}
	})
}
