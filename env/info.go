package env

import "slices"

// Info describes an environment. The environment itself reports it; a hostile one may lie.
type Info struct {
	// Backend names the backend, such as "local".
	Backend string
	// OS and Arch are named as by the Go toolchain: "linux", "amd64".
	OS, Arch string
	// OSVersion is one line of text, such as "Debian GNU/Linux 12 (bookworm)"; empty if unknown.
	OSVersion string
	// WorkDir is the working directory, absolute and slash-separated.
	WorkDir string
	// Shell is the start of an argv that runs a script given as one more argument:
	// {"/bin/bash", "-c"}. If it is empty, NoShell is the reason.
	Shell   []string
	NoShell string
	// Guarantees lists the guarantees of the environment. A promise that is not listed is absent.
	Guarantees []Guarantee
}

// Clone returns a copy of i that shares no memory with it.
func (i Info) Clone() Info {
	i.Shell, i.Guarantees = slices.Clone(i.Shell), slices.Clone(i.Guarantees)
	return i
}

// A Promise names what a Guarantee is about.
type Promise string

// Promises of environments.
const (
	// KillTree: after a timeout or a cancellation no descendant of the command is left.
	KillTree Promise = "kill-tree"
	// CleanClose: after Close no process that the environment started is left.
	CleanClose Promise = "clean-close"
	// CleanCrash: after the client died without Close, no process that the environment started is
	// left.
	CleanCrash Promise = "clean-crash"
	// AtomicWrite: a reader never sees half a written file.
	AtomicWrite Promise = "atomic-write"
	// Isolation: commands cannot read, change or signal anything outside the environment.
	Isolation Promise = "isolation"
)

// Parts of Isolation, which an environment lists one by one where it has only some of them.
const (
	// ConfinedWrites: commands change no file outside the working directory, a private directory for
	// temporary files, and the files of Sandbox.Write.
	ConfinedWrites Promise = "confined-writes"
	// HiddenSecrets: commands cannot read the usual files of secrets, such as ~/.ssh.
	HiddenSecrets Promise = "hidden-secrets"
	// NoNetwork: commands reach no other machine, and no server of this one through the network.
	NoNetwork Promise = "no-network"
	// HiddenSockets: commands cannot connect to unix sockets of processes outside the sandbox.
	HiddenSockets Promise = "hidden-sockets"
	// HiddenProcesses: commands cannot see or signal processes outside the sandbox.
	HiddenProcesses Promise = "hidden-processes"
	// NoNewRights: commands gain no rights through set-id programs, mounts, namespaces or other
	// processes.
	NoNewRights Promise = "no-new-rights"
	// KeptHooks: commands cannot change the hooks and settings of the working directory's repository,
	// which make git run programs outside the sandbox.
	KeptHooks Promise = "kept-hooks"
)

// Strength is how strong a guarantee is.
type Strength string

// Strengths, from strongest to weakest.
const (
	// Enforced: a kernel or a container runtime enforces it against a hostile command.
	Enforced Strength = "enforced"
	// BestEffort: it holds for commands that do not work against it.
	BestEffort Strength = "best-effort"
	// Absent: it does not hold.
	Absent Strength = "absent"
)

// Guarantee is a promise of an environment with its strength.
type Guarantee struct {
	Promise  Promise  `json:"promise"`
	Strength Strength `json:"strength"`
	// By names in a few words the enforcing mechanism and its limits.
	By string `json:"by"`
}

// Strength returns the strength of p; Absent if p is not listed.
func (i Info) Strength(p Promise) Strength {
	for _, g := range i.Guarantees {
		if g.Promise == p {
			return g.Strength
		}
	}
	return Absent
}
