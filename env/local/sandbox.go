package local

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// Sandbox says what commands may touch besides the working folder. The zero value is a sandbox as strong as this machine
// has it, without a network, or none where there is none; Info tells what became of it.
//
// Within a sandbox commands change files in the working folder, in a folder of their own for temporary files, and in
// Write, and nowhere else. They read what the user may read, but not where secrets are usually kept, such as ~/.ssh.
// Where bubblewrap can be used, they have namespaces of their own, so that they see none but their own processes, and the
// hooks and the settings of the working folder's repository are mounted read-only. Where only Landlock can be used, neither
// is so. env.Info.Guarantees says what is enforced, and what each promise leaves open.
type Sandbox struct {
	// Require makes it an error where there is no sandbox to be had.
	Require bool
	// Enforce are promises that must be env.Enforced; where one is not, there is an error, also without Require.
	Enforce []env.Promise
	// Network lets commands use the network of this machine.
	Network bool
	// Write are more files and folders that commands may change. They must exist, and be absolute names.
	Write []string
	// Read is what commands may read although it would be hidden. It must exist, and be absolute names.
	Read []string
	// Hide is hidden from commands in addition to the usual places of secrets, as absolute names.
	Hide []string
}

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

// missing returns which of the promises that must be enforced are not.
func (s Sandbox) missing(info env.Info) []env.Promise {
	return slices.DeleteFunc(slices.Clone(s.Enforce), func(p env.Promise) bool { return info.Strength(p) == env.Enforced })
}
