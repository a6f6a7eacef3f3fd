package failure

import "github.com/sandboxagent/sandboxagent/runtime/event"

// Past is a failure of an earlier session.
type Past struct {
	Failure event.Failure
	event.PastFailure
}

// Similar returns the last failure of past that is like f: of the same tool and kind, with the same
// normalized learning. One with a remedy goes first; nil without any.
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
	return f.Tool + "\x00" + f.Kind + "\x00" + Normalize(f.Learning)
}
