package helper

import (
	"encoding/json"

	"github.com/sandboxagent/sandboxagent/env"
)

// Start is what a helper opens its environment with. Names and variables may hold any bytes and stay exact.
type Start struct {
	// Dir is the working directory; empty means the helper's own.
	Dir string
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// Inherit says which of the helper's own variables commands see in addition; empty means none.
	Inherit env.VarMode
}

// startJSON is Start with its strings as bytes, which JSON has in base64.
type startJSON struct {
	Dir     []byte      `json:"dir,omitempty"`
	Vars    [][]byte    `json:"vars,omitempty"`
	Inherit env.VarMode `json:"inherit,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Start) MarshalJSON() ([]byte, error) {
	out := startJSON{Dir: []byte(s.Dir), Inherit: s.Inherit}
	for _, v := range s.Vars {
		out.Vars = append(out.Vars, []byte(v))
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Start) UnmarshalJSON(data []byte) error {
	var in startJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Inherit == "" {
		in.Inherit = env.VarsNone
	}
	if _, err := env.ParseVarMode(string(in.Inherit)); err != nil {
		return err
	}
	*s = Start{Dir: string(in.Dir), Inherit: in.Inherit}
	for _, v := range in.Vars {
		s.Vars = append(s.Vars, string(v))
	}
	return nil
}
