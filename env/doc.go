// Package env defines what an execution environment is: a place where commands run and files live. This machine, a
// container, a pod and a host over SSH are environments; callers cannot tell them apart by what a method returns.
//
// The interface has ten methods, composed of roles. Everything else is a function over them: [ReadFile], [ReadFiles],
// [Output], [Walk], [Glob], [Grep], [Upload], [Download], [TakeSnapshot], [FS]. An environment may implement an optional
// interface ([Walker], [Searcher], [MultiReader]) to do one of these faster where the files are; the function then means
// the same.
//
// # Path names
//
// A name is slash-separated on every system. A relative name resolves against the working directory that Info
// reports. A name may point anywhere: an environment does not confine its callers; confinement is a decision of
// policy, which wraps an environment. An empty name, and a name with a NUL byte, is fs.ErrInvalid.
//
// # The contract
//
// Ten sentences hold for every environment. Each has its cases in package envtest.
//
//  1. Names are slash-separated; relative ones resolve against the working directory.
//  2. Argv is passed as it is. No shell is involved unless Argv names one.
//  3. A process sees the base variables of the environment plus Command.Vars; of duplicates the last wins. Standard
//     input is empty unless given.
//  4. A non-zero exit is not an error. A timeout is a field of Result. A cancellation is an error. A place that is
//     gone is [ErrGone]; "the command may have run and nobody can know" is [ErrUnknownOutcome]. Neither is ever exit 0.
//  5. Exec returns when the command exits, even if a descendant holds its pipes: all bytes already written are
//     delivered, then at most [DrainTime] of waiting for end of file. Descendants of a command that ended normally
//     live on, their output discarded, until Close. After a timeout or a cancellation the whole tree is dead before
//     Exec returns, and nobody else's.
//  6. Output is streamed to the caller's writers, in bounded memory; stdout and stderr are separate; bytes are exact.
//  7. WriteFile makes parents, follows links, keeps the mode of an existing file and replaces it by rename, so that a
//     reader never sees half a file. Where rename is impossible it writes in place and says so. Remove is not
//     recursive unless asked.
//  8. Stat follows links, ReadDir does not. Errors are *fs.PathError with fs.ErrNotExist, fs.ErrPermission and so on
//     inside. Special files never hang a read.
//  9. Every method may be called concurrently. Close is idempotent and bounded; afterwards methods give fs.ErrClosed.
//  10. A command runs at most once, whatever the transport does.
//
// # Testing
//
// Package [github.com/sandboxagent/sandboxagent/env/envtest] checks an implementation or a decorator against this
// contract with one call.
package env
