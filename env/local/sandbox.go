package local

import (
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// SandboxError reports that this machine has no sandbox, or that none enforces the required
// guarantees.
type SandboxError struct {
	// Missing are the guarantees that no sandbox enforces. It is empty if no sandbox works at all.
	Missing []env.GuaranteeName
	// Reasons explain, for each kind of sandbox, why it is unavailable or insufficient.
	Reasons []error
}

func (e *SandboxError) Error() string {
	var reasons []string
	for _, r := range e.Reasons {
		reasons = append(reasons, r.Error())
	}
	why := strings.Join(reasons, "; ")
	if len(e.Missing) == 0 {
		return "local: no sandbox works on this machine: " + why
	}
	var missing []string
	for _, p := range e.Missing {
		missing = append(missing, string(p))
	}
	return fmt.Sprintf(
		"local: no sandbox of this machine enforces %s: %s", strings.Join(missing, ", "), why,
	)
}

// Unwrap returns the reasons.
func (e *SandboxError) Unwrap() []error { return e.Reasons }
