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
	var cred *unix.Xucred
	var credErr, pidErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		pid, pidErr = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err = errors.Join(err, credErr, pidErr); err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), pid, nil
}
