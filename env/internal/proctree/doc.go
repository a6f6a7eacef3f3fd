// Package proctree starts the commands of an environment and finds and kills their process trees.
//
// A command leads a session of its own. Its tree is the members of its session and groups, all of
// their descendants, and every process that carries the mark of the command.
//
// # Sets made by New
//
// The mark is an environment variable named [MarkerPrefix] plus an identifier with the value 1. It
// finds processes that have left the session and lost their parents. Its name holds the identifier,
// so that markers of nested environments stand side by side. What clears or overwrites its
// variables, starts a session and loses its parents escapes. New changes nothing process-wide: no
// sub-reaper flag, no signal handlers, no limits.
//
// # Sets made by Supervise
//
// Supervise is for a process that exists for one environment, such as a helper or PID 1 of a
// container. Such a process starts no processes by other means: its dead children are reaped here.
//
// On Linux the process becomes the parent of all orphans below it, for good, and each command gets
// a tag in place of a marker, which nothing but intent removes: the hard limit of CPU time for
// real-time threads (RLIMIT_RTTIME), in microseconds, goes down by one with every command, for this
// process too and for good. It starts far beyond what any thread can use. Everything below this
// process belongs to its environment, so that Close leaves nothing. As PID 1 of a pid namespace it
// also stops all processes of the namespace at once where nothing else is faster than a fork bomb,
// and resumes those that are not its own: processes that entered the namespace from outside, and
// their descendants. If the limit was already small enough to have an effect, markers take its
// place.
//
// On other Unix systems processes are found as by New, and the guarantees report that. On Windows
// both kinds are a job object.
package proctree
