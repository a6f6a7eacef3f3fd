package env

// Info describes an environment. Its fields are what the environment reports; a remote one may lie.
type Info struct {
	// Backend is the kind of environment, such as "local".
	Backend string
	// OS and Arch are named as by the Go toolchain: "linux", "amd64".
	OS, Arch string
	// OSVersion is a line for people, such as "Debian GNU/Linux 12 (bookworm)"; empty if unknown.
	OSVersion string
	// WorkDir is the absolute, slash-separated folder that relative names resolve against.
	WorkDir string
	// Shell is the argv prefix that runs a script given as one more argument: {"/bin/bash", "-c"}. It
	// is probed once. If there is none, it is empty and NoShell says why.
	Shell   []string
	NoShell string
	// Guarantees says what the environment promises and who keeps the promise. What is not listed is
	// not promised.
	Guarantees []Guarantee
}

// A Promise is a property that an environment may or may not be able to keep.
type Promise string

// Promises that environments state.
const (
	// KillTree: after a timeout or a cancellation no descendant of the command is left.
	KillTree Promise = "kill-tree"
	// CleanClose: after Close no process that the environment started is left.
	CleanClose Promise = "clean-close"
	// CleanCrash: when the client dies without Close, nothing that the environment started is left.
	CleanCrash Promise = "clean-crash"
	// AtomicWrite: a reader never sees half a written file.
	AtomicWrite Promise = "atomic-write"
	// Isolation: commands cannot touch what lies outside the environment.
	Isolation Promise = "isolation"
)

// Promises that are parts of Isolation, which an environment states one by one where it keeps only
// some of them.
const (
	// ConfinedWrites: commands change no file outside the working folder, a folder of their own for
	// temporary files, and what was named in addition.
	ConfinedWrites Promise = "confined-writes"
	// HiddenSecrets: commands cannot read where secrets of the user are usually kept, such as ~/.ssh.
	HiddenSecrets Promise = "hidden-secrets"
	// NoNetwork: commands reach no other machine, and no server of this one by its network.
	NoNetwork Promise = "no-network"
	// HiddenSockets: commands cannot connect to unix sockets of programs outside.
	HiddenSockets Promise = "hidden-sockets"
	// HiddenProcesses: commands do not see, and cannot signal, processes outside.
	HiddenProcesses Promise = "hidden-processes"
	// NoNewRights: commands gain no rights, by set-id programs, mounts, namespaces or other processes.
	NoNewRights Promise = "no-new-rights"
	// KeptHooks: commands do not change which programs git runs when the working folder is used
	// outside: hooks and settings.
	KeptHooks Promise = "kept-hooks"
)

// Strength says how well a promise is kept.
type Strength string

// Strengths, from strongest to weakest.
const (
	// Enforced: a kernel or a runtime keeps the promise against a hostile command.
	Enforced Strength = "enforced"
	// BestEffort: the promise is kept for commands that do not work against it.
	BestEffort Strength = "best-effort"
	// Absent: the promise is not made.
	Absent Strength = "absent"
)

// Guarantee is one promise with its strength.
type Guarantee struct {
	Promise  Promise  `json:"promise"`
	Strength Strength `json:"strength"`
	// By names who keeps the promise, in a few words, and what would break it.
	By string `json:"by"`
}

// Strength returns how well the environment keeps p; Absent if it says nothing about p.
func (i Info) Strength(p Promise) Strength {
	for _, g := range i.Guarantees {
		if g.Promise == p {
			return g.Strength
		}
	}
	return Absent
}
