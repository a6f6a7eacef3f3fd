package sandboxd_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// A namedAttack returns an error if something was not refused. The callers check that the target
// survives.
type namedAttack struct {
	name string
	run  func() error
}

const target = 1

// TestAttacker is the command that other tests run.
func TestAttacker(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("other tests start this as a command")
	}
	// The target forwards signals to its commands, and so to this process.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGWINCH)
	var err error
	switch name := flag.Arg(0); name {
	case "self":
		err = changeSelf()
	case "flood":
		err = flood(flag.Arg(1))
	case "socket":
		err = useSocket(flag.Arg(1))
	case "impostor":
		err = impostor(flag.Arg(1))
	default:
		err = fmt.Errorf("unknown attack %q", name)
		for _, a := range attacks() {
			if a.name == name {
				err = a.run()
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func attacks() []namedAttack {
	return []namedAttack{
		{"every signal", everySignal},
		{"forged faults", forgedFaults},
		{"faults by descriptor", faultsByDescriptor},
		{"faults by input", faultsByInput},
		{"limits", limits},
		{"priorities", priorities},
		{"tracing", tracing},
		{"files", files},
		{"descriptors", descriptors},
		{"memory", memory},
	}
}

// refused returns an error unless err is a refusal of the kernel.
func refused(what string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s: not refused", what)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil
	}
	return fmt.Errorf("%s: want a refusal: %w", what, err)
}

func errnoOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// threadsOf returns the threads of the target.
func threadsOf() []int {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", target))
	var tids []int
	for _, name := range names {
		if tid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// everySignal sends all signals, to the process and to each thread, which the kernel allows.
func everySignal() error {
	var errs []error
	for s := syscall.Signal(1); s <= 64; s++ {
		check := func(what string, err error) error {
			if slices.Contains(unusedSignals, s) {
				return refused(fmt.Sprintf("%s %d", what, s), err)
			}
			return err
		}
		errs = append(errs, check("kill with", unix.Kill(target, s)))
		for _, tid := range threadsOf() {
			errs = append(errs, unix.Tgkill(target, tid, s), check("kill a thread with", unix.Kill(tid, s)))
			if !slices.Contains(faultSignals, s) {
				_, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(tid), uintptr(s),
					uintptr(unsafe.Pointer(forged(s))))
				errs = append(errs, check("queue", errnoOf(e)))
			}
		}
	}
	return errors.Join(errs...)
}

var faultSignals = []syscall.Signal{
	unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// unusedSignals are signals that the target does not catch.
var unusedSignals = []syscall.Signal{32, 33, 34}

// forged returns a siginfo of a signal that was not sent by kill.
func forged(s syscall.Signal) *[128]byte {
	var info [128]byte
	*(*int32)(unsafe.Pointer(&info[0])) = int32(s)
	*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
	return &info
}

func forgedFaults() error {
	tids := threadsOf()
	if len(tids) < 5 {
		return fmt.Errorf("the target has the threads %v", tids)
	}
	var errs []error
	for _, s := range faultSignals {
		info := uintptr(unsafe.Pointer(forged(s)))
		for _, tid := range tids {
			_, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(tid), uintptr(s), info)
			errs = append(errs, refused(fmt.Sprintf("queue %v for thread %d", s, tid), errnoOf(e)))
			_, _, e = unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, target, uintptr(tid), uintptr(s), info, 0, 0)
			errs = append(errs, refused(fmt.Sprintf("queue %v for thread %d of its group", s, tid),
				errnoOf(e)))
		}
	}
	return errors.Join(errs...)
}

func faultsByDescriptor() error {
	fd, err := unix.PidfdOpen(target, 0)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range faultSignals {
		info := (*unix.Siginfo)(unsafe.Pointer(forged(s)))
		errs = append(errs,
			refused(fmt.Sprintf("%v by descriptor", s), unix.PidfdSendSignal(fd, s, info, 0)),
			unix.PidfdSendSignal(fd, s, nil, 0)) // without details it is like kill
	}
	for _, s := range unusedSignals {
		err := unix.PidfdSendSignal(fd, s, nil, 0)
		errs = append(errs, refused(fmt.Sprintf("%d by descriptor", s), err))
	}
	return errors.Join(errs...)
}

// faultsByInput makes the kernel send the target a fault when input arrives.
func faultsByInput() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETOWN, target)
	errs := []error{err}
	for _, s := range append(unusedSignals, faultSignals...) {
		_, err := unix.FcntlInt(uintptr(pair[0]), unix.F_SETSIG, int(s))
		errs = append(errs, refused(fmt.Sprintf("input as %v", s), err))
	}
	_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETFL, unix.O_ASYNC)
	errs = append(errs, err)
	_, err = unix.Write(pair[1], []byte("x"))
	return errors.Join(append(errs, err)...)
}

