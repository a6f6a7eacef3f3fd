package sandboxd

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// faultSignals returns the signals that Go reports as errors of this program.
func faultSignals() []syscall.Signal { return faults[:] }

// dangerousCaps reach any process, or the kernel.
var dangerousCaps = [...]struct {
	name string
	bit  uint
}{
	{"CAP_SYS_MODULE", unix.CAP_SYS_MODULE},
	{"CAP_SYS_RAWIO", unix.CAP_SYS_RAWIO},
	{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE},
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
	{"CAP_SYS_BOOT", unix.CAP_SYS_BOOT},
	{"CAP_BPF", unix.CAP_BPF},
}

// fortify protects PID 1 from commands, and returns why they could still end it. Other processes
// have no protection: commands can kill processes of their user.
func fortify() error {
	if os.Getpid() != 1 {
		return errors.New("the helper is not process 1 of a pid namespace")
	}
	if err := installFilter(); err != nil {
		return err
	}
	if os.Geteuid() == 0 && !readOnlyProc() {
		return errors.New("commands are root, to whom the files of the helper in /proc belong")
	}
	held, err := capabilities()
	if err != nil {
		return err
	}
	for _, c := range dangerousCaps {
		if held&(1<<c.bit) != 0 {
			return fmt.Errorf("commands may have %s", c.name)
		}
	}
	return nil
}

// readOnlyProc reports whether /proc is mounted read-only.
func readOnlyProc() bool {
	var stat unix.Statfs_t
	return unix.Statfs("/proc", &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}

// capabilities returns the capabilities that commands can get: those of this process, and, without
// no_new_privs, those that a set-id program can gain.
func capabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, os.NewSyscallError("capget", err)
	}
	held := uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	if nnp == 1 {
		return held, nil
	}
	for bit := range uintptr(unix.CAP_LAST_CAP + 1) {
		if set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, bit, 0, 0, 0); err == nil &&
			set == 1 {
			held |= 1 << bit
		}
	}
	return held, nil
}
