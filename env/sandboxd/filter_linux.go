package sandboxd

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox/seccomp"
)

// faults are signals that the Go runtime takes for errors of this program, unless kill sent them;
// those are caught like others.
var faults = [...]syscall.Signal{
	unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// libcSignals are signals of C libraries, which the Go runtime does not catch. PID 1 does not get
// signals that it does not catch, unless its first thread blocks them and another one does not:
// then the kernel delivers them. The helper never sends them. tgkill stays allowed: threads signal
// each other with it.
var libcSignals = [...]uint32{32, 33, 34}

// rules are the calls that commands are refused beside PID 1: those that act on other processes,
// forge faults or send libcSignals. Calls on the process itself, and faults by kill, are harmless.
func rules() []seccomp.Rule {
	var forged []uint32
	for _, f := range faults {
		forged = append(forged, uint32(f))
	}
	isFault := func(arg int) seccomp.Condition { return seccomp.OneOf(arg, forged...) }
	isLibcSignal := func(arg int) seccomp.Condition { return seccomp.OneOf(arg, libcSignals[:]...) }
	other := func(arg int) []seccomp.Condition { return []seccomp.Condition{seccomp.NotZero(arg)} }
	byDescriptor := []seccomp.Condition{
		seccomp.OneOf(1, unix.F_SETSIG),
		seccomp.OneOf(2, append(forged, libcSignals[:]...)...),
	}
	return []seccomp.Rule{
		// Limits of CPU time or of open files would end or starve PID 1.
		{Call: "prlimit64", When: []seccomp.Condition{seccomp.NotZero(0), seccomp.NotNil(2)}},
		// The lowest priority would starve it beside busy commands.
		{Call: "setpriority", When: other(0)}, // a group, or all of a user
		{Call: "setpriority", When: other(1)},
		{Call: "sched_setparam", When: other(0)},
		{Call: "sched_setscheduler", When: other(0)},
		{Call: "sched_setattr", When: other(0)},
		{Call: "ioprio_set", When: other(1)},
		// The number of a thread or of a process group reaches a process too.
		{Call: "kill", When: []seccomp.Condition{isLibcSignal(1)}},
		{Call: "rt_sigqueueinfo", When: []seccomp.Condition{isLibcSignal(1)}},
		{Call: "pidfd_send_signal", When: []seccomp.Condition{isLibcSignal(1)}},
		// These send details of the sender's choice, or signals by a descriptor.
		{Call: "rt_sigqueueinfo", When: []seccomp.Condition{isFault(1)}},
		{Call: "rt_tgsigqueueinfo", When: []seccomp.Condition{seccomp.OneOf(0, 1), isFault(2)}},
		{Call: "pidfd_send_signal", When: []seccomp.Condition{isFault(1), seccomp.NotNil(2)}},
		{Call: "fcntl", When: byDescriptor},
		{Call: "fcntl64", When: byDescriptor},
	}
}

// installFilter installs the filter for all threads and all commands.
func installFilter() error {
	program, err := seccomp.Program(rules())
	if err != nil {
		return err
	}
	return seccomp.Install(program)
}
