package anthropic

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

func FuzzDecoder(f *testing.F) {
	f.Add(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking",`+
		`"signature":"s"}}`, `{"type":"content_block_stop","index":0}`,
		`{"type":"message_stop"}`)
	f.Add(`{"type":"content_block_start","content_block":{"type":"tool_use","input":{"a":1}}}`,
		`{"type":"content_block_stop"}`, `{"error":[]}`)
	f.Add(`{"type":"content_block_start","content_block":{"type":"redacted_thinking"}}`,
		`{"type":"content_block_stop"}`, `{"type":"error"}`)
	f.Fuzz(func(t *testing.T, first, second, third string) {
		dec := &decoder{provider: "p"}
		var a llm.Assembler
		for _, data := range []string{first, second, third, first} {
			deltas, err := dec.Event([]byte(data))
			for _, d := range deltas {
				a.Add(d)
				if d.Part != nil && len(d.Part.Reasoning.Opaque) > 0 && !json.Valid(d.Part.Reasoning.Opaque) {
					t.Errorf("the thinking %q is not JSON", d.Part.Reasoning.Opaque)
				}
			}
			var info *exchange.Refusal
			if errors.As(err, &info) && info.Error() == "" && info.Code == "" {
				t.Errorf("the error %q has no kind", err)
			}
		}
		if resp, err := a.Response(); err == nil && resp.Finish == "" {
			t.Error("an answer without a finish reason")
		}
	})
}

func FuzzInput(f *testing.F) {
	f.Add(`{"a":"\ud83d"}`)
	f.Add("{\"a\":\"\xff\"}")
	f.Add(`[1]`)
	f.Add(" \n")
	f.Fuzz(func(t *testing.T, arguments string) {
		raw, err := json.Marshal(input(arguments))
		var fields map[string]any
		if err != nil || json.Unmarshal(raw, &fields) != nil || fields == nil {
			t.Errorf("%q became %s, %v", arguments, raw, err)
		}
	})
}
