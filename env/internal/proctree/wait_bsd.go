//go:build unix && !linux

package proctree

import "os"

// awaitExit waits until the child has exited and returns how to get its state. Waiting without
// reaping is not reliable on these systems: waitid also returns for children that were stopped.
func awaitExit(child *os.Process) func() (*os.ProcessState, error) {
	state, err := child.Wait()
	return func() (*os.ProcessState, error) { return state, err }
}
