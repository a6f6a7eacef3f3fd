//go:build unix

package proctree

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// Set is the processes of one environment. Its methods may be called concurrently.
type Set struct {
	marker     string // the prefix of the names of all marker variables
	supervisor *supervisor

	mu      sync.Mutex
	idle    sync.Cond // inUse has become 0
	inUse   int       // calls that rely on running commands not being reaped
	started uint64    // number of commands
	running map[*Process]struct{}
	ended   bool // StopAll has returned
}

// New returns a Set that changes nothing process-wide.
func New() (*Set, error) { return newSet(nil), nil }

// Supervise returns the Set of a process that exists for it alone. A process has at most one at a
// time.
func Supervise() (*Set, error) {
	v, err := supervise()
	if err != nil {
		return nil, err
	}
	return newSet(v), nil
}

func newSet(v *supervisor) *Set {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &Set{
		marker:     MarkerPrefix + hex.EncodeToString(id[:]) + "_",
		supervisor: v,
		running:    make(map[*Process]struct{}),
	}
	s.idle.L = &s.mu
	return s
}

// Process is a command that was started. It leads a session.
type Process struct {
	// Started is the time of the start.
	Started time.Time
	// Exited is closed when the process has exited.
	Exited <-chan struct{}

	os      *os.Process
	marker  string
	set     *Set
	elapsed time.Duration // valid once Exited is closed
	wait    func() (*os.ProcessState, error)
}

// Start starts file as os.StartProcess does. It retries ETXTBSY: a file that was just written may
// briefly be open in another child. Each started process must be reaped.
func (s *Set) Start(file string, argv []string, attr *os.ProcAttr) (*Process, error) {
	if attr.Sys == nil {
		attr.Sys = new(syscall.SysProcAttr)
	}
	attr.Sys.Setsid = true
	exited := make(chan struct{})
	p := &Process{marker: s.nextMarker(), set: s, Exited: exited}
	if p.marker != "" {
		attr.Env = append(slices.Clip(attr.Env), p.marker+"=1")
	}
	fork := func() (*os.Process, error) {
		p.Started = time.Now()
		return os.StartProcess(file, argv, attr)
	}
	err := s.supervisor.start(p, fork)
	for pause := time.Millisecond; errors.Is(err, unix.ETXTBSY) && pause < 100*time.Millisecond; {
		time.Sleep(pause)
		err = s.supervisor.start(p, fork)
		pause *= 2
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.running[p] = struct{}{}
	s.mu.Unlock()
	go func() {
		p.wait = awaitExit(p.os)
		p.elapsed = time.Since(p.Started)
		close(exited)
	}()
	return p, nil
}

// nextMarker returns the name of the marker variable of one more command; empty if its marker is a
// limit.
func (s *Set) nextMarker() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	if s.supervisor.marksByLimit() {
		return ""
	}
	return s.marker + strconv.FormatUint(s.started, 36)
}

// Elapsed returns the time from the start to the exit. The process must have exited.
func (p *Process) Elapsed() time.Duration { return p.elapsed }

// Reap returns the exit code, or 128+n and a name if signal n ended the process, and frees the
// number of the process. The process must have exited.
func (p *Process) Reap() (code int, signal string, err error) {
	p.set.forget(p)
	state, err := p.wait()
	p.set.supervisor.reaped(p)
	if err != nil {
		return 0, "", err
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return state.ExitCode(), "", nil
	}
	return 128 + int(status.Signal()), unix.SignalName(status.Signal()), nil
}

// forget removes p from the running commands. While these are killed, none is reaped, so that no
// number means another process.
func (s *Set) forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.inUse > 0 {
		s.idle.Wait()
	}
	delete(s.running, p)
}

// use returns the commands that run. None is reaped until done is called.
func (s *Set) use() (leaders []*Process, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse++
	return slices.Collect(maps.Keys(s.running)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inUse--; s.inUse == 0 {
			s.idle.Broadcast()
		}
	}
}

// tree returns the trees of leaders.
func (s *Set) tree(leaders ...*Process) *tree {
	markers := make([]string, len(leaders))
	for i, l := range leaders {
		markers[i] = l.marker + "="
	}
	return s.newTree(leaders, markers, false)
}

// wholeTree returns the trees of leaders, all running commands, and the processes that earlier
// commands left.
func (s *Set) wholeTree(leaders []*Process) *tree {
	return s.newTree(leaders, []string{s.marker}, true)
}

func (s *Set) newTree(leaders []*Process, markers []string, all bool) *tree {
	t := newTree(leaders)
	t.all = all
	t.hasMarker = func(pid int) (marked, hidden bool) { return hasMarker(pid, markers) }
	s.supervisor.arm(t)
	return t
}

// Stop sends SIGTERM to the tree of p, and SIGKILL to the rest after grace. When it returns nil,
// the tree is dead. It must not run beside Reap of p.
func (s *Set) Stop(p *Process, grace time.Duration) error { return s.tree(p).terminate(grace) }

// Countable returns why Count cannot work, or nil.
func Countable() error { return trackable() }

// Count returns the number of living processes in the tree of p. It must not run beside Reap of p.
func (s *Set) Count(p *Process) (int, error) {
	t := s.tree(p)
	if err := t.bound(); err != nil {
		return 0, err
	}
	alive, err := t.scan()
	return len(alive), err
}

// Interrupt sends SIGINT to the group of p. It must not run beside Reap of p.
func (p *Process) Interrupt() { _ = unix.Kill(-p.os.Pid, unix.SIGINT) }

// StopAll stops all processes of the set as Stop stops a tree. No command may be started
// afterwards.
func (s *Set) StopAll() error {
	leaders, done := s.use()
	defer done()
	var err error
	if !s.untouched() && !s.supervisor.childless() {
		err = s.wholeTree(leaders).terminate(env.GraceTime)
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	return err
}

// untouched reports whether no command was ever started.
func (s *Set) untouched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started == 0
}

// Kill kills all processes of the set, without any grace, and returns when they are dead.
func (s *Set) Kill() error {
	leaders, done := s.use()
	defer done()
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended || s.supervisor.childless() {
		return nil // after StopAll another Set may have started processes
	}
	t := s.wholeTree(leaders)
	if err := t.bound(); err != nil {
		return t.terminateGroups(0)
	}
	return t.kill()
}

// Signal sends sig to the trees of all commands that run, and does not wait. On Windows it returns
// errors.ErrUnsupported.
func (s *Set) Signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: %w", sig, errors.ErrUnsupported)
	}
	leaders, done := s.use()
	defer done()
	if len(leaders) == 0 {
		return nil
	}
	if err := s.tree(leaders...).signal(number); err != nil {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// Close releases the resources of the Set. StopAll must have returned.
func (s *Set) Close() error {
	s.supervisor.close()
	return nil
}

// Guarantees returns the guarantees env.KillTree, env.CleanClose and env.CleanCrash.
func (s *Set) Guarantees() []env.Guarantee {
	kill := env.Guarantee{
		Name: env.KillTree, Strength: env.BestEffort,
		By: "process groups only: a process that leaves its group escapes",
	}
	if trackable() == nil {
		kill.By = fmt.Sprintf("session, descent and %s; "+
			"a process that leaves its session and its parents and %s escapes", trackedBy, trackLost)
	}
	clean := kill
	clean.Name = env.CleanClose
	crash := env.Guarantee{
		Name: env.CleanCrash, Strength: env.Absent,
		By: "without a supervisor, commands outlive this process if it is killed",
	}
	s.supervisor.guarantee(&kill, &clean, &crash)
	return []env.Guarantee{kill, clean, crash}
}
