package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// settleTime is how long a program may take until it waits.
const settleTime = time.Second

// reapTime is how long a program may take to be gone that was killed.
const reapTime = time.Second

// tryCalls tries system calls that only somebody with rights over the machine has a use for, or that have a record of
// defects in the kernel.
func (d *Document) tryCalls(scratch string) {
	d.Tries[TryMount] = tryMount(scratch)
	d.Tries[TryMknod] = tryMknod(scratch)
	// A program that is not there is only missed by a process that could be made.
	for key, attr := range map[string]*syscall.SysProcAttr{
		TryClone: {Cloneflags: unix.CLONE_NEWUSER}, TryUnshare: {Unshareflags: unix.CLONE_NEWUSER},
	} {
		err := start(filepath.Join(scratch, ".probe-none"), &os.ProcAttr{Sys: attr})
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		d.Tries[key] = outcome(err)
	}
	d.Tries[TryClone3] = tryClone3(scratch)
	for call, try := range filtered() {
		d.Tries[TryFiltered(call)] = try()
	}
	d.Tries[TryPtrace] = tryPtrace()
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
	d.Tries[TryKeyctl] = outcome(err)
	d.Tries[TryBPF] = tryBPF()
	d.Tries[TryPerf] = tryPerf()
	d.Tries[TryIOUring] = tryIOUring()
	_, err = unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 16))
	d.Tries[TrySyslog] = outcome(err)
}

// tryClone3 makes a user namespace with the newer call. It also names a control group that is none, which the kernel finds
// out when it has the namespace, so that no process comes of it.
func tryClone3(scratch string) string {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return outcome(err)
	}
	defer null.Close() //nolint:errcheck // nothing was read
	err = start(filepath.Join(scratch, ".probe-none"), &os.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UseCgroupFD: true, CgroupFD: int(null.Fd())},
	})
	if errors.Is(err, unix.EBADF) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return outcome(err)
}

// filtered tries the calls of Filtered, with arguments that have no effect where nothing refuses them, or one that ends with
// the thread.
func filtered() map[string]func() string {
	const oddPersonality, allThatIs, userModeOnly = 0x0040000, 0xffffffff, 1
	none := ^uintptr(0) // no descriptor
	call := func(number uintptr, args ...uintptr) func() string {
		a := append(args, 0, 0, 0, 0, 0, 0)
		return func() string {
			_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
			if errno != 0 {
				return outcome(errno)
			}
			return OK
		}
	}
	return map[string]func() string{
		"add_key":           call(unix.SYS_ADD_KEY),
		"open_by_handle_at": call(unix.SYS_OPEN_BY_HANDLE_AT, none),
		"open_tree":         call(unix.SYS_OPEN_TREE, none),
		"setns":             call(unix.SYS_SETNS, none),
		"personality": func() string {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			before, _, _ := unix.Syscall(unix.SYS_PERSONALITY, allThatIs, 0, 0)
			_, _, errno := unix.Syscall(unix.SYS_PERSONALITY, oddPersonality, 0, 0)
			if errno != 0 {
				return outcome(errno)
			}
			_, _, _ = unix.Syscall(unix.SYS_PERSONALITY, before, 0, 0) // the thread is this process's own
			return OK
		},
		"userfaultfd": func() string {
			fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
			return closing(fd, errno)
		},
	}
}

func tryMount(scratch string) string {
	dir, err := os.MkdirTemp(scratch, ".probe-")
	if err != nil {
		return "no folder to mount on: " + outcome(err)
	}
	defer os.Remove(dir) //nolint:errcheck // the sandbox is thrown away
	err = unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4k")
	if err == nil {
		err = unix.Unmount(dir, unix.MNT_DETACH)
	}
	return outcome(err)
}

// tryMknod makes a device file, of which nothing is read.
func tryMknod(scratch string) string {
	name := filepath.Join(scratch, ".probe-"+strconv.Itoa(os.Getpid()))
	err := unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	if err == nil {
		err = os.Remove(name)
	}
	return outcome(err)
}

