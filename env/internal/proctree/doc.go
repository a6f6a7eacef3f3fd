// Package proctree starts the commands of an environment and finds and kills their process trees.
//
// A command leads a session. Its tree is the members of its session and groups, all of
// their descendants, and every process with the mark of the command.
//
// # Sets made by New
//
// The mark is an environment variable named [MarkerPrefix] plus an identifier, with the value 1. It
// identifies processes that have left the session and lost their parents. Since the identifier is
// part of the name, a process can have the markers of several nested environments. A process that
// clears or overwrites its variables, starts a session and loses its parents escapes. New changes
// nothing process-wide: no sub-reaper flag, no signal handlers, no limits.
//
// # Sets made by Supervise
//
// Supervise is for a process that exists for one environment, such as a helper or PID 1 of a
// container. Such a process starts no processes by other means: its dead children are reaped here.
//
// On Linux the process permanently becomes the parent of all orphans below it (a sub-reaper), and
// each command gets a tag instead of a marker, which a process loses only on purpose: the hard
// limit of CPU time for real-time threads (RLIMIT_RTTIME), in microseconds, decreases by one with
// every command, for this process too. It starts far beyond what any thread can use. All
// descendants of this process belong to its environment, so StopAll leaves none. As PID 1 of a pid
// namespace the process can also stop all processes of the namespace at once, to kill a fork bomb,
// and resumes those that entered the namespace from outside, with their descendants. If the limit
// is already small enough to have an effect, commands get markers.
//
// On other Unix systems processes are found as by New, and the guarantees report that. On Windows
// both kinds are a job object.
package proctree
