//go:build unix && !linux && !darwin

package proctree

import "errors"

// How members of a tree are found; empty, since processes cannot be listed.
const (
	trackedBy = ""
	trackLost = ""
)

func trackable() error { return errors.ErrUnsupported }

// processes cannot be listed here, so that process groups are all that is killed.
func processes(uint64) ([]seen, error) { return nil, errors.ErrUnsupported }

func newcomers(uint64, map[int]bool) ([]seen, bool, error) {
	return nil, false,
		errors.ErrUnsupported
}

func look(int) (seen, error) { return seen{}, errors.ErrUnsupported }

func carries(int, []string) (marked, hidden bool) { return false, false }
