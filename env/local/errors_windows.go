package local

import (
	"errors"

	"golang.org/x/sys/windows"

	"github.com/sandboxagent/sandboxagent/env"
)

// classify returns the sentinel error of package env for an error of the system, or nil.
func classify(err error) error {
	switch {
	case errors.Is(err, windows.ERROR_DIRECTORY):
		return env.ErrNotDir
	case errors.Is(err, windows.ERROR_DISK_FULL), errors.Is(err, windows.ERROR_HANDLE_DISK_FULL):
		return env.ErrNoSpace
	case errors.Is(err, windows.ERROR_SHARING_VIOLATION), errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return env.ErrBusy
	default:
		return nil
	}
}
