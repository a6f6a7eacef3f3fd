package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox/seccomp"
)

// Enter confines this process, and everything that it starts, as far as that is not done from the outside. It verifies what
// is, and returns an *Error about what is not as planned. The process then must not go on. No confinement can be taken back.
//
// It is called before anything else, and may start the program again with the same arguments, so that it happens in each
// of its threads: then Enter does not return.
func Enter(p Plan) error {
	if err := p.enter(); err != nil {
		return &Error{By: p.By, Err: err}
	}
	return nil
}

func (p *Plan) enter() error {
	switch {
	case p.By != Bubblewrap && p.By != Landlock:
		return fmt.Errorf("%q is no mechanism: %w", p.By, fs.ErrInvalid)
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
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil { // cores go where the machine puts them
		return os.NewSyscallError("setrlimit", err)
	}
	runtime.LockOSThread() // for good: the other threads stay as they are, and end with the program
	if err := dropCapabilities(); err != nil {
		return err
	}
	// In bubblewrap, Landlock is for what somebody outside makes, mounts or replaces there later.
	if _, err := landlockABI(); err == nil || p.By == Landlock {
		if err := p.restrict(); err != nil {
			return err
		}
	}
	if err := seccomp.InstallThread(program); err != nil {
		return err
	}
	return p.again()
}

// again starts this program anew, with a plan that says that it has entered.
func (p *Plan) again() error {
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

// verify returns an error about what bubblewrap has not done. A program of its name need not be it.
func (p *Plan) verify() error {
	if os.Getpid() != 1 {
		return errors.New("the process has no pid namespace of its own")
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
	return p.verifySeen()
}

// verifyNetwork returns an error if there is a network beyond this machine.
func verifyNetwork() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("the network: %w", err)
	}
	for _, i := range interfaces {
		// Some kernels give each namespace the far ends of tunnels, which are down.
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("there is the network interface %s", i.Name)
		}
	}
	return nil
}

// verifyHidden returns an error if something of a name can be read.
func (p *Plan) verifyHidden(name string) error {
	if slices.ContainsFunc(slices.Concat(p.Write, p.Read), func(other string) bool { return Within(other, name) }) {
		return nil // its surroundings have been made for that
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case info.IsDir():
		entries, err := os.ReadDir(name)
		if err == nil && len(entries) == 0 {
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

// dropCapabilities gives up what root has beyond the rights of the owner of files, for this thread.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return os.NewSyscallError("capset", unix.Capset(&header, &none[0]))
}

// verifyRights returns an error if this process has rights, or could gain some.
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

// namespaces are the flags that ask for namespaces.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// rules refuse system calls that a program has no use for in a sandbox, and that lead out of many.
func rules(p Plan) (all []seccomp.Rule) {
	for _, call := range strings.Fields(`mount umount umount2 mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick
		pivot_root setns keyctl add_key request_key bpf perf_event_open userfaultfd open_by_handle_at
		init_module finit_module delete_module kexec_load kexec_file_load`) {
		all = append(all, seccomp.Rule{Call: call})
	}
	all = append(all,
		seccomp.Rule{Call: "unshare", When: []seccomp.Condition{seccomp.AnyBit(0, namespaces)}},
		seccomp.Rule{Call: "clone", When: []seccomp.Condition{seccomp.AnyBit(0, namespaces)}},
		// Its flags are in memory, where no filter sees them. Programs that find it missing use clone.
		seccomp.Rule{Call: "clone3", Errno: unix.ENOSYS},
		// Characters as if they were typed.
		seccomp.Rule{Call: "ioctl", When: []seccomp.Condition{seccomp.OneOf(1, unix.TIOCSTI, unix.TIOCLINUX)}},
	)
	// What is asked for that way is seen by no filter.
	for _, call := range []string{"io_uring_setup", "io_uring_enter", "io_uring_register"} {
		all = append(all, seccomp.Rule{Call: call, Errno: unix.ENOSYS})
	}
	// Some of these lead off the machine, or into the kernel, whatever network there is.
	all = append(all,
		seccomp.Rule{Call: "socket", When: []seccomp.Condition{seccomp.OneOf(0, unix.AF_VSOCK, unix.AF_ALG, unix.AF_TIPC, unix.AF_QIPCRTR, unix.AF_BLUETOOTH, unix.AF_CAN, unix.AF_RDS)}},
		seccomp.Rule{Call: "socketcall", Errno: unix.ENOSYS},
	)
	if p.By == Landlock {
		// The limits of a process outside would end it.
		all = append(all,
			seccomp.Rule{Call: "prlimit64", When: []seccomp.Condition{seccomp.NotZero(0), seccomp.NotNil(2)}},
			seccomp.Rule{Call: "sched_setparam", When: []seccomp.Condition{seccomp.NotZero(0)}},
			seccomp.Rule{Call: "sched_setscheduler", When: []seccomp.Condition{seccomp.NotZero(0)}},
			seccomp.Rule{Call: "sched_setattr", When: []seccomp.Condition{seccomp.NotZero(0)}},
		)
	}
	switch version, _ := landlockABI(); {
	case p.By == Landlock && !p.Network:
		// Pairs of sockets are no network.
		all = append(all, seccomp.Rule{Call: "socket", Errno: unix.EACCES})
	case p.By == Landlock && version < socketABI:
		// Programs that take requests there, such as Docker or systemd, do what nothing in here may.
		all = append(all, seccomp.Rule{Call: "socket", Errno: unix.EACCES, When: []seccomp.Condition{seccomp.OneOf(0, unix.AF_UNIX)}})
	}
	return append(all, noSetID()...)
}

// noSetID refuses the making of set-id programs: one that belongs to this user gives others, outside, the rights of this user.
func noSetID() (all []seccomp.Rule) {
	const setID = unix.S_ISUID | unix.S_ISGID
	for mode, calls := range map[int]string{1: "chmod fchmod mknod mkdir creat", 2: "fchmodat fchmodat2 mknodat mkdirat"} {
		for _, call := range strings.Fields(calls) {
			all = append(all, seccomp.Rule{Call: call, When: []seccomp.Condition{seccomp.AnyBit(mode, setID)}})
		}
	}
	for flags, call := range map[int]string{1: "open", 2: "openat"} { // the mode comes next, and counts if a file is made
		all = append(all, seccomp.Rule{Call: call, When: []seccomp.Condition{
			seccomp.AnyBit(flags, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY), seccomp.AnyBit(flags+1, setID),
		}})
	}
	// Its mode is in memory. Programs that find it missing use openat.
	return append(all, seccomp.Rule{Call: "openat2", Errno: unix.ENOSYS})
}
