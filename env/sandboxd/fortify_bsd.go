//go:build unix && !linux

package sandboxd

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// faultSignals returns nil: no process of this system is PID 1 of a namespace.
func faultSignals() []syscall.Signal { return nil }

// fortify returns why commands can end this process: they run as its user.
func fortify() error {
	return fmt.Errorf("process namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
