//go:build unix && !linux && !darwin

package local

import "errors"

func trackable() error { return errors.ErrUnsupported }

// processes cannot be listed here, so that process groups are all that is killed.
func processes(uint64) ([]seen, error) { return nil, errors.ErrUnsupported }

func newcomers(uint64, map[int]bool) ([]seen, bool, error) { return nil, false, errors.ErrUnsupported }

func look(int) (seen, error) { return seen{}, errors.ErrUnsupported }

func carries(int, []string) (marked, hidden bool) { return false, false }
