//go:build unix && !linux

package sandboxd

import (
	"errors"
	"fmt"
	"runtime"
)

// checkListener returns an error for any pid but 0: this system does not report the listener.
func checkListener(_, pid int, _ bool) error {
	if pid != 0 {
		return fmt.Errorf(
			"--pid %d: %s does not report the listener: %w", pid, runtime.GOOS, errors.ErrUnsupported,
		)
	}
	return nil
}
