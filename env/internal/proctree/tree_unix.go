//go:build unix

package proctree

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// procInfo is one process as the system listed it.
type procInfo struct {
	pid, ppid, pgid, sid int
	start                uint64 // when it started, in a unit of the system
	dead                 bool   // it is a zombie
	headless             bool   // its main thread has ended before the others
	stopped              bool
	running              bool // or in a wait that a signal ends; false where it is not known
	kernel               bool // it is a thread of the kernel
}

// identity is unique to a process: the system reuses numbers.
type identity struct {
	pid   int
	start uint64
}

func (s procInfo) id() identity { return identity{s.pid, s.start} }

const (
	// killTime bounds the wait for processes that got SIGKILL; one in an uninterruptible wait does not
	// die of it.
	killTime = 5 * time.Second
	// chaseTime bounds the attempts to get hold of processes that fork all the time; minChases is the
	// least number of attempts, however long they take.
	chaseTime = 20 * time.Second
	minChases = 3
	// unclearTime bounds the scanning for a certain result that no member is alive; minScans is the
	// least number of passes, however long they take.
	unclearTime = 500 * time.Millisecond
	minScans    = 3
	// pollMin and pollMax bound the pause between two checks of dying processes.
	pollMin = 500 * time.Microsecond
	pollMax = 20 * time.Millisecond
	// freezeTime bounds the attempts to stop the members of a tree one by one, where all processes can
	// be stopped at once. A fork bomb leaves this process hardly any time to run.
	freezeTime = 100 * time.Millisecond
)

// tree is a set of processes to kill, its members: leaders, the members of their sessions and
// groups, their descendants, and every other process with their markers.
type tree struct {
	leaders   []*Process                          // not reaped while the tree is used
	hasMarker func(pid int) (marked, hidden bool) // nil without markers
	// stop sends SIGSTOP to the processes with markers; nil if that is slow
	stop func()
	all  bool // members may be older than the leaders
	// members are descendants of this process, which adopts orphans
	below bool
	sole  bool // all descendants are members
	first bool // this process is the first of its pid namespace
	// held while all processes of the pid namespace are stopped
	halt *sync.Mutex
	// held while a command starts and while members are stopped
	fork sync.Locker

	since    uint64            // members did not start before
	known    map[identity]bool // members that were found
	undoHalt func()            // undoes haltAfter; nil without haltAfter
}

func newTree(leaders []*Process) *tree {
	return &tree{leaders: leaders, known: make(map[identity]bool), fork: new(sync.Mutex)}
}

// terminate sends SIGTERM to the tree, waits up to grace until it is dead, and kills the rest.
func (t *tree) terminate(grace time.Duration) error {
	if err := t.bound(); err != nil {
		return t.terminateGroups(grace)
	}
	defer t.stopAfter(grace)()
	t.haltAfter(grace + freezeTime)
	defer t.resumeOthers()
	// Members whose parents die of the signal must be found first.
	alive, err := t.scan()
	if err != nil {
		return t.terminateGroups(grace)
	}
	t.signalGroups(unix.SIGTERM)
	signalled, groups := make(map[identity]bool), make(map[int]bool)
	for _, l := range t.leaders {
		groups[l.os.Pid] = true
	}
	deadline := time.Now().Add(grace)
	for len(alive) > 0 {
		for _, s := range alive {
			if signalled[s.id()] || !time.Now().Before(deadline) {
				continue
			}
			signalled[s.id()] = true
			if !groups[s.pgid] { // the groups have got it
				_ = send(s, unix.SIGTERM)
			}
			if s.stopped {
				_ = send(s, unix.SIGCONT) // a stopped process cannot act on SIGTERM
			}
		}
		if !awaitDeath(alive, deadline) {
			return t.kill()
		}
		if alive, err = t.scan(); err != nil {
			return t.terminateGroups(0)
		}
	}
	return nil
}

// signal sends a signal to all members once.
func (t *tree) signal(signal unix.Signal) error {
	if err := t.bound(); err != nil {
		t.signalGroups(signal)
		return nil
	}
	alive, err := t.scan()
	if err != nil {
		t.signalGroups(signal)
		return nil
	}
	var errs []error
	for _, s := range alive {
		if err := send(s, signal); err != nil {
			errs = append(errs, fmt.Errorf("process %d: %w", s.pid, err))
		}
	}
	return errors.Join(errs...)
}

