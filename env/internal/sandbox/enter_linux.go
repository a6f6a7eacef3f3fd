package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox/seccomp"
)

// Enter puts this process, and every process that it starts, into the sandbox, as far as Command
// has not done so. It verifies the rest, and returns an *Error about differences from the plan; the
// process then must exit. Nothing takes the sandbox back.
//
// Enter is called before anything else. It may execute the program again with the same arguments,
// so that all of its threads are restricted; then it does not return.
func Enter(p Plan) error {
	if err := p.enter(); err != nil {
		return &Error{By: p.By, Err: err}
	}
	return nil
}

func (p *Plan) enter() error {
	switch {
	case p.By != Bubblewrap && p.By != Landlock:
		return fmt.Errorf("%q is not a mechanism: %w", p.By, fs.ErrInvalid)
	case p.Entered:
		setCloseOnExec()
		return verifyRights()
	case p.By == Bubblewrap:
		if err := p.verify(); err != nil {
			return err
		}
	}
	program, err := seccomp.Program(rules(*p))
	if err != nil {
		return err
	}
	// The machine may write core files anywhere.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	runtime.LockOSThread() // for good: the other threads stay as they are, and end with the program
	if err := dropCapabilities(); err != nil {
		return err
	}
	// Inside bubblewrap, Landlock covers files that other processes create, mount or replace later.
	if _, err := landlockABI(); err == nil || p.By == Landlock {
		if err := p.restrict(); err != nil {
			return err
		}
	}
	if err := seccomp.InstallThread(program); err != nil {
		return err
	}
	return p.reexec()
}

// reexec executes this program with a plan that is marked as entered.
func (p *Plan) reexec() error {
	entered := *p
	entered.Entered = true
	if p.By == Bubblewrap {
		// Bubblewrap has set it for the first thread, which ends now.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
	}
	if err := inheritFiles(); err != nil {
		return err
	}
	f, err := entered.file()
	if err != nil {
		return err
	}
	if fd := int(f.Fd()); fd == planFile {
		_, err = unix.FcntlInt(planFile, unix.F_SETFD, 0)
	} else {
		err = unix.Dup3(fd, planFile, 0)
	}
	if err != nil {
		return os.NewSyscallError("dup3", err)
	}
	err = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	runtime.KeepAlive(f)
	return os.NewSyscallError("execve", err)
}

// verify returns an error about a step that bubblewrap has not done. The program of that name may
// be another one.
func (p *Plan) verify() error {
	if os.Getpid() != 1 {
		return errors.New("no pid namespace: the process is not PID 1")
	}
	if !readOnly("/") {
		return errors.New("/ can be changed")
	}
	for _, name := range slices.Concat(p.ReadOnly, p.Placeholders) {
		if !p.isHidden(name) && !readOnly(name) {
			return fmt.Errorf("%s can be changed", name)
		}
	}
	for _, name := range slices.Concat(p.Hidden, p.Sockets) {
		if err := p.verifyHidden(name); err != nil {
			return err
		}
	}
	if !p.Network {
		if err := verifyNetwork(); err != nil {
			return err
		}
	}
	return p.verifyObserved()
}

// verifyNetwork returns an error if a network beyond this machine is reachable.
func verifyNetwork() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("the network: %w", err)
	}
	for _, i := range interfaces {
		// Some kernels create the far ends of tunnels, which are down, in each namespace.
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("the network interface %s is up", i.Name)
		}
	}
	return nil
}

// verifyHidden returns an error if content of name can be read.
func (p *Plan) verifyHidden(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case info.IsDir():
		entries, err := os.ReadDir(name)
		if err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			return !p.visibleBelow(filepath.Join(name, e.Name()))
		}) {
			return nil
		}
	case info.Mode()&fs.ModeCharDevice != 0:
		return nil
	}
	return fmt.Errorf("%s is not hidden", name)
}

func readOnly(name string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(name, &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}

// dropCapabilities drops all capabilities of this thread.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return os.NewSyscallError("capset", unix.Capset(&header, &none[0]))
}

// verifyRights returns an error if this process has privileges, or could gain some.
func verifyRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if held[0].Permitted|held[1].Permitted|held[0].Effective|held[1].Effective != 0 {
		return errors.New("the process has capabilities")
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || nnp != 1 {
		return errors.New("the process may gain rights")
	}
	return nil
}

