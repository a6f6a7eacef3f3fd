package gemini

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// The deltas of any event can be sent back.
func FuzzDecoder(f *testing.F) {
	f.Add(`{"candidates":[{"content":{"parts":[{"functionCall":{"id":"i","name":"f",`+
		`"args":{"a":1}},"thoughtSignature":"s"}]},"finishReason":"STOP"}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":"s"},{"text":"b"},`+
			`{"executableCode":{}},{"text":"t","thought":true}]}}]}`)
	f.Add(`{"error":[]}`, `[{"error":{"status":"INTERNAL"}}]`)
	f.Add(`{"candidates":[{"content":{"parts":[null,{"functionCall":{"args":7}}]}}],`+
		`"usageMetadata":{}}`, `{"promptFeedback":{"blockReason":"x"}}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		d := decoder{provider: "p"}
		var a llm.Assembler
		add := func(deltas []llm.Delta) {
			for _, delta := range deltas {
				a.Add(delta)
			}
		}
		for _, data := range []string{first, second, first} {
			deltas, err := d.Event([]byte(data))
			add(deltas)
			if err != nil {
				return
			}
		}
		done, ok := d.End(true)
		if !ok {
			return
		}
		add([]llm.Delta{done})
		resp, err := a.Response()
		if err != nil || resp.Finish == "" {
			t.Fatalf("got %+v, %v", resp, err)
		}
		c := client{&exchange.Endpoint{Config: exchange.Config{Provider: "p"}}}
		content, err := c.request(llm.Request{
			Model: "gemini-3-pro", Messages: []llm.Message{resp.Message},
		})
		if err != nil {
			t.Fatalf("the answer cannot be sent back: %v", err)
		}
		if _, err := json.Marshal(content); err != nil {
			t.Fatalf("the answer cannot be written: %v", err)
		}
	})
}

func FuzzToolName(f *testing.F) {
	f.Add("shell")
	f.Add("größer.x")
	f.Add("")
	f.Fuzz(func(t *testing.T, name string) {
		got := toolName(name)
		if got == "" || len(got) > 64 || !utf8.ValidString(got) || !isLetter(rune(got[0])) ||
			toolName(got) != got {
			t.Errorf("%q became %q", name, got)
		}
	})
}
