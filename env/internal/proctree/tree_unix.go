//go:build unix

package proctree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A seen is one process as it stood in a list of processes.
type seen struct {
	pid, ppid, pgid, sid int
	start                uint64 // when it started, in a unit of the system
	dead                 bool   // it is a zombie
	headless             bool   // its main thread has ended before the others
	stopped              bool
	kernel               bool // it is a thread of the kernel
}

// identity names a process for good: numbers are used again.
type identity struct {
	pid   int
	start uint64
}

func (s seen) id() identity { return identity{s.pid, s.start} }

const (
	// killTime bounds the wait for processes that got SIGKILL; one in an uninterruptible wait does not
	// die of it.
	killTime = 5 * time.Second
	// chaseTime bounds the attempts to get hold of processes that fork all the time.
	chaseTime = 20 * time.Second
	// unclearTime bounds the wait for a look that tells for sure that nobody is alive, and minLooks is
	// how many there are however long they take.
	unclearTime = 500 * time.Millisecond
	minLooks    = 3
	// pollMin and pollMax are the pauses between looks at dying processes.
	pollMin = 500 * time.Microsecond
	pollMax = 20 * time.Millisecond
	// freezeTime is how long it is tried to stop the members of a tree one by one, where all processes
	// can be stopped at once. A fork bomb leaves this process next to no time to run in.
	freezeTime = 100 * time.Millisecond
)

// tree is a set of processes to be killed: leaders, the members of their sessions and groups, their
// descendants and whatever else carries their mark.
type tree struct {
	leaders []*Process                          // not reaped while the tree is used
	carries func(pid int) (marked, hidden bool) // nil without marks
	// sends SIGSTOP to those that carry marks; nil if that is nothing quick
	stop func()
	all  bool // members may be older than the leaders
	// members are descendants of this process, which orphans go to
	below bool
	sole  bool // all descendants are members
	first bool // this process is the first of its pid namespace
	// held while all processes of the pid namespace stand still
	halt *sync.Mutex
	// held while a command starts and while members are stopped
	fork sync.Locker

	since uint64            // members did not start before
	known map[identity]bool // members that were found
	letGo func()            // undoes haltAfter; nil if there is nothing to undo
}

func newTree(leaders []*Process) *tree {
	return &tree{leaders: leaders, known: make(map[identity]bool), fork: new(sync.Mutex)}
}

