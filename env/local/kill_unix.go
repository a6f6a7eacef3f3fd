//go:build unix

package local

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
)

// Kill kills everything that the environment started, without any grace, and returns when it is dead. It is for a program
// that has to end at once: commands in progress end with SIGKILL, and Close remains to be called.
func (e *Environment) Kill() error {
	// A command leaves the books before its process is reaped, so that no number of a process means another one here.
	e.mu.Lock()
	defer e.mu.Unlock()
	if isClosed(e.swept) {
		return nil // and others may have been started by a successor
	}
	t, done := e.wholeTree(slices.Collect(maps.Keys(e.running)))
	defer done()
	if err := t.bound(); err != nil {
		return t.terminateGroups(0)
	}
	return t.kill()
}

// Signal sends sig to all processes of all commands that run, and returns without waiting for what they make of it. What
// earlier commands left behind does not get it. On Windows there is only Kill, and Signal is errors.ErrUnsupported.
func (e *Environment) Signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("local: signal %v: %w", sig, errors.ErrUnsupported)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.running) == 0 {
		return nil
	}
	t := e.tree(slices.Collect(maps.Keys(e.running))...)
	if err := t.signal(number); err != nil {
		return fmt.Errorf("local: signal %v: %w", sig, err)
	}
	return nil
}
