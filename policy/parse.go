package policy

import (
	_ "embed" // for the schema
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Schema is the JSON Schema of files with policies.
//
//go:embed schema.json
var Schema string

// maxPolicy bounds a file with a policy, in bytes, and maxRules the number of its rules.
const (
	maxPolicy = 1 << 20
	maxRules  = 1000
)

// SyntaxError is a mistake in a policy.
type SyntaxError struct {
	// File is the name that Parse got, Line starts at 1; 0 if unknown.
	File string
	Line int
	// Field is the place, such as "rules[2].action"; may be empty.
	Field  string
	Reason string
}

func (e *SyntaxError) Error() string {
	text := e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d", e.Line)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Reason
}

// Parse parses a policy in YAML; file is its name for messages. Errors are *SyntaxError, all that
// were found, joined.
//
//	preset: workspace-write        # optional: its rules follow those of the file
//	default: ask                   # optional: allow, ask or deny, else that of the preset, else ask
//	rules:
//	  - {permission: shell, pattern: "git push *", action: deny}
func Parse(data []byte, file string) (*Policy, error) {
	p := &parser{file: file}
	if len(data) > maxPolicy {
		return nil, &SyntaxError{File: file, Reason: fmt.Sprintf("more than %d bytes", maxPolicy)}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &Policy{}, nil
	case err != nil:
		return nil, &SyntaxError{File: file, Reason: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &SyntaxError{File: file, Reason: "more than one document"}
	}
	parsed := p.document(doc.Content[0])
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return parsed, nil
}

// parser collects the mistakes in a file.
type parser struct {
	file string
	errs []error
}

func (p *parser) bad(n *yaml.Node, field, format string, args ...any) {
	p.errs = append(p.errs, &SyntaxError{p.file, n.Line, field, fmt.Sprintf(format, args...)})
}

// fields calls use for each field of a mapping. The fields must be among those named, each once.
func (p *parser) fields(
	n *yaml.Node, at string, names []string, use func(name string, v *yaml.Node),
) {
	if n.Kind != yaml.MappingNode {
		p.bad(n, at, "a mapping with the fields %s is required", strings.Join(names, ", "))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		switch {
		case !slices.Contains(names, name):
			p.bad(n.Content[i], join(at, name), "unknown field (known: %s)", strings.Join(names, ", "))
		case seen[name]:
			p.bad(n.Content[i], join(at, name), "given twice")
		default:
			use(name, n.Content[i+1])
		}
		seen[name] = true
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// text returns the text of a node.
func (p *parser) text(n *yaml.Node, field string) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || strings.TrimSpace(n.Value) == "" {
		p.bad(n, field, "a text is required; put it in quotes")
		return ""
	}
	return n.Value
}

// action returns the action of a node.
func (p *parser) action(n *yaml.Node, field string) Action {
	a := Action(n.Value)
	if n.Kind != yaml.ScalarNode || !slices.Contains(actions, a) {
		p.bad(n, field, "%q is not one of allow, ask, deny", n.Value)
	}
	return a
}

func (p *parser) document(n *yaml.Node) *Policy {
	policy := &Policy{}
	var preset *Policy
	p.fields(n, "", []string{"preset", "default", "rules"}, func(name string, v *yaml.Node) {
		switch name {
		case "preset":
			if preset = Preset(v.Value); preset == nil {
				p.bad(v, name, "%q is not one of %s", v.Value, strings.Join(Presets(), ", "))
			}
		case "default":
			policy.Default = p.action(v, name)
		case "rules":
			if v.Kind != yaml.SequenceNode {
				p.bad(v, name, "a list is required")
				return
			}
			if len(v.Content) > maxRules {
				p.bad(v, name, "more than %d rules", maxRules)
				return
			}
			for i, item := range v.Content {
				policy.Rules = append(policy.Rules, p.rule(item, fmt.Sprintf("rules[%d]", i)))
			}
		}
	})
	if preset != nil {
		policy.Rules = append(policy.Rules, preset.Rules...)
		if policy.Default == "" {
			policy.Default = preset.Default
		}
	}
	return policy
}

func (p *parser) rule(n *yaml.Node, at string) Rule {
	r := Rule{Source: fmt.Sprintf("%s:%d", p.file, n.Line)}
	before := len(p.errs)
	p.fields(n, at, []string{"permission", "pattern", "action"}, func(name string, v *yaml.Node) {
		switch field := join(at, name); name {
		case "permission":
			if r.Permission = p.text(v, field); strings.ContainsAny(r.Permission, " \t:") {
				p.bad(v, field, "%q is not a tool, a class of tools or *", r.Permission)
			}
		case "pattern":
			r.Pattern = p.text(v, field)
		case "action":
			r.Action = p.action(v, field)
		}
	})
	if len(p.errs) == before && (r.Permission == "" || r.Action == "") {
		p.bad(n, at, "permission and action are required")
	}
	return r
}

// ParseRule parses PERMISSION:PATTERN, or PERMISSION alone for all subjects. Source is for
// messages.
func ParseRule(action Action, text, source string) (Rule, error) {
	permission, pattern, ok := strings.Cut(text, ":")
	if permission == "" || ok && strings.TrimSpace(pattern) == "" ||
		strings.ContainsAny(permission, " \t") {
		return Rule{}, fmt.Errorf("%q is not of the form PERMISSION:PATTERN, such as "+
			"'shell:git status *'", text)
	}
	return Rule{Permission: permission, Pattern: pattern, Action: action, Source: source}, nil
}
