//go:build unix && !linux && !darwin

package proctree

import "errors"

// How members of a tree are found; empty, since processes cannot be listed.
const (
	trackedBy = ""
	trackLost = ""
)

func trackable() error { return errors.ErrUnsupported }

// processes cannot be listed on this system: only process groups are killed.
func processes(uint64) ([]procInfo, error) { return nil, errors.ErrUnsupported }

func newProcesses(uint64, map[int]bool) ([]procInfo, bool, error) {
	return nil, false,
		errors.ErrUnsupported
}

func readProcess(int) (procInfo, error) { return procInfo{}, errors.ErrUnsupported }

func hasMarker(int, []string) (marked, hidden bool) { return false, false }
