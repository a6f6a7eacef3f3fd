package replay

import (
	"encoding/json"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// fileDuration is a length of time as Go writes it, such as 200ms.
type fileDuration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *fileDuration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < 0 {
		return at(n, "%q is not a duration such as 200ms or 2s", n.Value)
	}
	*d = fileDuration(v)
	return nil
}

// fileStrings is a string or a list of strings.
type fileStrings []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *fileStrings) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		var one string
		if err := n.Decode(&one); err != nil {
			return err
		}
		*s = fileStrings{one}
		return nil
	}
	return n.Decode((*[]string)(s))
}

// fileArgs is the JSON text of the arguments of a call: a mapping, or a string that is sent
// unchanged.
type fileArgs struct {
	given bool
	text  string
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *fileArgs) UnmarshalYAML(n *yaml.Node) error {
	a.given = true
	target := n
	if n.Kind == yaml.AliasNode {
		target = n.Alias
	}
	switch {
	case target.Kind == yaml.ScalarNode && target.ShortTag() == "!!str":
		a.text = target.Value
		return nil
	case target.Kind != yaml.MappingNode:
		return at(n, "args must be a mapping or a string")
	}
	plainDates(target, map[*yaml.Node]bool{})
	var v map[string]any
	if err := n.Decode(&v); err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return at(n, "args cannot be written as JSON: %v", err)
	}
	a.text = string(data)
	return nil
}

// plainDates turns the dates of YAML into strings: JSON has no dates.
func plainDates(n *yaml.Node, seen map[*yaml.Node]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	plainDates(n.Alias, seen)
	for _, child := range n.Content {
		plainDates(child, seen)
	}
}

// at returns an error with the line of n.
func at(n *yaml.Node, format string, args ...any) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, fmt.Sprintf(format,
		args...))}}
}
