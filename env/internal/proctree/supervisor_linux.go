package proctree

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// supervisor adds descent and limits to a Set made by Supervise. It is nil in a Set made by New.
type supervisor struct {
	first  bool   // this process is PID 1 of its pid namespace
	limit  uint64 // the first marker; 0 if the markers are variables
	reason string // the reason for variables
	stop   func() // stops the reaping

	// halt is held while all processes of the pid namespace are stopped.
	halt sync.Mutex
	// fork is held while a command starts, while orphans are reaped, so that no command is taken
	// for an orphan, and while processes are stopped, so that none is stopped before it has
	// executed its program.
	fork sync.Mutex
	// again makes the reaper check the dead children again.
	again chan struct{}

	commandsMu sync.Mutex
	commands   map[int]command // not reaped yet, by number
}

// command is a command with the limit that is its marker, or 0.
type command struct {
	*Process
	limit uint64
}

// supervising is set while this process has a supervisor: the sub-reaper flag, the dead children
// and the limits belong to the process.
var supervising atomic.Bool

var errSupervised = errors.New("this process supervises the processes of another environment")

// supervise makes this process the parent of orphans and starts to reap them.
func supervise() (*supervisor, error) {
	if !supervising.CompareAndSwap(false, true) {
		return nil, errSupervised
	}
	// The first call makes package os start a child that tests the system.
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	v := &supervisor{
		first:    os.Getpid() == 1,
		again:    make(chan struct{}, 1),
		commands: make(map[int]command),
	}
	if !v.first {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			supervising.Store(false)
			return nil, os.NewSyscallError("prctl", err)
		}
	}
	v.limit, v.reason = firstLimit()
	died, stop, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		defer close(done)
		v.reapOrphans(died, stop)
	}()
	v.stop = func() {
		signal.Stop(died)
		close(stop)
		<-done
	}
	return v, nil
}

// close stops the reaping.
func (v *supervisor) close() {
	if v != nil {
		v.stop()
		supervising.Store(false)
	}
}

// marksByLimit reports whether the markers of commands are limits instead of variables.
func (v *supervisor) marksByLimit() bool { return v != nil && v.limit != 0 }

// start starts p by calling fork.
func (v *supervisor) start(p *Process, fork func() (*os.Process, error)) (err error) {
	if v == nil {
		p.os, err = fork()
		return err
	}
	v.fork.Lock()
	defer v.fork.Unlock()
	var limit uint64
	if v.marksByLimit() {
		limit = nextLimit()
	}
	if p.os, err = fork(); err == nil {
		v.commandsMu.Lock()
		v.commands[p.os.Pid] = command{p, limit}
		v.commandsMu.Unlock()
	}
	return err
}

// isCommand reports whether a child is a command, whose exit status is not for the reaper.
func (v *supervisor) isCommand(pid int) bool {
	v.commandsMu.Lock()
	defer v.commandsMu.Unlock()
	return v.commands[pid].Process != nil
}

// reaped records that p was reaped. Its number may belong to another command by now, or to an
// orphan that was taken for p.
func (v *supervisor) reaped(p *Process) {
	if v == nil {
		return
	}
	v.commandsMu.Lock()
	if v.commands[p.os.Pid].Process == p {
		delete(v.commands, p.os.Pid)
	}
	v.commandsMu.Unlock()
	select {
	case v.again <- struct{}{}:
	default:
	}
}

// childless reports that this process has no children, and so no descendants.
func (v *supervisor) childless() bool {
	if v == nil {
		return false
	}
	v.fork.Lock()
	defer v.fork.Unlock()
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// arm makes a tree use descent and limits. All descendants of this process are members of the whole
// tree.
func (v *supervisor) arm(t *tree) {
	if v == nil {
		return
	}
	t.below, t.sole = true, t.all
	t.first, t.halt, t.fork = v.first, &v.halt, &v.fork
	if !v.marksByLimit() {
		return
	}
	first, limits := v.limit, v.limits(t.leaders)
	isMarker := func(limit uint64) bool {
		if t.all {
			return limit <= first && first-limit < limitRange
		}
		return slices.Contains(limits, limit)
	}
	t.hasMarker = func(pid int) (marked, hidden bool) {
		limit, ok := limitOf(pid)
		if !ok {
			_, err := readProcess(pid)
			return false, err != nil
		}
		return isMarker(limit), false
	}
	t.stop = func() { stopMarked(isMarker) }
}

// limits returns the markers of the commands that have not been reaped.
func (v *supervisor) limits(commands []*Process) []uint64 {
	v.commandsMu.Lock()
	defer v.commandsMu.Unlock()
	var limits []uint64
	for _, p := range commands {
		if c := v.commands[p.os.Pid]; c.Process == p && c.limit != 0 {
			limits = append(limits, c.limit)
		}
	}
	return limits
}

// guarantee adds to the guarantees of a Set.
func (v *supervisor) guarantee(kill, clean, crash *env.Guarantee) {
	if v == nil {
		return
	}
	const breaks = "a process that kills the supervisor or gains another user's rights escapes"
	if v.marksByLimit() {
		kill.By = "session, descent and a limit that serves as a marker; a process that leaves " +
			"its session and its parents and lowers that limit escapes the end of its command, " +
			"but not Close"
	} else {
		kill.By += "; no limit serves as a marker: " + v.reason
	}
	if v.first {
		const kernel = "the kernel ends a pid namespace with its PID 1, which this process is"
		clean.Strength, clean.By = env.Enforced, kernel
		crash.Strength, crash.By = env.Enforced, kernel
		return
	}
	kill.By += "; " + breaks
	clean.By = "orphans become children of the supervisor; " + breaks
	crash.Strength, crash.By = env.BestEffort, "the supervisor sees its client go; "+breaks
}