// kill kills all members, until nothing is left.
func (t *tree) kill() error { return t.killUntil(time.Now().Add(chaseTime)) }

// killUntil is kill with the deadline of the attempts.
func (t *tree) killUntil(deadline time.Time) error {
	immune := make(map[identity]bool)
	for chases := 1; ; chases++ {
		alive, err := t.killOnce(immune, deadline)
		switch {
		case err != nil:
			return t.terminateGroups(0)
		case len(alive) == 0 && len(immune) > 0:
			return fmt.Errorf("%d processes may not be killed: %w", len(immune), unix.EPERM)
		case len(alive) == 0:
			return nil
		case !awaitDeath(alive, time.Now().Add(killTime)):
			return fmt.Errorf("%d processes do not die of SIGKILL", len(alive))
		case chases >= minChases && time.Now().After(deadline):
			return errors.New("processes start faster than they can be killed")
		}
	}
}

// killOnce sends SIGKILL to all members once, in a way in which none can escape by forking, and
// returns those that were alive. It adds those that may not be killed to immune.
func (t *tree) killOnce(
	immune map[identity]bool, deadline time.Time,
) (alive []procInfo, err error) {
	t.haltAfter(freezeTime)
	defer t.resumeOthers()
	t.signalGroups(unix.SIGSTOP)
	alive, err = t.freeze(immune, deadline)
	for _, s := range alive {
		if err := send(s, unix.SIGKILL); errors.Is(err, unix.EPERM) {
			immune[s.id()] = true
		}
	}
	return alive, err
}

// freeze sends SIGSTOP to all members until a scan finds no new ones, and returns those alive.
func (t *tree) freeze(immune map[identity]bool, deadline time.Time) (alive []procInfo, err error) {
	frozen := make(map[identity]bool)
	for {
		fresh, err := false, error(nil)
		if alive, fresh, err = t.stopFresh(immune, frozen); err != nil {
			return nil, err
		}
		if !fresh || time.Now().After(deadline) {
			return alive, nil
		}
	}
}

// stopFresh sends SIGSTOP to the members that are not frozen yet. It excludes starts of commands: a
// starting command shares the memory of this process until it executes its program, and this
// process waits for that.
func (t *tree) stopFresh(
	immune, frozen map[identity]bool,
) (alive []procInfo, fresh bool, err error) {
	t.fork.Lock()
	defer t.fork.Unlock()
	if t.stop != nil {
		t.stop()
	}
	if alive, err = t.living(immune); err != nil {
		return nil, false, err
	}
	for _, s := range alive {
		if !frozen[s.id()] {
			frozen[s.id()], fresh = true, true
			_ = send(s, unix.SIGSTOP)
		}
	}
	return alive, fresh, nil
}