// terminate sends SIGTERM to the tree, waits until it is gone, but no longer than grace, and kills
// what is left.
func (t *tree) terminate(grace time.Duration) error {
	if err := t.bound(); err != nil {
		return t.terminateGroups(grace)
	}
	defer t.stopAfter(grace)()
	t.haltAfter(grace + freezeTime)
	defer t.goOn()
	// Members whose parents die of the signal must be found before.
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
			if !groups[s.pgid] { // as a member of a group it has got it
				_ = send(s, unix.SIGTERM)
			}
			if s.stopped {
				_ = send(s, unix.SIGCONT) // or it could not act on it
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
func (t *tree) kill() error {
	immune := make(map[identity]bool)
	for deadline := time.Now().Add(chaseTime); ; {
		alive, err := t.strike(immune, deadline)
		switch {
		case err != nil:
			return t.terminateGroups(0)
		case len(alive) == 0 && len(immune) > 0:
			return fmt.Errorf("%d processes may not be killed: %w", len(immune), unix.EPERM)
		case len(alive) == 0:
			return nil
		case !awaitDeath(alive, time.Now().Add(killTime)):
			return fmt.Errorf("%d processes do not die of SIGKILL", len(alive))
		case time.Now().After(deadline):
			return errors.New("processes start faster than they can be killed")
		}
	}
}

// strike sends SIGKILL to all members once, in a way in which none can escape by forking, and
// returns those that were alive. It adds those that may not be killed to immune.
func (t *tree) strike(immune map[identity]bool, deadline time.Time) (alive []seen, err error) {
	t.haltAfter(freezeTime)
	defer t.goOn()
	t.signalGroups(unix.SIGSTOP)
	alive, err = t.freeze(immune, deadline)
	for _, s := range alive {
		if err := send(s, unix.SIGKILL); errors.Is(err, unix.EPERM) {
			immune[s.id()] = true
		}
	}
	return alive, err
}

// freeze sends SIGSTOP to all members until a look finds no new ones, and returns those that are
// alive.
func (t *tree) freeze(immune map[identity]bool, deadline time.Time) (alive []seen, err error) {
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

// stopFresh sends SIGSTOP to the members that are not frozen yet. A command that is just starting
// shares the memory of this process until it has executed its program, and this process stands
// still as long as it does; so none may be starting then.
func (t *tree) stopFresh(immune, frozen map[identity]bool) (alive []seen, fresh bool, err error) {
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

// stopAfter stops those members after some time that can be stopped quickly, whatever goes on until
// then: a look at many busy processes may take longer than that. The caller calls cancel in the
// end.
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

// haltAfter stops all processes of the pid namespace after some time, if this is the first of them
// and goOn is not called before. A process that a signal waits for does not fork, so that one more
// look finds all members, and takes no time of the processor.
func (t *tree) haltAfter(d time.Duration) {
	if !t.first || t.letGo != nil {
		return
	}
	halted := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		t.halt.Lock()
		t.fork.Lock()
		_ = unix.Kill(-1, unix.SIGSTOP)
		t.fork.Unlock()
		close(halted)
	})
	t.letGo = func() {
		if timer.Stop() {
			return
		}
		<-halted
		defer t.halt.Unlock()
		list, err := processes(0)
		if err != nil {
			_ = unix.Kill(-1, unix.SIGCONT)
		}
		// A parent that goes on before its child could see that the child stands still.
		slices.SortFunc(list, func(a, b seen) int {
			return cmp.Or(cmp.Compare(b.start, a.start),
				cmp.Compare(b.pid, a.pid))
		})
		for _, s := range list {
			if s.pid != os.Getpid() && !s.dead && !t.known[s.id()] {
				_ = send(s, unix.SIGCONT)
			}
		}
	}
}

// goOn lets those that haltAfter stopped go on, except for members. That includes those who stood
// still before.
func (t *tree) goOn() {
	if t.letGo != nil {
		t.letGo()
		t.letGo = nil
	}
}

// living returns the members that are alive and may be killed.
func (t *tree) living(immune map[identity]bool) ([]seen, error) {
	alive, err := t.scan()
	return slices.DeleteFunc(alive, func(s seen) bool { return immune[s.id()] }), err
}

// bound finds out since when members may have started: not before the first leader, or not before
// this process.
func (t *tree) bound() error {
	if err := trackable(); err != nil {
		return err
	}
	self, err := look(os.Getpid())
	if err != nil {
		return err
	}
	t.since = self.start
	if t.all || len(t.leaders) == 0 {
		return nil
	}
	since := uint64(math.MaxUint64)
	for _, l := range t.leaders {
		leader, err := look(l.os.Pid)
		if err != nil {
			return nil
		}
		since = min(since, leader.start)
	}
	t.since = since
	return nil
}

// scan returns the members that are alive. A look at many processes takes a while: a member may
// start another one behind its back and be gone when it is its turn. So nobody is alive only if
// looks at those that have come since find that none of them is gone by its turn. Each process is
// looked at once, so that little can happen meanwhile even where others start processes all the
// time. There is one such look more than that, for numbers that have begun again with small ones.
func (t *tree) scan() ([]seen, error) {
	var list []seen
	looked, asked := make(map[int]bool), make(map[identity]bool)
	pause, deadline := pollMin, time.Now().Add(unclearTime)
	for looks, quiet := 1, 0; ; looks++ {
		fresh, gone, err := newcomers(t.since, looked)
		if err != nil {
			return nil, err
		}
		list = append(list, fresh...)
		alive, unclear := t.members(list, asked)
		if quiet++; looks == 1 || gone || unclear {
			quiet = 0
		}
		if len(alive) > 0 || quiet == 2 || looks >= minLooks && time.Now().After(deadline) {
			return alive, nil
		}
		if unclear {
			time.Sleep(pause)
			pause = min(2*pause, pollMax)
		}
	}
}

// members returns those of list that are members and alive. Who has been asked for marks is not
// asked again. It reports whether there were some of which nothing could be seen: they are just
// executing another program, or have ended.
func (t *tree) members(list []seen, asked map[identity]bool) (alive []seen, unclear bool) {
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
	spread(list, members)
	for _, s := range list {
		if members[s.pid] || s.dead || s.kernel || t.carries == nil || asked[s.id()] {
			continue
		}
		marked, hidden := t.carries(s.pid)
		if marked {
			members[s.pid] = true
		}
		unclear = unclear || hidden
		asked[s.id()] = !hidden || isGone(s)
	}
	spread(list, members)
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

// candidates returns those of list that can be members. Who was one stays one, even if its parent
// was seen to be the one that has died since.
func (t *tree) candidates(list []seen) []seen {
	self := os.Getpid()
	list = slices.Clone(list)
	if !t.below {
		return slices.DeleteFunc(list, func(s seen) bool { return s.pid == self })
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
	return slices.DeleteFunc(list, func(s seen) bool { return !below[s.pid] })
}

// spread adds the children of members and those whose group or session a member leads.
func spread(list []seen, members map[int]bool) {
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

// terminateGroups is what remains where processes cannot be listed: it ends the groups and waits
// for the leaders.
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
		_ = unix.Kill(-1, unix.SIGKILL) // nobody can be told from those who are to be spared
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
func isGone(s seen) bool {
	now, err := look(s.pid)
	return err != nil || now.start != s.start || now.dead
}

// awaitDeath waits until all of the processes are dead and reports whether that came before the
// deadline.
func awaitDeath(list []seen, deadline time.Time) bool {
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
