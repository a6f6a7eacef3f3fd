package local

import (
	"errors"

	"golang.org/x/sys/windows"

	"github.com/sandboxagent/sandboxagent/env"
)

// classify returns the condition of package env that an error of the system means; nil if there is
// none.
func classify(err error) error {
	switch {
	case errors.Is(err, windows.ERROR_DIRECTORY):
		return env.ErrNotDir
	case errors.Is(err, windows.ERROR_DISK_FULL), errors.Is(err, windows.ERROR_HANDLE_DISK_FULL):
		return env.ErrNoSpace
	default:
		return nil
	}
}
