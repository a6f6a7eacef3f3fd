//go:build unix

package local

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// process is a command that was started. It leads a session, whose number is its own.
type process struct {
	os      *os.Process
	marker  string
	seat    *seat
	started time.Time
	exited  chan struct{} // closed when it has exited
	elapsed time.Duration // valid once exited is closed
	reaped  func() (*os.ProcessState, error)
}

// jobs is what is kept for an environment beyond its processes: nothing, unless it is exclusive.
type jobs struct{ seat *seat }

func newJobs() (jobs, error) { return jobs{}, nil }

func newExclusiveJobs() (jobs, error) {
	s, err := newSeat()
	return jobs{s}, err
}

func (j jobs) close() error { return j.seat.leave() }

// tagged reports whether commands need no marker variable.
func (j jobs) tagged() bool { return j.seat.tagged() }

// startProcess starts file. A file that was just written may for an instant still be open for writing in a child that
// another goroutine is about to start; that is waited for.
func (e *Environment) startProcess(file string, argv []string, attr *os.ProcAttr, marker string) (*process, error) {
	if attr.Sys == nil {
		attr.Sys = new(syscall.SysProcAttr)
	}
	attr.Sys.Setsid = true
	p := &process{marker: marker, seat: e.jobs.seat, exited: make(chan struct{})}
	fork := func() (*os.Process, error) {
		p.started = time.Now()
		return os.StartProcess(file, argv, attr)
	}
	err := p.seat.start(p, fork)
	for pause := time.Millisecond; errors.Is(err, unix.ETXTBSY) && pause < 100*time.Millisecond; pause *= 2 {
		time.Sleep(pause)
		err = p.seat.start(p, fork)
	}
	if err != nil {
		return nil, err
	}
	go p.watch()
	return p, nil
}

// watch notes when the process exits.
func (p *process) watch() {
	p.reaped = awaitExit(p.os)
	p.elapsed = time.Since(p.started)
	close(p.exited)
}

// reap returns the exit status, 128+n and a name if signal n ended the process. It frees the process's number.
func (p *process) reap() (code int, signal string, err error) {
	state, err := p.reaped()
	p.seat.reaped(p)
	if err != nil {
		return 0, "", err
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return state.ExitCode(), "", nil
	}
	return 128 + int(status.Signal()), unix.SignalName(status.Signal()), nil
}

// tree returns the trees of leaders.
func (e *Environment) tree(leaders ...*process) *tree {
	markers := make([]string, len(leaders))
	for i, l := range leaders {
		markers[i] = l.marker + "="
	}
	return e.newTree(leaders, markers, false)
}

// wholeTree returns the trees of leaders, which are all commands that run, and what earlier commands left. The caller
// calls done when it is dead.
func (e *Environment) wholeTree(leaders []*process) (t *tree, done func()) {
	t = e.newTree(leaders, []string{e.marker}, true)
	t.sole, done = e.jobs.seat.sweep()
	return t, done
}

func (e *Environment) newTree(leaders []*process, markers []string, all bool) *tree {
	t := newTree(leaders)
	t.all = all
	t.carries = func(pid int) (marked, hidden bool) { return carries(pid, markers) }
	e.jobs.seat.arm(t)
	return t
}

// terminate ends the tree of p.
func (e *Environment) terminate(p *process) error { return e.tree(p).terminate(env.GraceTime) }

// terminateAll ends everything that the environment started: the trees of leaders and what earlier commands left.
func (e *Environment) terminateAll(leaders []*process) error {
	if e.execs.Load() == 0 {
		return nil
	}
	t, done := e.wholeTree(leaders)
	defer done()
	return t.terminate(env.GraceTime)
}