// namespaces are the flags that create namespaces.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// rules refuse system calls that programs in a sandbox do not need and that many escapes use.
func rules(p Plan) (all []seccomp.Rule) {
	for _, call := range strings.Fields(`mount umount umount2 mount_setattr move_mount open_tree
		open_tree_attr fsopen fsconfig fsmount fspick
		pivot_root setns keyctl add_key request_key bpf perf_event_open userfaultfd open_by_handle_at
		init_module finit_module delete_module kexec_load kexec_file_load`) {
		all = append(all, seccomp.Rule{Call: call})
	}
	all = append(
		all,
		seccomp.Rule{Call: "unshare", When: []seccomp.Condition{seccomp.AnyBit(0, namespaces)}},
		seccomp.Rule{Call: "clone", When: []seccomp.Condition{seccomp.AnyBit(0, namespaces)}},
		// Its flags are in memory, which filters do not see. Programs fall back to clone.
		seccomp.Rule{Call: "clone3", Errno: unix.ENOSYS},
		// These insert characters as if they were typed.
		seccomp.Rule{
			Call: "ioctl",
			When: []seccomp.Condition{seccomp.OneOf(1, unix.TIOCSTI, unix.TIOCLINUX)},
		},
	)
	// Filters do not see the operations that these submit.
	for _, call := range []string{"io_uring_setup", "io_uring_enter", "io_uring_register"} {
		all = append(all, seccomp.Rule{Call: call, Errno: unix.ENOSYS})
	}
	// Some of these reach other machines, or the kernel, without a network.
	all = append(
		all,
		seccomp.Rule{
			Call: "socket",
			When: []seccomp.Condition{
				seccomp.OneOf(
					0,
					unix.AF_VSOCK,
					unix.AF_ALG,
					unix.AF_TIPC,
					unix.AF_QIPCRTR,
					unix.AF_BLUETOOTH,
					unix.AF_CAN,
					unix.AF_RDS,
				),
			},
		},
		seccomp.Rule{Call: "socketcall", Errno: unix.ENOSYS},
	)
	if p.By == Landlock {
		// These could end a process outside by its limits.
		all = append(
			all,
			seccomp.Rule{
				Call: "prlimit64",
				When: []seccomp.Condition{seccomp.NotZero(0), seccomp.NotNil(2)},
			},
			seccomp.Rule{Call: "sched_setparam", When: []seccomp.Condition{seccomp.NotZero(0)}},
			seccomp.Rule{Call: "sched_setscheduler", When: []seccomp.Condition{seccomp.NotZero(0)}},
			seccomp.Rule{Call: "sched_setattr", When: []seccomp.Condition{seccomp.NotZero(0)}},
		)
	}
	switch {
	case p.By == Landlock && !p.Network:
		all = append(all, seccomp.Rule{Call: "socket", Errno: unix.EACCES})
	case p.RefusesUnixSockets():
		// Servers on such sockets, for example Docker or systemd, act with rights that this process
		// lacks.
		all = append(
			all,
			seccomp.Rule{
				Call:  "socket",
				Errno: unix.EACCES,
				When:  []seccomp.Condition{seccomp.OneOf(0, unix.AF_UNIX)},
			},
		)
	}
	if p.RefusesUnixSockets() {
		// Other pairs stay connected. One of datagrams can send to any name.
		all = append(all, seccomp.Rule{
			Call: "socketpair", Errno: unix.EACCES,
			When: []seccomp.Condition{seccomp.AnyBit(1, unix.SOCK_DGRAM)}, // which SOCK_RAW has too
		})
	}
	return append(all, noSetID()...)
}

// RefusesUnixSockets reports whether the filter of system calls refuses unix sockets, except
// connected pairs.
func (p *Plan) RefusesUnixSockets() bool {
	version, _ := landlockABI()
	return p.NoUnixSockets || p.By == Landlock && (!p.Network || version < socketABI)
}

// noSetID refuses to create set-id programs: outside, one would give other users the rights of this
// one.
func noSetID() (all []seccomp.Rule) {
	const setID = unix.S_ISUID | unix.S_ISGID
	for mode, calls := range map[int]string{
		1: "chmod fchmod mknod mkdir creat",
		2: "fchmodat fchmodat2 mknodat mkdirat",
	} {
		for _, call := range strings.Fields(calls) {
			all = append(
				all, seccomp.Rule{Call: call, When: []seccomp.Condition{seccomp.AnyBit(mode, setID)}},
			)
		}
	}
	// The mode is the next argument, and counts if the file is created.
	for flags, call := range map[int]string{1: "open", 2: "openat"} {
		all = append(all, seccomp.Rule{Call: call, When: []seccomp.Condition{
			seccomp.AnyBit(
				flags, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY,
			), seccomp.AnyBit(flags+1, setID),
		}})
	}
	// Its mode is in memory. Programs fall back to openat.
	return append(all, seccomp.Rule{Call: "openat2", Errno: unix.ENOSYS})
}
