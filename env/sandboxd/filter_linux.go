package sandboxd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// faults are signals that the runtime takes for errors of this program unless they were sent with kill; then they are
// caught like others.
var faults = [...]syscall.Signal{
	unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// condition is what an argument of a system call must fulfil for a rule to apply.
type condition struct {
	arg  int
	kind conditionKind
}

type conditionKind int

const (
	isSet    conditionKind = iota // an int that is not 0
	isGiven                       // a pointer that is not nil
	isFirst                       // process 1
	isFault                       // one of faults
	isSetSig                      // the operation of fcntl that chooses a signal
)

// rule refuses a system call whose arguments fulfil all conditions.
type rule struct {
	call       call
	conditions []condition
}

// call is a system call, as an index into the numbers that a kind of program has for it.
type call int

const (
	callPrlimit call = iota
	callSetpriority
	callSetparam
	callSetscheduler
	callSetattr
	callIoprioSet
	callSigqueue
	callTgsigqueue
	callPidfdSignal
	callFcntl
	callFcntl64
	calls
)

// abi is a kind of program that the kernel runs.
type abi struct {
	arch    uint32
	numbers [calls]uint32 // 0: there is no such call
	// limit, if set, is a number from which on calls belong to another kind of program, which is refused.
	limit uint32
}

// rules are what commands are refused. All of it acts on other processes, or sends forged faults; what a process does to
// itself stays allowed. Sending a fault with kill is harmless and stays allowed, too.
func rules() []rule {
	return []rule{
		// A limit of CPU time or of open files would end process 1, or starve it.
		{callPrlimit, []condition{{0, isSet}, {2, isGiven}}},
		// The lowest priority would keep it from running beside busy commands.
		{callSetpriority, []condition{{0, isSet}}}, // a group, or all of a user
		{callSetpriority, []condition{{1, isSet}}},
		{callSetparam, []condition{{0, isSet}}},
		{callSetscheduler, []condition{{0, isSet}}},
		{callSetattr, []condition{{0, isSet}}},
		{callIoprioSet, []condition{{1, isSet}}},
		// Signals with details of the sender's choice, or sent by a descriptor.
		{callSigqueue, []condition{{1, isFault}}},
		{callTgsigqueue, []condition{{0, isFirst}, {2, isFault}}},
		{callPidfdSignal, []condition{{1, isFault}, {2, isGiven}}},
		{callFcntl, []condition{{1, isSetSig}, {2, isFault}}},
		{callFcntl64, []condition{{1, isSetSig}, {2, isFault}}},
	}
}

// Offsets in what a filter sees of a system call; the argument i has its low half at offsetArgs+8*i.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// program returns the filter for the kinds of programs that this system runs.
func program(kinds []abi) []unix.SockFilter {
	code := []unix.SockFilter{load(offsetArch)}
	for _, kind := range kinds {
		section := kind.section()
		// A jump over a section is too long for a conditional one.
		code = append(code, jumpEqual(kind.arch, 1, 0), jump(len(section)))
		code = append(code, section...)
	}
	return append(code, refuse(unix.ENOSYS))
}

// section is the filter for one kind of programs.
func (a abi) section() []unix.SockFilter {
	code := []unix.SockFilter{load(offsetNumber)}
	if a.limit > 0 {
		code = append(code,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: a.limit, Jf: 1}, refuse(unix.ENOSYS))
	}
	for _, r := range rules() {
		number := a.numbers[r.call]
		if number == 0 {
			continue
		}
		body := r.body()
		code = append(code, jumpEqual(number, 0, len(body)))
		code = append(code, body...)
	}
	return append(code, allow())
}

// body refuses if all conditions are fulfilled, and goes on behind itself with the number loaded otherwise.
func (r rule) body() []unix.SockFilter {
	code := []unix.SockFilter{refuse(unix.EPERM), load(offsetNumber)}
	for i := range r.conditions {
		c := r.conditions[len(r.conditions)-1-i]
		code = append(c.check(len(code)-1), code...)
	}
	return code
}

// check goes on behind itself if the condition is fulfilled, and otherwise leaves out the next miss instructions as well.
func (c condition) check(miss int) []unix.SockFilter {
	low := load(uint32(offsetArgs + 8*c.arg))
	switch c.kind {
	case isGiven:
		return []unix.SockFilter{low, jumpEqual(0, 0, 2), load(uint32(offsetArgs + 8*c.arg + 4)), jumpEqual(0, miss, 0)}
	case isFirst:
		return []unix.SockFilter{low, jumpEqual(1, 0, miss)}
	case isSetSig:
		return []unix.SockFilter{low, jumpEqual(unix.F_SETSIG, 0, miss)}
	case isFault:
		code := []unix.SockFilter{low}
		for i, f := range faults {
			rest := len(faults) - 1 - i
			other := 0
			if rest == 0 {
				other = miss
			}
			code = append(code, jumpEqual(uint32(f), rest, other))
		}
		return code
	default: // isSet
		return []unix.SockFilter{low, jumpEqual(0, miss, 0)}
	}
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jumpEqual(k uint32, equal, other int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: uint8(equal), Jf: uint8(other)}
}

func jump(over int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(over)}
}

func refuse(with syscall.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(with)}
}

func allow() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
}

// installFilter installs the filter for all threads, and with that for all commands.
func installFilter() error {
	kinds := abis()
	if len(kinds) == 0 {
		return fmt.Errorf("system call filter for %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	code := program(kinds)
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	switch {
	case errno != 0:
		return fmt.Errorf("system call filter: %w", os.NewSyscallError("seccomp", errno))
	case thread != 0:
		return fmt.Errorf("system call filter: thread %d has another one", thread)
	}
	return nil
}
