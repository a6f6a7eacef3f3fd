package sandboxd

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the user and process that connected, from the kernel.
func peerOf(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
