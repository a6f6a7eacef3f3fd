package local

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// Kill kills everything that the environment started, without any grace. It is for a program that has to end at once:
// Close remains to be called.
func (e *Environment) Kill() error {
	return os.NewSyscallError("TerminateJobObject", windows.TerminateJobObject(e.jobs.all, killedCode))
}

// Signal is errors.ErrUnsupported: there are no signals here, only Kill.
func (e *Environment) Signal(sig os.Signal) error {
	return fmt.Errorf("local: signal %v: %w", sig, errors.ErrUnsupported)
}
