package tool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// builtins are all tools of this package.
func builtins() []Tool {
	return []Tool{
		ReadFile(), ReadManyFiles(), WriteFile(), EditFile(), ApplyPatch(), Shell(), Grep(), Glob(),
		ListDir(), AskUser(), ExitTool(),
	}
}

// registry makes a registry of tools, of all built-in ones if none are given.
func registry(t testing.TB, tools ...Tool) *Registry {
	t.Helper()
	if tools == nil {
		tools = builtins()
	}
	r, err := NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// args are arguments of a call that are not constant.
type args map[string]any

// call makes a call with arguments that are JSON text, or a value to encode.
func call(t testing.TB, name string, a any) llm.ToolCall {
	t.Helper()
	if text, ok := a.(string); ok {
		return llm.ToolCall{ID: "call_1", Name: name, Arguments: text}
	}
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return llm.ToolCall{ID: "call_1", Name: name, Arguments: string(b)}
}

// use runs a built-in tool in e, and useIn in a scope.
func use(t testing.TB, e env.Environment, name string, a any) Outcome {
	t.Helper()
	return useIn(t, Scope{Env: e}, name, a)
}

func useIn(t testing.TB, s Scope, name string, a any) Outcome {
	t.Helper()
	return registry(t).Run(t.Context(), s, call(t, name, a))
}

// kind returns the kind of an outcome's failure, or "".
func kind(o Outcome) ErrorKind {
	if o.Err == nil {
		return ""
	}
	return o.Err.Kind
}

// check checks the kind of an outcome's failure, and that its text has a part.
func check(t testing.TB, o Outcome, want ErrorKind, part string) {
	t.Helper()
	if text := o.Result.Text(); kind(o) != want || !strings.Contains(text, part) {
		t.Errorf("%q: %s\nwant %q: %s", kind(o), text, want, part)
	}
}

// checkText checks the kind of an outcome's failure, and its whole text.
func checkText(t testing.TB, o Outcome, want ErrorKind, text string) {
	t.Helper()
	if diff := cmp.Diff(text, o.Result.Text()); diff != "" || kind(o) != want {
		t.Errorf("%s %s: %q\n%s", o.Call.Name, o.Call.Arguments, kind(o), diff)
	}
}

type callCase struct {
	name string
	args string
	kind ErrorKind
	want string
}

// checkCalls runs the tool with the arguments of each case.
func checkCalls(t *testing.T, tool Tool, m *memory, cases []callCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			o := registry(t, tool).Run(t.Context(), Scope{Env: m}, call(t, tool.Name, tt.args))
			checkText(t, o, tt.kind, tt.want)
			if o.Changes != nil {
				t.Errorf("it changed %v", o.Changes)
			}
		})
	}
}
