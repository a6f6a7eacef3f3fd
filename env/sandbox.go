package env

// Sandbox says what commands may touch besides the working folder. The zero value is a sandbox as
// strong as the machine has it, without a network, or none where there is none; Info tells what
// became of it.
//
// Within a sandbox commands change files in the working folder, in a folder of their own for
// temporary files, and in Write, and nowhere else. They read what the user may read, but not where
// secrets are usually kept, such as ~/.ssh. Where bubblewrap can be used, they have namespaces of
// their own, so that they see none but their own processes, and the hooks and the settings of the
// working folder's repository are mounted read-only. Where only Landlock can be used, neither is
// so. Info.Guarantees says what is enforced, and what each promise leaves open.
type Sandbox struct {
	// Require makes it an error where there is no sandbox to be had.
	Require bool
	// Enforce are promises that must be Enforced; where one is not, there is an error, also without
	// Require.
	Enforce []Promise
	// Network lets commands use the network of the machine.
	Network bool
	// Write are more files and folders that commands may change. They must exist, and be absolute
	// names.
	Write []string
	// Read is what commands may read although it would be hidden. It must exist, and be absolute
	// names.
	Read []string
	// Hide is hidden from commands in addition to the usual places of secrets, as absolute names.
	Hide []string
}
