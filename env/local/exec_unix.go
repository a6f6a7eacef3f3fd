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
	started time.Time
	exited  chan struct{} // closed when it has exited
	elapsed time.Duration // valid once exited is closed
	reaped  func() (*os.ProcessState, error)
}

// jobs is what the system keeps for an environment: nothing here.
type jobs struct{}

func newJobs() (jobs, error) { return jobs{}, nil }

func (jobs) close() error { return nil }

// startProcess starts file. A file that was just written may for an instant still be open for writing in a child that
// another goroutine is about to start; that is waited for.
func (e *Environment) startProcess(file string, argv []string, attr *os.ProcAttr, marker string) (*process, error) {
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	started := time.Now()
	child, err := os.StartProcess(file, argv, attr)
	for pause := time.Millisecond; errors.Is(err, unix.ETXTBSY) && pause < 100*time.Millisecond; pause *= 2 {
		time.Sleep(pause)
		child, err = os.StartProcess(file, argv, attr)
	}
	if err != nil {
		return nil, err
	}
	p := &process{os: child, marker: marker, started: started, exited: make(chan struct{})}
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
	if err != nil {
		return 0, "", err
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return state.ExitCode(), "", nil
	}
	return 128 + int(status.Signal()), unix.SignalName(status.Signal()), nil
}

// terminate ends the tree of p.
func (e *Environment) terminate(p *process) error {
	t := tree{leaders: []*process{p}, marker: p.marker + "="}
	return t.terminate(env.GraceTime)
}

// terminateAll ends everything that the environment started: the trees of leaders and what earlier commands left.
func (e *Environment) terminateAll(leaders []*process) error {
	if e.execs.Load() == 0 {
		return nil
	}
	t := tree{leaders: leaders, marker: e.marker, all: true}
	return t.terminate(env.GraceTime)
}
