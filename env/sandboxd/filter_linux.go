package sandboxd

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox/seccomp"
)

// faults are signals that the runtime takes for errors of this program unless they were sent with kill; then they are
// caught like others.
var faults = [...]syscall.Signal{
	unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// unused are signals that the runtime does not catch, since they are those of C libraries. One that is sent to process 1 ends it, as
// it would any other, while the thread that began it blocks signals and another one does not: in that state the kernel does
// not tell that it is process 1, which gets no signal that it does not catch. Threads send them to each other by tgkill, which is
// no danger.
var unused = [...]uint32{32, 33, 34}

// rules are what commands are refused beside process 1. All of it acts on other processes, sends forged faults or what is unused; else
// a process may do to itself what it likes. Sending a fault with kill is harmless and stays allowed, too.
func rules() []seccomp.Rule {
	var forged []uint32
	for _, f := range faults {
		forged = append(forged, uint32(f))
	}
	isFault := func(arg int) seccomp.Condition { return seccomp.OneOf(arg, forged...) }
	isUnused := func(arg int) seccomp.Condition { return seccomp.OneOf(arg, unused[:]...) }
	other := func(arg int) []seccomp.Condition { return []seccomp.Condition{seccomp.NotZero(arg)} }
	byDescriptor := []seccomp.Condition{seccomp.OneOf(1, unix.F_SETSIG), seccomp.OneOf(2, append(forged, unused[:]...)...)}
	return []seccomp.Rule{
		// A limit of CPU time or of open files would end process 1, or starve it.
		{Call: "prlimit64", When: []seccomp.Condition{seccomp.NotZero(0), seccomp.NotNil(2)}},
		// The lowest priority would keep it from running beside busy commands.
		{Call: "setpriority", When: other(0)}, // a group, or all of a user
		{Call: "setpriority", When: other(1)},
		{Call: "sched_setparam", When: other(0)},
		{Call: "sched_setscheduler", When: other(0)},
		{Call: "sched_setattr", When: other(0)},
		{Call: "ioprio_set", When: other(1)},
		// A process is also meant by the number of one of its threads, or by a group.
		{Call: "kill", When: []seccomp.Condition{isUnused(1)}},
		{Call: "rt_sigqueueinfo", When: []seccomp.Condition{isUnused(1)}},
		{Call: "pidfd_send_signal", When: []seccomp.Condition{isUnused(1)}},
		// Signals with details of the sender's choice, or sent by a descriptor.
		{Call: "rt_sigqueueinfo", When: []seccomp.Condition{isFault(1)}},
		{Call: "rt_tgsigqueueinfo", When: []seccomp.Condition{seccomp.OneOf(0, 1), isFault(2)}},
		{Call: "pidfd_send_signal", When: []seccomp.Condition{isFault(1), seccomp.NotNil(2)}},
		{Call: "fcntl", When: byDescriptor},
		{Call: "fcntl64", When: byDescriptor},
	}
}

// installFilter installs the filter for all threads, and with that for all commands.
func installFilter() error {
	program, err := seccomp.Program(rules())
	if err != nil {
		return err
	}
	return seccomp.Install(program)
}
