package seccomp

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rule refuses a system call.
type Rule struct {
	// Call is the name in the kernel's tables. ABIs without such a call skip the rule.
	Call string
	// When are conditions that must all hold. Without any the call is always refused.
	When []Condition
	// Errno is the error of the call. The default is EPERM.
	Errno syscall.Errno
}

// Condition is a test of an argument. A filter sees the value of an argument, not the memory that
// it points to.
type Condition struct {
	arg    int
	kind   conditionKind
	values []uint32
}

type conditionKind int

const (
	notZero conditionKind = iota
	notNil
	oneOf
	anyBit
)

// NotZero holds for an argument of 32 bits that is not 0. Arguments count from 0.
func NotZero(arg int) Condition { return Condition{arg: arg, kind: notZero} }

// NotNil holds for a pointer that is not nil.
func NotNil(arg int) Condition { return Condition{arg: arg, kind: notNil} }

// OneOf holds for an argument of 32 bits that is one of values.
func OneOf(arg int, values ...uint32) Condition {
	return Condition{arg: arg, kind: oneOf, values: values}
}

// AnyBit holds for an argument that has one of bits set in its low 32 bits.
func AnyBit(arg int, bits uint32) Condition {
	return Condition{arg: arg, kind: anyBit, values: []uint32{bits}}
}

// Offsets in the input of a filter. The low half of argument i is at offsetArgs+8*i.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// Program returns the filter for the ABIs of this system. The error is errors.ErrUnsupported on an
// architecture whose call numbers are missing here, or is about an invalid rule.
func Program(rules []Rule) ([]unix.SockFilter, error) {
	kinds := abis(runtime.GOARCH)
	if len(kinds) == 0 {
		return nil, fmt.Errorf("system call filter for %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	code := []unix.SockFilter{load(offsetArch)}
	for _, kind := range kinds {
		section, err := kind.section(rules)
		if err != nil {
			return nil, fmt.Errorf("system call filter: %w", err)
		}
		// A conditional jump cannot span a section.
		code = append(code, jumpEqual(kind.arch, 1, 0), jump(len(section)))
		code = append(code, section...)
	}
	code = append(code, refuse(unix.ENOSYS))
	if len(code) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf(
			"system call filter: %d instructions, more than %d", len(code), unix.BPF_MAXINSNS,
		)
	}
	return code, nil
}

// section returns the filter for one ABI.
func (a abi) section(rules []Rule) ([]unix.SockFilter, error) {
	code := []unix.SockFilter{load(offsetNumber)}
	if a.limit > 0 {
		code = append(code, jumpIf(unix.BPF_JGE, a.limit, 0, 1), refuse(unix.ENOSYS))
	}
	for _, r := range rules {
		number, ok := numbersOf(r.Call)
		if !ok {
			return nil, fmt.Errorf("unknown system call %q", r.Call)
		}
		if number[a.column] == none {
			continue
		}
		body := r.body()
		code = append(code, jumpEqual(uint32(number[a.column]), 0, len(body)))
		code = append(code, body...)
	}
	return append(code, allow()), nil
}

// body refuses the call if all conditions hold. Otherwise it continues behind itself with the
// number of the call loaded.
func (r Rule) body() []unix.SockFilter {
	code := []unix.SockFilter{refuse(cmp.Or(r.Errno, unix.EPERM)), load(offsetNumber)}
	for i := range r.When {
		c := r.When[len(r.When)-1-i]
		code = append(c.check(len(code)-1), code...)
	}
	return code
}

// check continues behind itself if the condition holds, and otherwise skips the next miss
// instructions as well.
func (c Condition) check(miss int) []unix.SockFilter {
	low := load(uint32(offsetArgs + 8*c.arg))
	switch c.kind {
	case notNil:
		return []unix.SockFilter{
			low,
			jumpEqual(0, 0, 2),
			load(uint32(offsetArgs + 8*c.arg + 4)),
			jumpEqual(0, miss, 0),
		}
	case oneOf:
		code := []unix.SockFilter{low}
		for i, v := range c.values {
			rest := len(c.values) - 1 - i
			other := 0
			if rest == 0 {
				other = miss
			}
			code = append(code, jumpEqual(v, rest, other))
		}
		return code
	case anyBit:
		return []unix.SockFilter{low, jumpIf(unix.BPF_JSET, c.values[0], 0, miss)}
	default: // notZero
		return []unix.SockFilter{low, jumpEqual(0, miss, 0)}
	}
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jumpEqual(k uint32, equal, other int) unix.SockFilter {
	return jumpIf(unix.BPF_JEQ, k, equal, other)
}

func jumpIf(test uint16, k uint32, holds, other int) unix.SockFilter {
	return unix.SockFilter{
		Code: unix.BPF_JMP | test | unix.BPF_K,
		K:    k,
		Jt:   uint8(holds),
		Jf:   uint8(other),
	}
}

func jump(over int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(over)}
}

func refuse(with syscall.Errno) unix.SockFilter {
	return unix.SockFilter{
		Code: unix.BPF_RET | unix.BPF_K,
		K:    unix.SECCOMP_RET_ERRNO | uint32(with),
	}
}

func allow() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
}

// Install installs a filter for all threads of this process and their descendants. It needs
// no_new_privs or CAP_SYS_ADMIN. A filter cannot be removed.
func Install(program []unix.SockFilter) error {
	return install(program, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// InstallThread installs a filter for the calling thread and its descendants.
func InstallThread(program []unix.SockFilter) error { return install(program, 0) }

func install(program []unix.SockFilter, flags uintptr) error {
	if len(program) == 0 {
		return errors.New("system call filter: it is empty")
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Without this flag all commands would run slower, for a mitigation that they do not need.
	flags |= unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	thread, _, errno := unix.Syscall(
		unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)),
	)
	runtime.KeepAlive(program)
	switch {
	case errno != 0:
		return fmt.Errorf("system call filter: %w", os.NewSyscallError("seccomp", errno))
	case thread != 0:
		return fmt.Errorf("system call filter: thread %d has another one", thread)
	}
	return nil
}
