// Attempt makes system calls that a sandbox must refuse, and reports what the kernel answers.
//
//	attempt PID      makes all of them, each in a process of its own, in the working directory
//	attempt PID NAME makes one
//
// PID is a process that those which act on another one choose. A line of the output is the name of
// a call, and its error number or 0. The arguments are such that a call that is not refused does
// nothing, or nothing that outlives its process, beside files in the working directory.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An attempt makes a system call.
type attempt func(target int) unix.Errno

func main() {
	target, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	all := calls()
	maps.Copy(all, callsOfArch())
	if len(os.Args) > 2 {
		runtime.LockOSThread()
		fmt.Println(int(all[os.Args[2]](target)))
		return
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		cmd := exec.Command("/proc/self/fd/3", os.Args[1], name)
		cmd.ExtraFiles = []*os.File{self}
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(nil, "%v: %s", err, out)
		}
		fmt.Printf("%s\t%s\n", name, strings.TrimSpace(string(out)))
	}
}

// call returns an attempt with these arguments. A string becomes a C string, and a []byte or a
// pointer the address of its memory.
func call(number uintptr, args ...any) attempt {
	return func(int) unix.Errno { return errno(number, args...) }
}

func errno(number uintptr, args ...any) unix.Errno {
	var raw [6]uintptr
	for i, arg := range args {
		switch arg := arg.(type) {
		case int:
			raw[i] = uintptr(arg)
		case string:
			p, err := unix.BytePtrFromString(arg)
			if err != nil {
				panic(err)
			}
			raw[i] = uintptr(unsafe.Pointer(p))
			defer runtime.KeepAlive(p)
		case []byte:
			raw[i] = uintptr(unsafe.Pointer(&arg[0]))
		case unsafe.Pointer:
			raw[i] = uintptr(arg)
		default:
			panic(fmt.Sprintf("%T", arg))
		}
	}
	_, _, e := unix.RawSyscall6(number, raw[0], raw[1], raw[2], raw[3], raw[4], raw[5])
	runtime.KeepAlive(args)
	return e
}

// here is the working directory, for calls that take a directory.
const here = unix.AT_FDCWD

// missing is a file that does not exist.
const missing = "/sandboxagent-attack/missing"

// calls returns the attempts that all architectures have.
func calls() map[string]attempt {
	all := map[string]attempt{}
	for _, group := range []map[string]attempt{
		mounts(), namespaces(), kernel(), processes(), rights(), setID(), sockets(),
	} {
		maps.Copy(all, group)
	}
	return all
}

func mounts() map[string]attempt {
	return map[string]attempt{
		"mount":         call(unix.SYS_MOUNT, "none", missing, "tmpfs", 0, 0),
		"umount2":       call(unix.SYS_UMOUNT2, missing, 0),
		"pivot_root":    call(unix.SYS_PIVOT_ROOT, missing, missing),
		"chroot":        call(unix.SYS_CHROOT, "/"),
		"mount_setattr": call(unix.SYS_MOUNT_SETATTR, here, missing, 0, make([]byte, 32), 32),
		"move_mount":    call(unix.SYS_MOVE_MOUNT, here, missing, here, missing, 0),
		"open_tree":     call(unix.SYS_OPEN_TREE, here, missing, unix.OPEN_TREE_CLONE),
		"fsopen":        call(unix.SYS_FSOPEN, "tmpfs", 0),
		"fsconfig":      call(unix.SYS_FSCONFIG, -1, 0, 0, 0, 0),
		"fsmount":       call(unix.SYS_FSMOUNT, -1, 0, 0),
		"fspick":        call(unix.SYS_FSPICK, here, missing, 0),
		"swapon":        call(unix.SYS_SWAPON, missing, 0),
		"swapoff":       call(unix.SYS_SWAPOFF, missing),
		"acct":          call(unix.SYS_ACCT, missing),
		"open_by_handle_at": call(
			unix.SYS_OPEN_BY_HANDLE_AT, here, make([]byte, 128), unix.O_RDONLY,
		),
		"fanotify_init": call(unix.SYS_FANOTIFY_INIT, 0, 0),
	}
}

func namespaces() map[string]attempt {
	all := map[string]attempt{
		"clone3": call(unix.SYS_CLONE3, 0, 0),
		"setns":  call(unix.SYS_SETNS, -1, 0),
	}
	for name, flag := range map[string]int{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET,
		"pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS,
		"cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	} {
		all["unshare "+name] = call(unix.SYS_UNSHARE, flag)
		if name == "time" {
			continue // clone takes no such flag
		}
		all["clone "+name] = func(int) unix.Errno {
			pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(flag)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if e == 0 && pid == 0 {
				_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0) // it does not return
			}
			return e
		}
	}
	return all
}

