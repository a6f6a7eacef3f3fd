package proctree

import (
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// behindTime is how long orphans may wait behind an exited command before they are reaped.
const behindTime = 50 * time.Millisecond

// reapOrphans reaps children that are not commands, whenever one has died, until stop is closed.
func (v *supervisor) reapOrphans(died <-chan os.Signal, stop <-chan struct{}) {
	var late <-chan time.Time
	for {
		select {
		case <-died:
		case <-v.again:
		case <-late:
			late = nil
			if v.reapFront() { // the command is still not reaped
				v.reapBehind()
			}
			continue // until something else dies or the command is reaped
		case <-stop:
			if v.reapFront() {
				v.reapBehind()
			}
			return
		}
		if v.reapFront() && late == nil {
			late = time.After(behindTime)
		}
	}
}

// reapFront reaps orphans until none is left, or until a command is first in the kernel's list of
// dead children, and reports the latter. It never reaps commands: Process.Reap needs their status.
func (v *supervisor) reapFront() (command bool) {
	for {
		pid := firstDead()
		if pid == 0 || v.isCommand(pid) {
			return pid != 0
		}
		if !v.reapOrphan(pid) {
			return v.isCommand(pid)
		}
	}
}

// reapOrphan reaps a dead child unless it is a command. The lock excludes starting commands, which
// are not in the list yet.
func (v *supervisor) reapOrphan(pid int) bool {
	v.fork.Lock()
	defer v.fork.Unlock()
	return !v.isCommand(pid) && reap(pid)
}

// reapBehind reaps the orphans behind a dead command.
func (v *supervisor) reapBehind() {
	list, err := processes(0)
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, s := range list {
		if s.ppid == self && s.dead {
			v.reapOrphan(s.pid)
		}
	}
}

// firstDead returns the number of the first dead child, or 0.
func firstDead() int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0
		}
		// The number comes first after three numbers and, where pointers have 64 bits, a gap.
		const field = 3 + unsafe.Sizeof(uintptr(0))/8
		return int((*[field + 1]int32)(unsafe.Pointer(&info))[field])
	}
}

// reap reaps a child if it is dead.
func reap(pid int) bool {
	for {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && got == pid
		}
	}
}
