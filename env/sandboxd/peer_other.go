//go:build unix && !linux && !darwin

package sandboxd

import (
	"errors"
	"net"
)

// peerOf does not know who made a connection, so that nobody is let in.
func peerOf(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }
