//go:build unix && !linux

package sandboxd

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// faultSignals are the signals that look like errors of this program; nobody asks for them here.
func faultSignals() []syscall.Signal { return nil }

// fortify returns why commands can end this process: they run as its user.
func fortify() error {
	return fmt.Errorf("process namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
