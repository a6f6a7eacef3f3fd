package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

const anyObject = `{"type": "object"}`

// fake makes a tool.
func fake(name, schema string, run func(ctx context.Context, call *Call) (Result, error)) Tool {
	if run == nil {
		run = func(context.Context, *Call) (Result, error) { return Result{Text: name}, nil }
	}
	return Tool{ToolSpec: llm.ToolSpec{
		Name: name, Description: "about " + name, Schema: json.RawMessage(schema),
	}, Run: run}
}

func TestRegistry(t *testing.T) {
	r := registry(t, fake("a", anyObject, nil), fake("b", anyObject, nil), fake("c", anyObject, nil))
	clone := r.Clone()
	replacement := fake("b", anyObject, nil)
	replacement.Description = "other"
	if err := r.Register(replacement); err != nil {
		t.Fatal(err)
	}
	if !r.Unregister("a") || r.Unregister("a") {
		t.Error("Unregister does not report whether the tool existed")
	}
	if diff := cmp.Diff([]string{"b", "c"}, r.Names()); diff != "" {
		t.Error(diff)
	}
	want := []llm.ToolSpec{
		{Name: "b", Description: "other", Schema: json.RawMessage(anyObject)},
		{Name: "c", Description: "about c", Schema: json.RawMessage(anyObject)},
	}
	if diff := cmp.Diff(want, r.Definitions()); diff != "" {
		t.Error(diff)
	}
	if got, ok := r.Get("b"); !ok || got.Description != "other" {
		t.Errorf("got %v, %v", got, ok)
	}
	if _, ok := r.Get("a"); ok {
		t.Error("the removed tool still exists")
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, clone.Names()); diff != "" {
		t.Error(diff)
	}
	if got, _ := clone.Get("b"); got.Description != "about b" {
		t.Error("the clone changed with the original")
	}
}

func TestRegisterErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		tool Tool
		want string
	}{
		{"no name", fake("", anyObject, nil), "a name must have"},
		{"bad name", fake("a b", anyObject, nil), "a name must have"},
		{"long name", fake(strings.Repeat("a", 65), anyObject, nil), "a name must have"},
		{
			"no run",
			Tool{ToolSpec: llm.ToolSpec{Name: "a", Schema: json.RawMessage(anyObject)}},
			"Run is nil",
		},
		{"no schema", fake("a", "", nil), "schema"},
		{"malformed schema", fake("a", "{", nil), "schema"},
		{"wrong schema", fake("a", `{"type": "object", "properties": 3}`, nil), "schema"},
		{"root is no object", fake("a", `{"type": "string"}`, nil), `must be "object"`},
		{"root without a type", fake("a", `{}`, nil), `must be "object"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := registry(t, fake("x", anyObject, nil))
			err := r.Register(tt.tool)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if diff := cmp.Diff([]string{"x"}, r.Names()); diff != "" {
				t.Error(diff)
			}
			if _, err := NewRegistry(tt.tool); err == nil {
				t.Error("NewRegistry takes it")
			}
		})
	}
}

func TestRegistryConcurrent(t *testing.T) {
	r := registry(t, fake("a", anyObject, nil))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprint("t", i)
			for range 50 {
				_ = r.Register(fake(name, anyObject, nil))
				r.Definitions()
				r.Clone().Names()
				r.Run(t.Context(), Scope{}, llm.ToolCall{Name: name})
				r.Unregister(name)
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff([]string{"a"}, r.Names()); diff != "" {
		t.Error(diff)
	}
}

// The built-in tools have descriptions and bound their output.
func TestBuiltins_A3(t *testing.T) {
	limits := map[string]Limit{
		"read_file": {50_000, 0, KeepHeadTail}, "read_many_files": {
			50_000, 0, KeepHeadTail,
		}, "write_file": {1_000, 0, KeepTail}, "edit_file": {10_000, 0, KeepTail},
		"apply_patch": {10_000, 0, KeepTail}, "shell": {30_000, 256, KeepHeadTail}, "grep": {
			20_000, 200, KeepHead,
		},
		"glob": {20_000, 500, KeepHead},
	}
	readOnly := map[string]bool{
		"read_file": true, "read_many_files": true, "grep": true, "glob": true,
		"list_dir": true,
	}
	for _, tool := range builtins() {
		if want, ok := limits[tool.Name]; ok && tool.Limit != want {
			t.Errorf("%s: limit %v, want %v", tool.Name, tool.Limit, want)
		}
		if tool.ReadOnly != readOnly[tool.Name] {
			t.Errorf("%s: read-only %v", tool.Name, tool.ReadOnly)
		}
		if len(tool.Description) < 40 {
			t.Errorf("%s: description %q", tool.Name, tool.Description)
		}
	}
	registry(t, Grep())
}
