package tool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// TestResultsFitTheirSchema has a tool with a schema of results.
func TestResultsFitTheirSchema(t *testing.T) {
	const schema = `{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
		"additionalProperties": false}`
	for name, tt := range map[string]struct {
		result Result
		want   string
	}{
		"fits":         {Result{Text: `{"n": 7}`}, ""},
		"no JSON":      {Result{Text: "seven"}, "the result of t "},
		"no object":    {Result{Text: "[7]"}, "the result of t is no JSON object"},
		"nothing":      {Result{}, "the result of t "},
		"another type": {Result{Text: `{"n": "7"}`}, "does not fit its schema"},
		"missing":      {Result{Text: `{}`}, "does not fit its schema"},
		"more":         {Result{Text: `{"n": 7, "m": 8}`}, "does not fit its schema"},
		"an error":     {Result{Text: "out of order", IsError: true}, "out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			r := registry(t, Tool{
				ToolSpec: llm.ToolSpec{Name: "t", Schema: json.RawMessage(`{"type": "object"}`)},
				Output:   json.RawMessage(schema),
				Run:      func(context.Context, *Call) (Result, error) { return tt.result, nil },
			})
			o := r.Run(t.Context(), Scope{}, llm.ToolCall{ID: "a", Name: "t", Arguments: "{}"})
			if o.Result.IsError != (tt.want != "") || !strings.Contains(o.Result.Text(), tt.want) {
				t.Errorf("%q", o.Result.Text())
			}
		})
	}
	_, err := NewRegistry(Tool{
		ToolSpec: llm.ToolSpec{Name: "t", Schema: json.RawMessage(`{"type": "object"}`)},
		Output:   json.RawMessage(`{"type": "array"}`),
		Run:      func(context.Context, *Call) (Result, error) { return Result{}, nil },
	})
	if err == nil || !strings.Contains(err.Error(), "the schema of its results") {
		t.Errorf("a malformed schema: %v", err)
	}
}
