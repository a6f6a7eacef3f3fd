package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// argumentSchema validates the arguments of a tool. It is safe for concurrent use.
type argumentSchema struct {
	resolved *jsonschema.Resolved
	// doc is the schema as decoded JSON, from which problems are explained.
	doc map[string]any
}

// compileSchema compiles the JSON Schema of a tool's arguments: draft 7, 2020-12, and the drafts
// between. A draft 4 or 6 schema is read as draft 7.
//
// A schema may come from an untrusted MCP server, so every $ref must point into the same document
// and must not lead back to itself: the library would load other documents and follow a cycle
// forever.
func compileSchema(schema json.RawMessage) (*argumentSchema, error) {
	var s argumentSchema
	var root jsonschema.Schema
	if err := json.Unmarshal(schema, &s.doc); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if s.doc["type"] != "object" {
		return nil, errors.New(`schema: the type of the root must be "object"`)
	}
	if err := s.validateRefs(s.doc, true); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	switch {
	case root.Schema == "" || strings.Contains(root.Schema, "json-schema.org/draft/20"):
		root.Schema = ""
	case strings.Contains(root.Schema, "json-schema.org/draft-0"):
		root.Schema = "http://json-schema.org/draft-07/schema#"
	default:
		return nil, fmt.Errorf("schema: unknown $schema %s", shown(root.Schema))
	}
	root.ID = ""
	resolved, err := root.Resolve(&jsonschema.ResolveOptions{Loader: refuseDocument})
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s.resolved = resolved
	return &s, nil
}

// lazySchema returns a function that compiles the schema of t when it is first called. It returns
// errors of the schema at once: only the schemas of the built-in tools are not compiled now,
// because compiling all of them would dominate the start of the program.
func lazySchema(t Tool) (func() (*argumentSchema, error), error) {
	compiled := sync.OnceValues(func() (*argumentSchema, error) { return compileSchema(t.Schema) })
	if t.proven != "" && t.proven == string(t.Schema) {
		return compiled, nil
	}
	_, err := compiled()
	return compiled, err
}

func refuseDocument(u *url.URL) (*jsonschema.Schema, error) {
	return nil, fmt.Errorf("%s: a schema may not refer to other documents", shown(u.String()))
}

// validateRefs checks the references in v, a part of s.doc.
func (s *argumentSchema) validateRefs(v any, root bool) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if err := s.validateRefs(item, false); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, keyword := range []string{"$id", "$dynamicRef", "$recursiveRef"} {
			if _, isText := v[keyword].(string); isText && (!root || keyword != "$id") {
				return fmt.Errorf("%s is not supported", keyword)
			}
		}
		if ref, ok := v["$ref"].(string); ok {
			if ref != "#" && !strings.HasPrefix(ref, "#/") {
				return fmt.Errorf("%s: a schema may not refer to other documents", shown(ref))
			}
			if s.cyclic(v, map[string]bool{}) {
				return fmt.Errorf("the reference %s leads back to itself", shown(ref))
			}
		}
		for _, item := range v {
			if err := s.validateRefs(item, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// cyclic reports whether validating a value by the schema v validates the same value by v again.
// open is true for the references on the path to v, and false for those without a cycle.
func (s *argumentSchema) cyclic(v any, open map[string]bool) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return s.cyclic(item, open) })
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			onPath, seen := open[ref]
			if !seen {
				open[ref] = true
				onPath = s.cyclic(s.lookup(ref), open)
				open[ref] = false
			}
			if onPath {
				return true
			}
		}
		for _, keyword := range []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else"} {
			if s.cyclic(v[keyword], open) {
				return true
			}
		}
		for _, keyword := range []string{"dependentSchemas", "dependencies"} {
			named, _ := v[keyword].(map[string]any)
			for _, schema := range named {
				if s.cyclic(schema, open) {
					return true
				}
			}
		}
	}
	return false
}

// lookup returns the part of s.doc that the JSON pointer ref names, nil if it names none.
func (s *argumentSchema) lookup(ref string) any {
	var at any = s.doc
	for _, name := range strings.Split(ref, "/")[1:] {
		if unescaped, err := url.PathUnescape(name); err == nil {
			name = unescaped
		}
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(v) {
				return nil
			}
			at = v[n]
		default:
			return nil
		}
	}
	return at
}

// validate returns nil if the decoded arguments fit the schema, else an error with a line for each
// problem, at most maxProblems.
func (s *argumentSchema) validate(arguments map[string]any) error {
	err := s.resolved.Validate(withoutNumbers(arguments))
	if err == nil {
		return nil
	}
	var e explanation
	e.walk(s, s.doc, arguments, nil)
	if len(e.problems) == 0 {
		e.add(nil, "%s", strings.TrimPrefix(err.Error(), "validating root: "))
	}
	slices.Sort(e.problems)
	e.problems = slices.Compact(e.problems)
	if more := len(e.problems) - maxProblems; more > 0 {
		e.problems = append(e.problems[:maxProblems], fmt.Sprintf("- and %d more", more))
	}
	return errors.New(strings.Join(e.problems, "\n"))
}