func limits() error {
	var errs []error
	for _, tid := range threadsOf() {
		for _, resource := range []int{
			unix.RLIMIT_CPU, unix.RLIMIT_NOFILE, unix.RLIMIT_AS,
			unix.RLIMIT_RTTIME, unix.RLIMIT_NPROC,
		} {
			var old unix.Rlimit
			err := unix.Prlimit(tid, resource, &unix.Rlimit{}, nil)
			errs = append(errs, unix.Prlimit(tid, resource, nil, &old), // reading does no harm
				refused(fmt.Sprintf("limit %d of %d", resource, tid), err))
		}
	}
	return errors.Join(errs...)
}

func priorities() error {
	const idle = 5 // SCHED_IDLE
	param := int32(0)
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: idle}
	var errs []error
	for _, tid := range threadsOf() {
		_, _, e := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), idle,
			uintptr(unsafe.Pointer(&param)))
		errs = append(errs, refused("scheduler", errnoOf(e)))
		_, _, e = unix.Syscall(unix.SYS_SCHED_SETPARAM, uintptr(tid), uintptr(unsafe.Pointer(&param)), 0)
		errs = append(errs, refused("scheduler parameters", errnoOf(e)))
		errs = append(errs,
			refused("scheduler attributes", unix.SchedSetAttr(tid, &attr, 0)),
			refused("priority", unix.Setpriority(unix.PRIO_PROCESS, tid, 19)))
		_, _, e = unix.Syscall(unix.SYS_IOPRIO_SET, 1, uintptr(tid), 3<<13)
		errs = append(errs, refused("I/O priority", errnoOf(e)))
	}
	return errors.Join(append(errs,
		refused("priority of the user", unix.Setpriority(unix.PRIO_USER, os.Getuid(), 19)),
		refused("priority of a group", unix.Setpriority(unix.PRIO_PGRP, target, 19)))...)
}

func tracing() error {
	return errors.Join(
		refused("attach", unix.PtraceAttach(target)),
		refused("seize", unix.PtraceSeize(target)))
}

func files() error {
	var errs []error
	for _, name := range []string{
		"mem", "environ", "maps", "fd", "fd/0", "auxv", "io", "stack",
		"clear_refs", "oom_score_adj", "coredump_filter",
	} {
		flags := os.O_RDONLY
		if name == "clear_refs" || name == "oom_score_adj" || name == "coredump_filter" {
			flags = os.O_WRONLY
		}
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", target, name), flags, 0)
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			if name == "fd" {
				_, err = f.Readdirnames(-1)
			}
			_ = f.Close()
		}
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, refused(name, err))
		}
	}
	return errors.Join(errs...)
}

func descriptors() error {
	fd, err := unix.PidfdOpen(target, 0)
	if err != nil {
		return err
	}
	var errs []error
	for i := range 20 {
		_, err := unix.PidfdGetfd(fd, i, 0)
		errs = append(errs, refused(fmt.Sprintf("descriptor %d", i), err))
	}
	return errors.Join(errs...)
}

func memory() error {
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: 0x400000, Len: 8}}
	_, readErr := unix.ProcessVMReadv(target, local, remote, 0)
	_, writeErr := unix.ProcessVMWritev(target, local, remote, 0)
	return errors.Join(refused("read", readErr), refused("write", writeErr))
}

// changeSelf changes the scheduling, the priority and a limit of this process, which is refused for
// other processes.
func changeSelf() error {
	param := int32(0)
	// SCHED_BATCH
	_, _, e := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, 3, uintptr(unsafe.Pointer(&param)))
	var old unix.Rlimit
	return errors.Join(errnoOf(e),
		unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, &old),
		unix.Setpriority(unix.PRIO_PROCESS, 0, 19))
}

// useSocket prints the answer of the helper to a wrong token.
func useSocket(socket string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	if _, err := c.Write(hello("0123456789abcdef")); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, c)
	return err
}

// impostor replaces the socket of the helper, and prints what it receives.
func impostor(socket string) error {
	if err := os.Rename(socket, socket+".old"); err != nil && !strings.HasPrefix(socket, "@") {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		received, _ := io.ReadAll(c)
		fmt.Printf("received %q\n", received)
		_ = c.Close()
	}
}

// flood connects to a socket again and again. It holds as many connections as one process may have,
// and sends a wrong token or nothing.
func flood(socket string) error {
	const held = 8
	var conns []net.Conn
	for n := 0; ; n++ {
		c, err := net.Dial("unix", socket)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		if len(conns) < held {
			if conns = append(conns, c); len(conns) == held {
				fmt.Println("flooding")
			}
			continue
		}
		if n%2 == 0 {
			_, _ = c.Write(hello("wrong"))
		}
		_ = c.Close()
	}
}

// hello returns the first line of a client.
func hello(token string) []byte {
	return fmt.Appendf(nil, "{\"version\":%d,\"client\":\"x\",\"token\":%q}\n", wire.Version, token)
}
