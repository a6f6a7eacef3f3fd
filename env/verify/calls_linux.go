package verify

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryCall makes one of filteredCalls with arguments that the kernel rejects, where no filter
// refuses the call before.
func tryCall(name string) string {
	const oddPersonality, userModeOnly = 0x0040000, 1
	none := ^uintptr(0) // no descriptor
	args := map[string][3]uintptr{
		"add_key":           {unix.SYS_ADD_KEY},
		"clone":             {unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_FS},
		"clone3":            {unix.SYS_CLONE3},
		"keyctl":            {unix.SYS_KEYCTL, none},
		"open_by_handle_at": {unix.SYS_OPEN_BY_HANDLE_AT, none},
		"open_tree":         {unix.SYS_OPEN_TREE, none},
		"personality":       {unix.SYS_PERSONALITY, oddPersonality},
		"setns":             {unix.SYS_SETNS, none},
		// which takes a single-threaded process
		"unshare":     {unix.SYS_UNSHARE, unix.CLONE_NEWUSER},
		"userfaultfd": {unix.SYS_USERFAULTFD, unix.O_CLOEXEC | userModeOnly},
	}
	a, ok := args[name]
	if !ok {
		return "unknown call"
	}
	result := make(chan string)
	go func() { // the thread ends with its personality
		runtime.LockOSThread()
		fd, _, errno := unix.Syscall6(a[0], a[1], a[2], 0, 0, 0, 0)
		if errno == 0 && name == "userfaultfd" {
			errno = closed(fd)
		}
		result <- outcome(errorOf(errno))
	}()
	return <-result
}

// closed closes a descriptor.
func closed(fd uintptr) syscall.Errno {
	_, _, errno := unix.Syscall(unix.SYS_CLOSE, fd, 0, 0)
	return errno
}

// errorOf returns nil for no error.
func errorOf(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError("call", errno)
}