// tryPtrace takes hold of process 1, without stopping it. It is let go when the thread that holds it ends, which is when
// the goroutine does that never unlocks it.
func tryPtrace() string {
	result := make(chan string)
	go func() {
		runtime.LockOSThread()
		result <- outcome(unix.PtraceSeize(1))
	}()
	return <-result
}

// tryBPF makes the simplest object: an array of one number.
func tryBPF() string {
	attr := [4]uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	return closing(fd, errno)
}

// tryPerf counts this process's time.
func tryPerf() string {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
	}, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		err = unix.Close(fd)
	}
	return outcome(err)
}

func tryIOUring() string {
	var params [120]byte // struct io_uring_params, all of it zero
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	return closing(fd, errno)
}

// closing closes what a system call made.
func closing(fd uintptr, errno syscall.Errno) string {
	if errno != 0 {
		return outcome(errno)
	}
	return outcome(unix.Close(int(fd)))
}

// maxSetuid is how many programs are tried.
const maxSetuid = 8

// trySetuid starts a program that would run as root, and looks at its user while it waits: nothing takes what it prints.
// The outcome is OK if it was raised, EPERM if not, and None if that could not be found out.
func trySetuid(ctx context.Context) (program, result string) {
	if os.Geteuid() == 0 {
		return "", None
	}
	tried := 0
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/lib", "/usr/libexec"} {
		entries, _ := os.ReadDir(dir) // what is not there has none
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || info.Mode()&fs.ModeSetuid == 0 || !info.Mode().IsRegular() || tried == maxSetuid {
				continue
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			name := filepath.Join(dir, e.Name())
			if !ok || st.Uid != 0 || unix.Access(name, unix.X_OK) != nil {
				continue
			}
			tried++
			switch uid := userOf(ctx, name); uid {
			case "":
			case "0":
				return name, OK
			default:
				return name, outcome(unix.EPERM)
			}
		}
	}
	return "", None
}

// reap waits for a child, but not longer than limit: one that cannot be killed is left, to end with the sandbox. It reports
// whether the child is gone.
func reap(pid int, limit time.Duration) bool {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		switch {
		case got == pid, err != nil && !errors.Is(err, unix.EINTR):
			return true
		case time.Now().After(end):
			return false
		}
	}
}

// userOf starts a program and returns its effective user while it waits to print its help; empty if it does not wait.
func userOf(ctx context.Context, name string) string {
	r, w, err := os.Pipe()
	if err != nil {
		return ""
	}
	defer r.Close() //nolint:errcheck // nobody reads it
	defer w.Close() //nolint:errcheck // nothing is in it that counts
	null, err := os.Open(os.DevNull)
	if err != nil {
		return ""
	}
	defer null.Close() //nolint:errcheck // it was only read
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		return ""
	}
	fd := int(w.Fd()) // from now on writing blocks
	if err := unix.SetNonblock(fd, true); err != nil {
		return ""
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = unix.Write(fd, block)
	}
	for err = nil; err == nil; {
		_, err = unix.Write(fd, []byte{0})
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return ""
	}
	p, err := os.StartProcess(name, []string{name, "--help"}, &os.ProcAttr{Dir: "/", Files: []*os.File{null, w, w}})
	if err != nil {
		return ""
	}
	defer func() {
		_ = p.Kill()  // one that is root now cannot be
		_ = r.Close() // which ends those that write
		reap(p.Pid, reapTime)
		_ = p.Release()
	}()
	for end := time.Now().Add(settleTime); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/status")
		if err != nil {
			return ""
		}
		status := fields(string(text))
		uids := strings.Fields(status["Uid"])
		switch {
		case len(uids) != 4, strings.HasPrefix(status["State"], "Z"):
			return ""
		case strings.HasPrefix(status["State"], "S"):
			return uids[1]
		}
	}
	return ""
}
