package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Schemas that would make the validation leave the document or never end are refused, by any
// keyword.
func TestSchemasRefused(t *testing.T) {
	for name, tt := range map[string]struct{ rest, want string }{
		"other document": {
			`"properties":{"a":{"$ref":"https://example.com/s"}}`, "may not refer to other documents",
		},
		"relative": {`"properties":{"a":{"$ref":"other.json#/a"}}`, "may not refer to other documents"},
		"itself":   {`"$ref":"#"`, "leads back to itself"},
		"through a keyword": {
			`"properties":{"a":{"$ref":"#/$defs/x"}},` +
				`"$defs":{"x":{"anyOf":[{"not":{"$ref":"#/$defs/y"}}]},"y":{"$ref":"#/$defs/x"}}`,
			"leads back to itself",
		},
		"beside a sound reference": {
			`"$defs":{"x":{"allOf":[{"$ref":"#/$defs/y"},{"$ref":"#/$defs/y",` +
				`"if":{"$ref":"#/$defs/x"}}]},"y":{}}`, "leads back to itself",
		},
		"another base": {
			`"properties":{"a":{"$id":"http://x/","$ref":"#"}}`, "$id is not supported",
		},
		"dynamic reference": {`"properties":{"a":{"$dynamicRef":"#a"}}`, "$dynamicRef is not supported"},
		"missing part":      {`"properties":{"a":{"$ref":"#/$defs/x"}}`, "schema"},
		"unknown draft":     {`"$schema":"https://example.com/draft"`, "unknown $schema"},
		"pattern":           {`"properties":{"a":{"pattern":"("}}`, "schema"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := compileSchema([]byte(`{"type":"object",` + tt.rest + `}`)); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	// Many references to one part are read once each.
	deep := `"$defs":{"d0":{}`
	for i := range 60 {
		deep += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}
	if _, err := compileSchema([]byte(`{"type":"object",` + deep + `}}`)); err != nil {
		t.Error(err)
	}
}

// A model reads all problems at once, each with its path in the arguments.
func TestProblemsOfArguments(t *testing.T) {
	const object = `"additionalProperties":false,"required":["n","s"],"properties":{
		"n":{"type":"integer","exclusiveMinimum":0,"maximum":9.5},
		"s":{"type":["string","null"],"maxLength":2},
		"list":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/item"}},
		"odd":{"oneOf":[{"const":1},{"const":2}]}, "even":{"multipleOf":2}},
		"$defs":{"item":{"type":"object","required":["k"],
			"properties":{"k":{"enum":["a","b"]},"more":{"$ref":"#/$defs/item"}}}}`
	for name, tt := range map[string]struct{ drafts, args, want string }{
		"fits": {
			"", `{"n":1.0,"s":null,"list":[{"k":"a","more":{"k":"b"}}],"odd":2,"even":4}`, "",
		},
		"missing":     {"", `{}`, "- missing properties 'n', 's'"},
		"one missing": {"", `{"n":1}`, "- missing property 's'"},
		"types": {
			"", `{"n":1.5,"s":3,"list":{}}`,
			"- list: got object, want array\n- n: got number, want integer\n- s: got number, want string " +
				"or null",
		},
		"limits": {
			"", `{"n":0,"s":"äöü","list":[]}`,
			"- list: minItems: got 0, want 1\n- n: exclusiveMinimum: got 0, want 0\n- s: maxLength: got " +
				"3, want 2",
		},
		"large number": {
			"", `{"n":123456789012345678901234567890,"s":""}`,
			"- n: maximum: got 123456789012345678901234567890, want 9.5",
		},
		"below": {
			"", `{"n":1,"s":"","list":[{"k":"a"},{"k":"c","more":{}}]}`,
			"- list.1.k: value must be one of 'a', 'b'\n- list.1.more: missing property 'k'",
		},
		"other keywords": {"", `{"n":1,"s":"","odd":3}`, "oneOf"},
		"draft 4": {
			"http://json-schema.org/draft-04/schema#", `{"n":1,"s":"","x":1,"y":2}`,
			"- additional properties 'x', 'y' not allowed",
		},
		"draft 2019-09": {
			"https://json-schema.org/draft/2019-09/schema", `{"n":1,"s":"","even":3}`, "multipleOf",
		},
	} {
		t.Run(name, func(t *testing.T) {
			schema := `{"$schema":"` + tt.drafts + `","type":"object",` + object + `}`
			r := registry(t, fake("x", schema, nil))
			_, failure := parseArguments(r.tools["x"].tool, r.tools["x"].schema, tt.args)
			switch {
			case failure == nil:
				if tt.want != "" {
					t.Error("the arguments fit")
				}
			case tt.want == "" || !strings.Contains(failure.Error(), tt.want) ||
				strings.HasPrefix(tt.want, "-") && !strings.HasSuffix(failure.Error(), tt.want):
				t.Errorf("got %s, want %s", failure, tt.want)
			}
		})
	}
}

// Schemas of the built-in tools are compiled on first use, so only this test proves that they
// compile.
func TestSchemasOfBuiltins(t *testing.T) {
	tools := slices.Concat(builtins(), AgentTools(&fakeAgents{}, testKinds), PlanTools(nil), []Tool{
		AnthropicGrep(), GeminiGrep(), AnthropicGlob(), GeminiGlob(),
	})
	for _, tool := range tools {
		if _, err := compileSchema(tool.Schema); err != nil || tool.proven != string(tool.Schema) {
			t.Errorf("%s: %v; compiled on first use: %t", tool.Name, err, tool.proven != "")
		}
	}
	changed := Shell()
	changed.Schema = json.RawMessage(`{"type": "object", "pattern": "("}`)
	for _, tool := range []Tool{changed, fake("x", "", nil)} {
		if _, err := NewRegistry(tool); err == nil {
			t.Errorf("the malformed schema %q of %s is accepted", tool.Schema, tool.Name)
		}
	}
}
