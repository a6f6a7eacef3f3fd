package env

// Sandbox configures the sandbox around the commands of an environment. The zero value is the
// strongest sandbox that the machine has, without a network, or none on a machine without one;
// Info.Guarantees lists the guarantees and their limits.
//
// In a sandbox commands change files only in the working directory, in a private directory for
// temporary files, and in Write. They read the files that the user may read, except the home
// directory, of which they read toolchains, caches and the settings of git, and the usual files of
// secrets. With bubblewrap they run in their own namespaces, see no other
// processes, and find the hooks and settings of the working directory's repository mounted
// read-only. With Landlock alone they do not.
type Sandbox struct {
	// Require makes a machine without a sandbox an error.
	Require bool
	// Enforce lists guarantees that must be Enforced; otherwise it is an error, even without Require.
	Enforce []GuaranteeName
	// Network lets commands use the network of the machine.
	Network bool
	// GitReadOnly keeps commands from changing anything in the repository of the working directory,
	// with bubblewrap: they cannot commit or switch branches. Otherwise only its hooks and settings
	// are read-only. Write may name a .git directory to open it.
	GitReadOnly bool
	// ReadOnly keeps commands from changing anything in the working directory, with bubblewrap;
	// ReadOnlyFiles is enforced then. Elsewhere Command.Confine does.
	ReadOnly bool
	// Write lists more files and directories that commands may change: absolute names that exist.
	Write []string
	// Read lists files and directories that commands may read although they would be hidden: absolute
	// names that exist.
	Read []string
	// Hide lists files and directories that commands cannot read, in addition to the home directory
	// and the usual files of secrets: absolute names.
	Hide []string
	// NoUnixSockets keeps commands from making unix sockets, also among themselves; connected pairs
	// are allowed, unless of datagrams. HiddenSockets is enforced then.
	NoUnixSockets bool
}
