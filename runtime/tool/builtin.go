package tool

import (
	"context"
	"embed"
	"encoding/json"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed *.md
var descriptions embed.FS

// spec describes the built-in tool name: with the text of NAME.md, and with parameters that are the
// members of a JSON object from their names to their schemas. A line break in parameters, also in a
// description, stands for a space.
func spec(name, parameters string, required ...string) llm.ToolSpec {
	text, err := descriptions.ReadFile(name + ".md")
	if err != nil {
		panic(err) // a constant of this package
	}
	schema := `{"type": "object", "properties": {`
	for line := range strings.Lines(parameters) {
		schema += strings.TrimSpace(line) + " "
	}
	schema += `}, `
	if len(required) > 0 {
		schema += `"required": ["` + strings.Join(required, `", "`) + `"], `
	}
	schema += `"additionalProperties": false}`
	return llm.ToolSpec{Name: name, Description: string(text), Schema: json.RawMessage(schema)}
}

// builtin completes the tool t with run, which receives the decoded arguments of a call.
func builtin[A any](
	t Tool, run func(ctx context.Context, call *Call, args A) (Result, error),
) Tool {
	t.proven = string(t.Schema)
	t.Run = func(ctx context.Context, call *Call) (Result, error) {
		var args A
		if err := json.Unmarshal(call.Args, &args); err != nil { // the schema allows more than A
			return Result{}, errorf(KindValidation, "decode the arguments of %s: %w", call.Name, err)
		}
		return run(ctx, call, args)
	}
	return t
}

// subjects returns a function for Tool.Subjects that gets the decoded arguments.
func subjects[A any](of func(args A) []string) func(json.RawMessage) []string {
	return func(data json.RawMessage) []string {
		var args A
		if err := json.Unmarshal(data, &args); err != nil {
			return nil
		}
		return of(args)
	}
}

// or returns *p, or otherwise if p is nil.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
