// Package env defines the execution environment: where commands run and files live. This machine, a
// container and a remote host are environments, which the packages local, docker and ssh below this
// one open. The methods of all return the same results.
//
// [Environment] has twelve methods, composed of roles. [ReadFile], [ReadFiles], [Output] and [FS]
// are functions over it, and so are those of the packages search, snapshot, transfer and wrap. An
// environment may implement an optional interface ([MultiReader], search.Searcher) to be faster;
// the functions return the same with and without it.
//
// # Path names
//
// A name is slash-separated on every system. A relative name resolves against the working directory
// that Info reports. A name may refer to any file: an environment does not confine its callers. A
// sandbox around it does, or a decorator of package wrap. An empty name, and a name with a NUL
// byte, is fs.ErrInvalid; only an empty Command.Dir, and the empty directory of a search, is the
// working directory.
//
// # The contract
//
// Ten sentences hold for every environment. Package envtest has cases for each.
//
//  1. Names are slash-separated; relative ones resolve against the working directory.
//  2. Argv is passed as it is. No shell is involved unless Argv names one.
//  3. A process sees the base variables of the environment plus Command.Vars; of duplicates the
//     last wins. Stdin is empty unless given.
//  4. A non-zero exit code is not an error. A timeout is a field of Result. A cancellation is an
//     error. A removed environment is [ErrGone]; "the command may have run, but its outcome is
//     unknown" is [ErrUnknownOutcome]. Neither is ever exit code 0.
//  5. Exec returns when the command exits, even if a descendant holds its pipes: all bytes already
//     written are delivered, then Exec waits at most [DrainTime] for end of file. Descendants of a
//     command that ended normally live on, their output discarded, until Close. After a timeout or
//     a cancellation the whole process tree is dead before Exec returns, and no other process.
//  6. Output is streamed to the caller's writers, in bounded memory; stdout and stderr are
//     separate; bytes are exact.
//  7. WriteFile creates parents, follows symlinks, keeps the mode of an existing file and replaces
//     it by rename, so that a reader never sees half a file. Where rename is impossible it writes
//     in place and reports so. Remove is not recursive unless requested.
//  8. Stat follows symlinks; Lstat, ReadLink and ReadDir do not. Errors are *fs.PathError that wrap
//     fs.ErrNotExist, fs.ErrPermission and so on. Special files never block a read.
//  9. Every method may be called concurrently. Close is idempotent and bounded; afterwards methods
//     return fs.ErrClosed.
//  10. A command runs at most once, whatever the transport does.
//
// # Testing
//
// Package [github.com/sandboxagent/sandboxagent/env/envtest] checks an implementation or a
// decorator against this contract with one call.
package env