// withoutNumbers returns v with each json.Number as an int64, or as a float64 if it is no integer
// in range: the library treats a json.Number as a string.
func withoutNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // The largest float stands for a number out of range.
		return f
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[name] = withoutNumbers(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = withoutNumbers(item)
		}
		return out
	}
	return v
}

// explanation collects the problems of invalid arguments in words that a model can act on. The
// library reports only the first problem, by its position in the schema. explanation does not
// decide whether arguments are valid: it covers the keywords that tools use, and for other keywords
// the model reads the library's message.
type explanation struct{ problems []string }

func (e *explanation) add(path []string, format string, args ...any) {
	at := strings.Join(path, ".")
	if at != "" {
		at = shown(at) + ": "
	}
	e.problems = append(e.problems, "- "+at+cutRunes(fmt.Sprintf(format, args...), 200))
}

// walk compares v, the value at path in the arguments, with a part of the schema s.
func (e *explanation) walk(s *argumentSchema, part, v any, path []string) {
	schema, ok := part.(map[string]any)
	if !ok {
		return
	}
	if ref, ok := schema["$ref"].(string); ok {
		e.walk(s, s.lookup(ref), v, path)
	}
	if all, ok := schema["allOf"].([]any); ok {
		for _, part := range all {
			e.walk(s, part, v, path)
		}
	}
	if want := texts(schema["type"]); len(want) > 0 &&
		!slices.ContainsFunc(want, func(name string) bool { return isType(v, name) }) {
		e.add(path, "got %s, want %s", typeOf(v), strings.Join(want, " or "))
		return
	}
	if choices := texts(schema["enum"]); len(choices) > 0 {
		if text, ok := v.(string); !ok || !slices.Contains(choices, text) {
			e.add(path, "value must be one of '%s'", strings.Join(choices, "', '"))
		}
	}
	switch v := v.(type) {
	case json.Number:
		e.limits(schema, v.String(), path, "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
	case string:
		e.limits(schema, strconv.Itoa(utf8.RuneCountInString(v)), path, "minLength", "maxLength")
	case []any:
		e.limits(schema, strconv.Itoa(len(v)), path, "minItems", "maxItems")
		for i, item := range v {
			e.walk(s, schema["items"], item, append(slices.Clip(path), strconv.Itoa(i)))
		}
	case map[string]any:
		e.object(s, schema, v, path)
	}
}

func (e *explanation) object(s *argumentSchema, schema, v map[string]any, path []string) {
	var missing, unknown []string
	for _, name := range texts(schema["required"]) {
		if _, ok := v[name]; !ok {
			missing = append(missing, name)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if property, ok := properties[name]; ok {
			e.walk(s, property, v[name], append(slices.Clip(path), name))
		} else {
			unknown = append(unknown, name)
		}
	}
	switch len(missing) {
	case 0:
	case 1:
		e.add(path, "missing property '%s'", missing[0])
	default:
		e.add(path, "missing properties '%s'", strings.Join(missing, "', '"))
	}
	if schema["additionalProperties"] == false && schema["patternProperties"] == nil &&
		len(unknown) > 0 {
		e.add(path, "additional properties '%s' not allowed", strings.Join(unknown, "', '"))
	}
}

// limits checks a number, or the length of a string or an array, against keywords of the schema.
func (e *explanation) limits(schema map[string]any, got string, path []string, keywords ...string) {
	n, ok := new(big.Rat).SetString(got)
	for _, keyword := range keywords {
		limit, given := schema[keyword].(float64)
		if !ok || !given {
			continue
		}
		sign := n.Cmp(new(big.Rat).SetFloat64(limit))
		bound, exclusive := strings.CutPrefix(strings.ToLower(keyword), "exclusive")
		if sign == 0 && exclusive || sign < 0 && strings.HasPrefix(bound, "min") ||
			sign > 0 && strings.HasPrefix(bound, "max") {
			e.add(path, "%s: got %s, want %v", keyword, got, limit)
		}
	}
}

// texts returns the strings of a keyword's value, which is one string or a list; nil if it holds
// anything else.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil
			}
			list = append(list, text)
		}
		return list
	}
	return nil
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func isType(v any, name string) bool {
	number, ok := v.(json.Number)
	if name != "integer" || !ok {
		return typeOf(v) == name
	}
	n, ok := new(big.Rat).SetString(number.String())
	return ok && n.IsInt()
}
