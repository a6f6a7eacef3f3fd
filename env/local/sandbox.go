package local

import (
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// SandboxError means that a sandbox that was required is not to be had on this machine, or cannot enforce what it must.
type SandboxError struct {
	// Missing are the promises that no sandbox here enforces; empty if there is none at all.
	Missing []env.Promise
	// Reasons say, for each kind of sandbox, why it is not to be had or is not enough.
	Reasons []error
}

func (e *SandboxError) Error() string {
	var reasons []string
	for _, r := range e.Reasons {
		reasons = append(reasons, r.Error())
	}
	why := strings.Join(reasons, "; ")
	if len(e.Missing) == 0 {
		return "local: no sandbox is to be had here: " + why
	}
	var missing []string
	for _, p := range e.Missing {
		missing = append(missing, string(p))
	}
	return fmt.Sprintf("local: no sandbox here enforces %s: %s", strings.Join(missing, ", "), why)
}

// Unwrap returns the reasons.
func (e *SandboxError) Unwrap() []error { return e.Reasons }
