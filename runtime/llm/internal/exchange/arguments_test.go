package exchange_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

func TestObject(t *testing.T) {
	for name, tt := range map[string]struct {
		in, want string
		no       bool
	}{
		"as written": {
			in: `{"b": 1.0, "a": 12345678901234567890}`, want: `{"b": 1.0, "a": 12345678901234567890}`,
		},
		"blank":        {in: " \n", want: `{}`},
		"space around": {in: " {} \n", want: `{}`},
		"a list":       {in: `[1]`, no: true},
		"cut":          {in: `{"a": "b`, no: true},
		"two":          {in: `{} {}`, no: true},
		"bytes":        {in: "{\"a\": \"\xff\"}", want: "{\"a\": \"\ufffd\"}"},
		"a pair": {
			in:   `{"a": "\ud83d\ude00", "n": 12345678901234567890}`,
			want: `{"a":"😀","n":12345678901234567890}`,
		},
		"half a pair":    {in: `{"a": "x\uD83Dy"}`, want: `{"a":"x` + "\ufffd" + `y"}`},
		"the other half": {in: `{"a": "\ude00"}`, want: `{"a":"` + "\ufffd" + `"}`},
	} {
		got, ok := exchange.Object(tt.in)
		if ok == tt.no || string(got) != tt.want {
			t.Errorf("%s: %s, %v", name, got, ok)
		}
	}
}

func FuzzObject(f *testing.F) {
	f.Add(`{"a": "\ud83d"}`)
	f.Add("{\"\xff\": [1, null]}")
	f.Fuzz(func(t *testing.T, in string) {
		got, ok := exchange.Object(in)
		if !ok {
			return
		}
		var fields map[string]any
		if err := json.Unmarshal(got, &fields); err != nil || !utf8.Valid(got) {
			t.Fatalf("%q became %q: %v", in, got, err)
		}
		again, ok := exchange.Object(string(got))
		if !ok || strings.TrimSpace(string(again)) != string(got) {
			t.Fatalf("%q became %q, and that %q", in, got, again)
		}
	})
}
