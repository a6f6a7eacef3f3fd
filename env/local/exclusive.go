package local

// Exclusive is New for a process that exists for its environments alone, such as a supervisor or the first process of a
// container. Such a process must start no processes by other means: what dies among its children is reaped here.
//
// On Linux the process becomes the parent of all orphans below it, and each command gets a tag that nothing but intent
// removes: the hard limit of CPU time for real-time threads (RLIMIT_RTTIME), in microseconds, goes down a little with
// every command, for this process too and for good. It begins far beyond what any thread can use. Commands get no
// marker variable then. Everything below this process belongs to its environments, so that Close leaves nothing. As the
// first process of a pid namespace it also stops all processes of it at once where nothing else is faster than a fork bomb,
// and lets those go on that are not its own: whoever entered the namespace from outside, and what descends from there. If
// the limit was so small already that it means something, markers take its place.
//
// Up to 64 such environments may be open at once. What carries no tag any more and has left its command's tree is ended
// by the last Close. The reaping ends with it, too.
//
// On other Unix systems the processes are found as New finds them, and Info says so. On Windows Exclusive is New.
func Exclusive(cfg Config) (*Environment, error) { return open(cfg, newExclusiveJobs) }
