// Package proctree starts the commands of an environment, and finds and kills all processes that
// they have started.
//
// Each command leads a session. The process tree of a command consists of the members of its
// session and of its process groups, of all their descendants, and of every process that has the
// marker of the command. A marker is a property that children inherit; it identifies processes that
// have left the session and lost their parents.
//
// # Sets made by New
//
// The marker is an environment variable whose name is [MarkerPrefix] plus an identifier, so that
// the markers of nested environments do not replace each other. A process escapes if it clears its
// variables, leaves the session and loses its parents. New changes nothing process-wide: no
// sub-reaper flag, no signal handlers, no limits.
//
// # Sets made by Supervise
//
// Supervise is for a process that serves one environment only, such as a helper. All children of
// such a process must be commands of the Set, because the Set reaps every child that dies.
//
// On Linux the process becomes the parent of all orphans among its descendants (a sub-reaper), for
// good, so StopAll can kill all descendants. The marker of a command is a resource limit, which a
// process loses only on purpose: the hard limit of CPU time for real-time threads (RLIMIT_RTTIME),
// far larger than any thread can use. Supervise and each start of a command lower the limit of this
// process by at least one, and the command inherits the new value. Where the limit is already small
// enough to have an effect, the markers are variables.
//
// PID 1 of a pid namespace can also stop all processes of the namespace at once, to kill a fork
// bomb. Afterwards it resumes those that entered the namespace from outside, and their descendants.
//
// On other Unix systems Supervise finds the same processes as New, and the guarantees report that.
// On Windows both Sets are a job object.
package proctree
