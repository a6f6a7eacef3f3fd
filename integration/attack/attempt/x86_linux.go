//go:build amd64 || 386

package main

import "golang.org/x/sys/unix"

// callsOfArch returns the attempts with calls that other architectures lack.
func callsOfArch() map[string]attempt {
	return map[string]attempt{
		"iopl":   call(unix.SYS_IOPL, 3),
		"ioperm": call(unix.SYS_IOPERM, 0, 1, 1),
		"chmod": func(int) unix.Errno {
			if _, err := unix.Open("j", unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
				return unix.EIO
			}
			return errno(unix.SYS_CHMOD, "j", 0o4755)
		},
		"open":  call(unix.SYS_OPEN, "k", unix.O_CREAT|unix.O_RDWR, 0o4755),
		"creat": call(unix.SYS_CREAT, "l", 0o4755),
		"mkdir": call(unix.SYS_MKDIR, "m", 0o2755),
		"mknod": call(unix.SYS_MKNOD, "n", unix.S_IFREG|0o4755, 0),
		"x32":   call(0x40000000|39, 0), // getpid
	}
}
