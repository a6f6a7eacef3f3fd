//go:build unix && !linux

package proctree

import (
	"os"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// supervisor is empty: these systems have neither a sub-reaper flag nor limits that could be
// markers.
type supervisor struct{}

func supervise() (*supervisor, error) { return &supervisor{}, nil }

func (v *supervisor) close() {}

func (v *supervisor) marksByLimit() bool { return false }

func (v *supervisor) childless() bool { return false }

func (v *supervisor) start(p *Process, fork func() (*os.Process, error)) (err error) {
	p.os, err = fork()
	return err
}

func (v *supervisor) reaped(*Process) {}

func (v *supervisor) arm(*tree) {}

// guarantee adds to the guarantees of a Set.
func (v *supervisor) guarantee(kill, clean, crash *env.Guarantee) {
	if v == nil {
		return
	}
	const same = "; a supervisor finds no more processes on this system"
	kill.By += same
	clean.By += same
	crash.Strength = env.BestEffort
	crash.By = "the supervisor reads the end of its client; a process that kills the " +
		"supervisor escapes, and " + clean.By
}

func (t *tree) haltAfter(time.Duration) {}

func (t *tree) resumeOthers() {}
