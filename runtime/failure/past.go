package failure

import (
	"encoding/json"
	"slices"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// Past is a failure of an earlier session.
type Past struct {
	Failure event.Failure
	event.PastFailure
}

// Similar returns the last failure of past that is like f: of the same tool and kind, with the same
// normalized learning and, where that says nothing about the call, of the same program or with the
// same arguments. One with a remedy goes first; nil without any.
func Similar(f event.Failure, past []Past) *event.PastFailure {
	var found *event.PastFailure
	for i := range past {
		p := &past[i]
		if key(p.Failure) == key(f) && (found == nil || found.Remedy == "" || p.Remedy != "") {
			found = &p.PastFailure
		}
	}
	return found
}

// key is what similar failures have in common.
func key(f event.Failure) string {
	text := f.Tool + "\x00" + f.Kind + "\x00" + Normalize(f.Learning)
	if slices.Contains(general[:], f.Learning) {
		text += "\x00" + subject(f)
	}
	return text
}

// subject returns what the call of a failure is about: the program of a command, else its
// arguments.
func subject(f event.Failure) string {
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal([]byte(f.Arguments), &args); err != nil || args.Command == "" {
		return f.Arguments
	}
	return aim(args.Command)
}
