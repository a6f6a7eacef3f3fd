package helper

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Start is what a helper opens its environment with. Names and variables may hold any bytes and
// stay exact.
type Start struct {
	// Dir is the working directory; empty means the helper's own.
	Dir string
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// Inherit says which of the helper's own variables commands see in addition; empty means none.
	Inherit vars.Mode
}

// startJSON is Start with its strings as bytes, which JSON has in base64.
type startJSON struct {
	Dir     []byte    `json:"dir,omitempty"`
	Vars    [][]byte  `json:"vars,omitempty"`
	Inherit vars.Mode `json:"inherit,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Start) MarshalJSON() ([]byte, error) {
	return json.Marshal(startJSON{Dir: []byte(s.Dir), Vars: toBytes(s.Vars), Inherit: s.Inherit})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Start) UnmarshalJSON(data []byte) error {
	var in startJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Inherit == "" {
		in.Inherit = vars.None
	}
	if _, err := vars.ParseMode(string(in.Inherit)); err != nil {
		return err
	}
	*s = Start{Dir: string(in.Dir), Vars: toStrings(in.Vars), Inherit: in.Inherit}
	return nil
}

// Box is what a helper is told that puts a sandbox around another one. Names may hold any bytes,
// and may be relative to the home folder, or begin with "~/".
type Box struct {
	// Dir is the working folder.
	Dir string
	env.Sandbox
}

// boxJSON is Box with its names as bytes.
type boxJSON struct {
	Dir     []byte        `json:"dir,omitempty"`
	Require bool          `json:"require,omitempty"`
	Enforce []env.Promise `json:"enforce,omitempty"`
	Network bool          `json:"network,omitempty"`
	Write   [][]byte      `json:"write,omitempty"`
	Read    [][]byte      `json:"read,omitempty"`
	Hide    [][]byte      `json:"hide,omitempty"`
}

// Text returns the box as text, for ParseBox.
func (b Box) Text() (string, error) {
	text, err := json.Marshal(boxJSON{[]byte(b.Dir), b.Require, b.Enforce, b.Network, toBytes(b.Write), toBytes(b.Read), toBytes(b.Hide)})
	return string(text), err
}

// ParseBox returns the Box of a text.
func ParseBox(text string) (Box, error) {
	var in boxJSON
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return Box{}, err
	}
	return Box{string(in.Dir), env.Sandbox{
		Require: in.Require, Enforce: in.Enforce, Network: in.Network, Write: toStrings(in.Write), Read: toStrings(in.Read), Hide: toStrings(in.Hide),
	}}, nil
}

// At returns the box with absolute names, for a home folder.
func (b Box) At(home string) Box {
	b.Dir = Absolute(home, b.Dir)
	for _, names := range []*[]string{&b.Write, &b.Read, &b.Hide} {
		*names = slices.Clone(*names)
		for i, name := range *names {
			(*names)[i] = Absolute(home, name)
		}
	}
	return b
}

// Absolute returns the absolute name of what is looked for in a home folder, or begins with "~/".
func Absolute(home, name string) string {
	switch {
	case path.IsAbs(name):
		return name
	case name == "~":
		return home
	}
	return path.Join(home, strings.TrimPrefix(name, "~/"))
}

func toBytes(texts []string) (out [][]byte) {
	for _, t := range texts {
		out = append(out, []byte(t))
	}
	return out
}

func toStrings(texts [][]byte) (out []string) {
	for _, t := range texts {
		out = append(out, string(t))
	}
	return out
}