// kernel is about the state of the whole machine.
func kernel() map[string]attempt {
	badTick := unix.Timex{Modes: unix.ADJ_TICK, Tick: 1}
	return map[string]attempt{
		"reboot":          call(unix.SYS_REBOOT, 0, 0, 0, 0),
		"kexec_load":      call(unix.SYS_KEXEC_LOAD, 0, 1000, 0, 0),
		"init_module":     call(unix.SYS_INIT_MODULE, 0, 0, ""),
		"finit_module":    call(unix.SYS_FINIT_MODULE, -1, "", 0),
		"delete_module":   call(unix.SYS_DELETE_MODULE, "sandboxagent_missing", 0),
		"sethostname":     call(unix.SYS_SETHOSTNAME, "", -1),
		"setdomainname":   call(unix.SYS_SETDOMAINNAME, "", -1),
		"settimeofday":    call(unix.SYS_SETTIMEOFDAY, 0, 0),
		"adjtimex":        call(unix.SYS_ADJTIMEX, unsafe.Pointer(&badTick)),
		"clock_adjtime":   call(unix.SYS_CLOCK_ADJTIME, 0, unsafe.Pointer(&badTick)),
		"syslog":          call(unix.SYS_SYSLOG, 8, 0, 100),
		"bpf":             call(unix.SYS_BPF, 0, 0, 0),
		"perf_event_open": call(unix.SYS_PERF_EVENT_OPEN, 0, 0, -1, -1, 0),
		"userfaultfd":     call(unix.SYS_USERFAULTFD, 0),
		"io_uring_setup":  call(unix.SYS_IO_URING_SETUP, 0, 0),
		"io_uring_enter":  call(unix.SYS_IO_URING_ENTER, -1, 0, 0, 0, 0, 0),
		"io_uring_register": call(
			unix.SYS_IO_URING_REGISTER, -1, 0, 0, 0,
		),
		"keyctl":      call(unix.SYS_KEYCTL, 0, -3, 0),
		"add_key":     call(unix.SYS_ADD_KEY, "user", "attack", "x", 1, -2),
		"request_key": call(unix.SYS_REQUEST_KEY, "user", "attack-missing", 0, 0),
		"TIOCSTI":     call(unix.SYS_IOCTL, 0, unix.TIOCSTI, "x"),
		"TIOCLINUX":   call(unix.SYS_IOCTL, 0, unix.TIOCLINUX, []byte{0}),
	}
}

// processes act on the target: its memory, its descriptors, its limits.
func processes() map[string]attempt {
	vector := func(number uintptr) attempt {
		return func(target int) unix.Errno {
			data := make([]byte, 1)
			local := unix.Iovec{Base: &data[0], Len: 1}
			remote := [2]uintptr{0, 1}
			return errno(number, target, unsafe.Pointer(&local), 1, unsafe.Pointer(&remote), 1, 0)
		}
	}
	return map[string]attempt{
		"ptrace": func(target int) unix.Errno {
			const seize = 0x4206
			return errno(unix.SYS_PTRACE, seize, target, 0, 0)
		},
		"process_vm_readv":  vector(unix.SYS_PROCESS_VM_READV),
		"process_vm_writev": vector(unix.SYS_PROCESS_VM_WRITEV),
		"kcmp": func(target int) unix.Errno {
			return errno(unix.SYS_KCMP, os.Getpid(), target, 1, 0, 0)
		},
		"move_pages": func(target int) unix.Errno {
			return errno(unix.SYS_MOVE_PAGES, target, 0, 0, 0, 0, 0)
		},
		"kill": func(target int) unix.Errno { return errno(unix.SYS_KILL, target, 0) },
		"prlimit64": func(target int) unix.Errno {
			return errno(unix.SYS_PRLIMIT64, target, unix.RLIMIT_CORE, unsafe.Pointer(&[2]uint64{}), 0)
		},
		"sched_setscheduler": func(target int) unix.Errno {
			return errno(unix.SYS_SCHED_SETSCHEDULER, target, 0, unsafe.Pointer(new(int32)))
		},
		"pidfd_getfd": func(target int) unix.Errno {
			fd, err := unix.PidfdOpen(target, 0)
			if err != nil {
				var number unix.Errno
				_ = errors.As(err, &number) // it is always one
				return number
			}
			return errno(unix.SYS_PIDFD_GETFD, fd, 0, 0)
		},
	}
}

