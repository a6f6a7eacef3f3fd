package helper

import (
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/controlfile"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Start configures the environment of a helper. Names and variables may hold any bytes.
type Start struct {
	// Dir is the working directory; empty means that of the helper.
	Dir string
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// Inherit selects the variables of the helper that commands inherit; empty means none.
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

// Sandbox configures a helper that starts another one in a sandbox. Names may hold any bytes. They
// may be relative to the home directory, or start with "~/". Relative names of control files in
// Write, such as ".vscode", are relative to Dir.
type Sandbox struct {
	// Dir is the working directory.
	Dir string
	env.Sandbox
}

// sandboxJSON is Sandbox with its names as bytes.
type sandboxJSON struct {
	Dir     []byte              `json:"dir,omitempty"`
	Require bool                `json:"require,omitempty"`
	Enforce []env.GuaranteeName `json:"enforce,omitempty"`
	Network bool                `json:"network,omitempty"`
	Write   [][]byte            `json:"write,omitempty"`
	Read    [][]byte            `json:"read,omitempty"`
	Hide    [][]byte            `json:"hide,omitempty"`
	NoUnix  bool                `json:"no_unix,omitempty"`

	GitReadOnly bool `json:"git_read_only,omitempty"`
	ReadOnly    bool `json:"read_only,omitempty"`
}

// Text returns the configuration as text, for ParseSandbox.
func (s Sandbox) Text() (string, error) {
	text, err := json.Marshal(sandboxJSON{
		[]byte(s.Dir), s.Require, s.Enforce, s.Network,
		toBytes(s.Write), toBytes(s.Read), toBytes(s.Hide), s.NoUnixSockets, s.GitReadOnly,
		s.ReadOnly,
	})
	return string(text), err
}

// ParseSandbox decodes the result of Text.
func ParseSandbox(text string) (Sandbox, error) {
	var in sandboxJSON
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return Sandbox{}, err
	}
	return Sandbox{string(in.Dir), env.Sandbox{
		Require: in.Require, Enforce: in.Enforce, Network: in.Network, Write: toStrings(in.Write),
		Read: toStrings(in.Read), Hide: toStrings(in.Hide), NoUnixSockets: in.NoUnix,
		GitReadOnly: in.GitReadOnly, ReadOnly: in.ReadOnly,
	}}, nil
}

// At returns the configuration with absolute names, for a home directory.
func (s Sandbox) At(home string) Sandbox {
	s.Dir = Absolute(home, s.Dir)
	s.Write = slices.Clone(s.Write)
	for i, name := range s.Write {
		if clean := path.Clean(name); fs.ValidPath(clean) && controlfile.Of(clean) {
			s.Write[i] = path.Join(s.Dir, clean)
		}
	}
	for _, names := range []*[]string{&s.Write, &s.Read, &s.Hide} {
		*names = slices.Clone(*names)
		for i, name := range *names {
			(*names)[i] = Absolute(home, name)
		}
	}
	return s
}

// Absolute returns the absolute form of a name that may be relative to a home directory.
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
