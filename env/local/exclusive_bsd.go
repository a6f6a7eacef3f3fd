//go:build unix && !linux

package local

import (
	"os"

	"github.com/sandboxagent/sandboxagent/env"
)

// seat is the place of an exclusive environment. There is nothing on these systems that such a process could do better.
type seat struct{}

func newSeat() (*seat, error) { return &seat{}, nil }

func (s *seat) leave() error { return nil }

func (s *seat) tagged() bool { return false }

func (s *seat) start(p *process, fork func() (*os.Process, error)) (err error) {
	p.os, err = fork()
	return err
}

func (s *seat) reaped(*process) {}

func (s *seat) arm(*tree) {}

func (s *seat) sweep() (sole bool, done func()) { return false, func() {} }

// promise adds to what Info says.
func (s *seat) promise(kill, clean, crash *env.Guarantee) {
	if s == nil {
		return
	}
	const same = "; this system gives a process of its own nothing more"
	kill.By += same
	clean.By += same
	crash.Strength = env.BestEffort
	crash.By = "the supervisor sees its client go; what kills the supervisor stays, and " + clean.By
}