// stopAfter stops the members with markers after d: a scan of many busy processes may take longer.
// The caller calls cancel.
func (t *tree) stopAfter(d time.Duration) (cancel func()) {
	if t.stop == nil {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(done)
		t.fork.Lock()
		defer t.fork.Unlock()
		t.stop()
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// living returns the members that are alive and may be killed.
func (t *tree) living(immune map[identity]bool) ([]procInfo, error) {
	alive, err := t.scan()
	return slices.DeleteFunc(alive, func(s procInfo) bool { return immune[s.id()] }), err
}

// bound sets t.since to the start of the first leader, or of this process.
func (t *tree) bound() error {
	if err := trackable(); err != nil {
		return err
	}
	self, err := readProcess(os.Getpid())
	if err != nil {
		return err
	}
	t.since = self.start
	if t.all || len(t.leaders) == 0 {
		return nil
	}
	since := uint64(math.MaxUint64)
	for _, l := range t.leaders {
		leader, err := readProcess(l.os.Pid)
		if err != nil {
			return nil
		}
		since = min(since, leader.start)
	}
	t.since = since
	return nil
}

// scan returns the members that are alive. Listing many processes takes a while: a member may start
// another one with a number that was already visited, and be gone when its own turn comes. So scan
// lists the new processes again until two passes in a row find none that was gone by its turn: one
// proves the absence, the second covers numbers that wrapped around. Each process is read once, so
// that a pass stays short where other programs start processes all the time.
func (t *tree) scan() ([]procInfo, error) {
	var list []procInfo
	visited, checked := make(map[int]bool), make(map[identity]bool)
	pause, deadline := pollMin, time.Now().Add(unclearTime)
	for scans, quiet := 1, 0; ; scans++ {
		fresh, gone, err := newProcesses(t.since, visited)
		if err != nil {
			return nil, err
		}
		list = append(list, fresh...)
		alive, unclear := t.members(list, checked)
		if quiet++; scans == 1 || gone || unclear {
			quiet = 0
		}
		if len(alive) > 0 || quiet == 2 || scans >= minScans && time.Now().After(deadline) {
			return alive, nil
		}
		if unclear {
			time.Sleep(pause)
			pause = min(2*pause, pollMax)
		}
	}
}

// members returns the members of list that are alive. It checks each process for markers once, and
// records that in checked. unclear is true if the markers of one could not be read: it is executing
// another program, or has ended.
func (t *tree) members(
	list []procInfo, checked map[identity]bool,
) (alive []procInfo, unclear bool) {
	list = t.candidates(list)
	members := make(map[int]bool)
	for _, l := range t.leaders {
		members[l.os.Pid] = true
	}
	for _, s := range list {
		if t.sole || t.known[s.id()] {
			members[s.pid] = true
		}
	}
	addRelatives(list, members)
	for _, s := range list {
		if members[s.pid] || s.dead || s.kernel || t.hasMarker == nil || checked[s.id()] {
			continue
		}
		marked, hidden := t.hasMarker(s.pid)
		if marked {
			members[s.pid] = true
		}
		unclear = unclear || hidden
		checked[s.id()] = !hidden || isGone(s)
	}
	addRelatives(list, members)
	for _, s := range list {
		if members[s.pid] {
			t.known[s.id()] = true
			if !s.dead {
				alive = append(alive, s)
			}
		}
	}
	return alive, unclear
}

// candidates returns the elements of list that can be members. A known member stays one, even if it
// was listed with a parent that has died since.
func (t *tree) candidates(list []procInfo) []procInfo {
	self := os.Getpid()
	list = slices.Clone(list)
	if !t.below {
		return slices.DeleteFunc(list, func(s procInfo) bool { return s.pid == self })
	}
	below := make(map[int]bool)
	for changed := true; changed; {
		changed = false
		for _, s := range list {
			if !below[s.pid] && (s.ppid == self || below[s.ppid] || t.known[s.id()]) {
				below[s.pid], changed = true, true
			}
		}
	}
	return slices.DeleteFunc(list, func(s procInfo) bool { return !below[s.pid] })
}

// addRelatives adds the children of members and the processes whose group or session a member
// leads.
func addRelatives(list []procInfo, members map[int]bool) {
	for changed := true; changed; {
		changed = false
		for _, s := range list {
			if !members[s.pid] && (members[s.ppid] || members[s.pgid] || members[s.sid]) {
				members[s.pid], changed = true, true
			}
		}
	}
}

// signalGroups sends a signal to the leaders' groups, which reaches all of a group at once.
func (t *tree) signalGroups(signal unix.Signal) {
	for _, l := range t.leaders {
		_ = unix.Kill(-l.os.Pid, signal)
	}
}

// terminateGroups serves where processes cannot be listed: it kills the groups and waits for the
// leaders.
func (t *tree) terminateGroups(grace time.Duration) error {
	if grace > 0 {
		t.signalGroups(unix.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		for _, l := range t.leaders {
			select {
			case <-l.Exited:
			case <-timer.C:
				timer.Reset(0)
			}
		}
	}
	t.signalGroups(unix.SIGKILL)
	if t.first && t.sole {
		_ = unix.Kill(-1, unix.SIGKILL) // the processes to spare cannot be told apart
	}
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	for _, l := range t.leaders {
		select {
		case <-l.Exited:
		case <-timer.C:
			return fmt.Errorf("process %d does not die of SIGKILL", l.os.Pid)
		}
	}
	return nil
}

// isGone reports whether a process is dead.
func isGone(s procInfo) bool {
	now, err := readProcess(s.pid)
	return err != nil || now.start != s.start || now.dead
}

// awaitDeath waits until all of the processes are dead and reports whether that came before the
// deadline.
func awaitDeath(list []procInfo, deadline time.Time) bool {
	pause := pollMin
	for i := 0; i < len(list); {
		if isGone(list[i]) {
			i++
			continue
		}
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(pause)
		pause = min(2*pause, pollMax)
	}
	return true
}
