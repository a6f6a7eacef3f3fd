package local

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// supervisor is what makes a process exclusive.
type supervisor struct {
	mu     sync.Mutex
	swept  *sync.Cond // alone has become 0
	seats  [slots]*seat
	taken  int  // how many seats are taken
	used   bool // commands were started since the first seat was taken
	alone  int  // how many times the only seat is being swept
	first  bool // this process is the first of its pid namespace
	flag   bool // it was no sub-reaper before
	tag    uint64
	reason string // why there are no tags
	end    func() // stops the reaping

	// halt is held while all processes of the pid namespace stand still.
	halt sync.Mutex
	// fork is held while a command starts, while orphans are reaped, so that no command is taken for an orphan, and while
	// processes are stopped, so that none is stopped before it has executed its program.
	fork sync.Mutex
	// again asks for another look at dead children.
	again chan struct{}

	known    sync.Mutex
	commands map[int]command // that may not have been reaped; guarded by known
}

// command is a command with its tag, or 0.
type command struct {
	*process
	tag uint64
}

// thisProcess is a variable, since the sub-reaper flag, the dead children and the limits belong to the process.
var thisProcess = newSupervisor()

func newSupervisor() *supervisor {
	v := &supervisor{again: make(chan struct{}, 1), commands: make(map[int]command)}
	v.swept = sync.NewCond(&v.mu)
	return v
}

// seat is the place of an exclusive environment in the supervisor. The methods of nil are those of an environment that is
// not exclusive.
type seat struct {
	v    *supervisor
	slot uint64
}

// newSeat takes a seat. The first one starts the supervision.
func newSeat() (*seat, error) {
	v := thisProcess
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.alone > 0 {
		v.swept.Wait()
	}
	for i := range v.seats {
		if v.seats[i] != nil {
			continue
		}
		if v.taken == 0 {
			if err := v.begin(); err != nil {
				return nil, err
			}
		}
		v.seats[i] = &seat{v: v, slot: uint64(i)}
		v.taken++
		return v.seats[i], nil
	}
	return nil, fmt.Errorf("%d exclusive environments are open already", slots)
}

// begin makes this process the parent of orphans and starts to reap them.
func (v *supervisor) begin() error {
	// Package os starts a child of its own to try out what the system can do, once.
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	if v.first = os.Getpid() == 1; !v.first {
		var flag int32
		if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&flag)), 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
		v.flag = flag == 0
	}
	if v.tag == 0 && v.reason == "" {
		v.tag, v.reason = firstTag()
	}
	v.used = false
	died, stop, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		defer close(done)
		v.reapOrphans(died, stop)
	}()
	v.end = func() {
		signal.Stop(died)
		close(stop)
		<-done
	}
	return nil
}

// leave gives the seat back. The last one kills what is left and ends the supervision.
func (s *seat) leave() error {
	if s == nil {
		return nil
	}
	v := s.v
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seats[s.slot] = nil
	if v.taken--; v.taken > 0 {
		return nil
	}
	var err error
	if v.used {
		t := newTree(nil)
		t.all, t.sole = true, true
		s.arm(t)
		if t.bound() == nil {
			err = t.kill()
		}
	}
	v.end()
	if v.flag {
		v.flag = false
		err = errors.Join(err, os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)))
	}
	return err
}

// tagged reports whether commands carry tags, so that they need no marker variable.
func (s *seat) tagged() bool { return s != nil && s.v.tag != 0 }

// start starts p by calling fork.
func (s *seat) start(p *process, fork func() (*os.Process, error)) (err error) {
	if s == nil {
		p.os, err = fork()
		return err
	}
	v := s.v
	v.fork.Lock()
	defer v.fork.Unlock()
	v.used = true
	var tag uint64
	if s.tagged() {
		tag = nextTag(s.slot)
	}
	if p.os, err = fork(); err == nil {
		v.known.Lock()
		v.commands[p.os.Pid] = command{p, tag}
		v.known.Unlock()
	}
	return err
}

// isCommand reports whether a child is a command, whose status is not to be taken.
func (v *supervisor) isCommand(pid int) bool {
	v.known.Lock()
	defer v.known.Unlock()
	return v.commands[pid].process != nil
}

// reaped says that the status of p was taken. Its number may mean another command by now, or an orphan that was taken
// for p.
func (s *seat) reaped(p *process) {
	if s == nil {
		return
	}
	v := s.v
	v.known.Lock()
	if v.commands[p.os.Pid].process == p {
		delete(v.commands, p.os.Pid)
	}
	v.known.Unlock()
	select {
	case v.again <- struct{}{}:
	default:
	}
}

// arm tells a tree what is known here beyond sessions.
func (s *seat) arm(t *tree) {
	if s == nil {
		return
	}
	t.below, t.first, t.halt, t.fork = true, s.v.first, &s.v.halt, &s.v.fork
	if !s.tagged() {
		return
	}
	first, tags := s.v.tag, s.v.tags(t.leaders)
	wanted := func(tag uint64) bool {
		if t.all {
			return tag <= first && first-tag < tagRange && tag%slots == s.slot
		}
		return slices.Contains(tags, tag)
	}
	t.carries = func(pid int) (marked, hidden bool) {
		tag, ok := tagOf(pid)
		if !ok {
			_, err := look(pid)
			return false, err != nil
		}
		return wanted(tag), false
	}
	t.stop = func() { stopTagged(wanted) }
}

// tags returns the tags of commands that have not been reaped.
func (v *supervisor) tags(commands []*process) []uint64 {
	v.known.Lock()
	defer v.known.Unlock()
	var tags []uint64
	for _, p := range commands {
		if c := v.commands[p.os.Pid]; c.process == p && c.tag != 0 {
			tags = append(tags, c.tag)
		}
	}
	return tags
}

// sweep reports whether all processes below this one belong to the seat. Until done is called, no other one is taken.
func (s *seat) sweep() (sole bool, done func()) {
	if s == nil {
		return false, func() {}
	}
	v := s.v
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.taken != 1 {
		return false, func() {}
	}
	v.alone++
	return true, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.alone--
		v.swept.Broadcast()
	}
}

// promise adds to what Info says.
func (s *seat) promise(kill, clean, crash *env.Guarantee) {
	if s == nil {
		return
	}
	const breaks = "what kills the supervisor or gains another user's rights escapes"
	if s.tagged() {
		kill.By = "session, descent and a limit that serves as a tag; what leaves its session and its parents and lowers " +
			"that limit escapes the end of its command, but not Close"
	} else {
		kill.By += "; there are no tags, because " + s.v.reason
	}
	if s.v.first {
		const kernel = "the kernel ends a pid namespace with its first process, which this is"
		clean.Strength, clean.By = env.Enforced, kernel
		crash.Strength, crash.By = env.Enforced, kernel
		return
	}
	kill.By += "; " + breaks
	clean.By = "orphans become children of the supervisor; " + breaks
	crash.Strength, crash.By = env.BestEffort, "the supervisor sees its client go; "+breaks
}