func rights() map[string]attempt {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	full := [2]unix.CapUserData{{Effective: 1 << unix.CAP_CHOWN, Permitted: 1 << unix.CAP_CHOWN}}
	unlimited := [2]uint64{^uint64(0), ^uint64(0)}
	realtime := int32(1)
	// A file capability, cap_chown+ep, as linux/capability.h has it.
	fileCap := []byte{1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	return map[string]attempt{
		"capset":      call(unix.SYS_CAPSET, unsafe.Pointer(&header), unsafe.Pointer(&full)),
		"setresuid":   call(unix.SYS_SETRESUID, 12345, 12345, 12345),
		"setresgid":   call(unix.SYS_SETRESGID, 12345, 12345, 12345),
		"setgroups":   call(unix.SYS_SETGROUPS, 0, 0),
		"securebits":  call(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0, 0, 0, 0),
		"core limit":  call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, unsafe.Pointer(&unlimited), 0),
		"setpriority": call(unix.SYS_SETPRIORITY, 0, 0, -20),
		"real time": call(
			unix.SYS_SCHED_SETSCHEDULER, 0, 1, unsafe.Pointer(&realtime),
		),
		"file capability": func(int) unix.Errno {
			if err := os.WriteFile("capability", nil, 0o600); err != nil {
				return unix.EIO
			}
			return errno(unix.SYS_SETXATTR, "capability", "security.capability", fileCap, 20, 0)
		},
		"device":       call(unix.SYS_MKNODAT, here, "null", unix.S_IFCHR|0o600, 1<<8|3),
		"block device": call(unix.SYS_MKNODAT, here, "disk", unix.S_IFBLK|0o600, 7<<8),
	}
}

// setID makes files that give their owner's or group's rights to others.
func setID() map[string]attempt {
	const fchmodat2 = 452
	file := func(name string, change func(fd int) unix.Errno) attempt {
		return func(int) unix.Errno {
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o600)
			if err != nil {
				return unix.EIO
			}
			return change(fd)
		}
	}
	mode := func(call uintptr, name string) func(int) unix.Errno {
		return func(int) unix.Errno { return errno(call, here, name, 0o4755, 0) }
	}
	how := [3]uint64{unix.O_CREAT | unix.O_RDWR, 0o4755, 0}
	return map[string]attempt{
		"fchmod":    file("a", func(fd int) unix.Errno { return errno(unix.SYS_FCHMOD, fd, 0o4755) }),
		"fchmod g":  file("b", func(fd int) unix.Errno { return errno(unix.SYS_FCHMOD, fd, 0o2755) }),
		"fchmodat":  file("c", mode(unix.SYS_FCHMODAT, "c")),
		"fchmodat2": file("d", mode(fchmodat2, "d")),
		"openat":    call(unix.SYS_OPENAT, here, "e", unix.O_CREAT|unix.O_RDWR, 0o4755),
		"openat g":  call(unix.SYS_OPENAT, here, "f", unix.O_CREAT|unix.O_RDWR, 0o2755),
		"O_TMPFILE": call(unix.SYS_OPENAT, here, ".", unix.O_TMPFILE|unix.O_RDWR, 0o4755),
		"openat2":   call(unix.SYS_OPENAT2, here, "g", unsafe.Pointer(&how), 24),
		"mkdirat":   call(unix.SYS_MKDIRAT, here, "h", 0o2755),
		"mknodat":   call(unix.SYS_MKNODAT, here, "i", unix.S_IFREG|0o4755, 0),
	}
}

// sockets reach other machines, the kernel, or raw packets.
func sockets() map[string]attempt {
	all := map[string]attempt{}
	for name, s := range map[string][3]int{
		"vsock":     {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		"alg":       {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"tipc":      {unix.AF_TIPC, unix.SOCK_STREAM, 0},
		"qipcrtr":   {unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
		"bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		"can":       {unix.AF_CAN, unix.SOCK_RAW, 1},
		"rds":       {unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		"packet":    {unix.AF_PACKET, unix.SOCK_RAW, 0},
		"raw":       {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		"raw 6":     {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		"key":       {unix.AF_KEY, unix.SOCK_RAW, 2},
		"xdp":       {unix.AF_XDP, unix.SOCK_RAW, 0},
	} {
		all["socket "+name] = call(unix.SYS_SOCKET, s[0], s[1], s[2])
	}
	return all
}
