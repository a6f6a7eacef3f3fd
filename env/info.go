package env

import "slices"

// Info describes an environment, which reports it itself: a hostile environment may lie.
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
	// Guarantees lists the guarantees of the environment. A guarantee that is not listed is absent.
	Guarantees []Guarantee
}

// Clone returns a copy of i that shares no memory with it.
func (i Info) Clone() Info {
	i.Shell, i.Guarantees = slices.Clone(i.Shell), slices.Clone(i.Guarantees)
	return i
}

// GuaranteeName identifies a guarantee.
type GuaranteeName string

// Names of guarantees.
const (
	// KillTree: after a timeout or a cancellation no descendant of the command is left.
	KillTree GuaranteeName = "kill-tree"
	// CleanClose: after Close no process that the environment started is left.
	CleanClose GuaranteeName = "clean-close"
	// CleanCrash: after the client died without Close, no process that the environment started is
	// left.
	CleanCrash GuaranteeName = "clean-crash"
	// AtomicWrite: a reader never sees half a written file.
	AtomicWrite GuaranteeName = "atomic-write"
	// Isolation: commands cannot read, change or signal anything outside the environment.
	Isolation GuaranteeName = "isolation"
	// ConfinedCommands: a command with Command.Confine, and its descendants, can change and read no
	// other files. They can change the mode, the owner, the times and the attributes of all files of
	// their user, send signals to processes of their user, and ask programs outside to act for them.
	ConfinedCommands GuaranteeName = "confined-commands"
	// ReadOnlyFiles: commands change nothing about files, but those for temporary data, such as all
	// outside the mounts of a container, and those of Sandbox.Write.
	ReadOnlyFiles GuaranteeName = "read-only-files"
)

// Parts of Isolation, which an environment lists one by one where it has only some of them.
const (
	// ConfinedWrites: commands change no file outside the working directory, a private directory for
	// temporary files, and the files of Sandbox.Write.
	ConfinedWrites GuaranteeName = "confined-writes"
	// HiddenSecrets: commands cannot read the usual files of secrets, such as ~/.ssh.
	HiddenSecrets GuaranteeName = "hidden-secrets"
	// NoNetwork: commands reach no other machine, and no server of this one through the network.
	NoNetwork GuaranteeName = "no-network"
	// HiddenSockets: commands cannot connect to unix sockets of processes outside the sandbox.
	HiddenSockets GuaranteeName = "hidden-sockets"
	// HiddenProcesses: commands cannot see or signal processes outside the sandbox.
	HiddenProcesses GuaranteeName = "hidden-processes"
	// NoNewRights: commands gain no rights through set-id programs, mounts, namespaces or other
	// processes.
	NoNewRights GuaranteeName = "no-new-rights"
	// KeptHooks: commands cannot change the hooks and settings of the working directory's repository,
	// which make git run programs outside the sandbox. Enforced means that they cannot change anything
	// in that repository.
	KeptHooks GuaranteeName = "kept-hooks"
)

// Strength ranks a guarantee.
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

// Guarantee is a property that an environment states for every command, with its strength.
type Guarantee struct {
	Name     GuaranteeName `json:"promise"`
	Strength Strength      `json:"strength"`
	// By names the enforcing mechanism and its limits in a few words.
	By string `json:"by"`
}

// Strength returns the strength of the guarantee name; Absent if it is not listed.
func (i Info) Strength(name GuaranteeName) Strength {
	for _, g := range i.Guarantees {
		if g.Name == name {
			return g.Strength
		}
	}
	return Absent
}
