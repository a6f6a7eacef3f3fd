//go:build unix

package local

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A seen is one process as it stood in a list of processes.
type seen struct {
	pid, ppid, pgid, sid int
	start                uint64 // when it started, in a unit of the system
	dead                 bool   // it is a zombie
	stopped              bool
}

// identity names a process for good: numbers are used again.
type identity struct {
	pid   int
	start uint64
}

func (s seen) id() identity { return identity{s.pid, s.start} }

const (
	// killTime bounds the wait for processes that got SIGKILL; one in an uninterruptible wait does not die of it.
	killTime = 5 * time.Second
	// unclearTime bounds the wait for processes that are just executing another program.
	unclearTime = 500 * time.Millisecond
	// pollMin and pollMax are the pauses between looks at dying processes.
	pollMin = 500 * time.Microsecond
	pollMax = 20 * time.Millisecond
)

// tree is a set of processes to be killed: leaders, the members of their sessions and groups, their descendants and
// whatever carries the marker.
type tree struct {
	leaders []*process // not reaped while the tree is used
	marker  string     // what the variable that marks members begins with
	all     bool       // members may be older than the leaders

	since uint64            // members did not start before
	known map[identity]bool // members that were found
}

// terminate sends SIGTERM to the tree, waits until it is gone, but no longer than grace, and kills what is left.
func (t *tree) terminate(grace time.Duration) error {
	t.known = make(map[identity]bool)
	if err := t.bound(); err != nil {
		return t.terminateGroups(grace)
	}
	// Whose parents die of the signal must be known before.
	if _, err := t.scan(); err != nil {
		return t.terminateGroups(grace)
	}
	t.signalGroups(unix.SIGTERM)
	asked, groups := make(map[identity]bool), make(map[int]bool)
	for _, l := range t.leaders {
		groups[l.os.Pid] = true
	}
	deadline := time.Now().Add(grace)
	for {
		alive, err := t.scan()
		if err != nil {
			return t.terminateGroups(0)
		}
		if len(alive) == 0 {
			return nil
		}
		for _, s := range alive {
			if asked[s.id()] {
				continue
			}
			asked[s.id()] = true
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
	}
}

// kill stops all members first, until no new ones appear, so that none can escape by forking, and then kills them. It
// repeats that until nothing is left.
func (t *tree) kill() error {
	deadline := time.Now().Add(killTime)
	immune := make(map[identity]bool)
	for {
		t.signalGroups(unix.SIGSTOP)
		alive, err := t.freeze(immune, deadline)
		if err != nil {
			return t.terminateGroups(0)
		}
		if len(alive) == 0 {
			break
		}
		for _, s := range alive {
			if err := send(s, unix.SIGKILL); errors.Is(err, unix.EPERM) {
				immune[s.id()] = true
			}
		}
		if !awaitDeath(alive, deadline) && !time.Now().Before(deadline) {
			return fmt.Errorf("%d processes do not die of SIGKILL", len(alive))
		}
	}
	if len(immune) > 0 {
		return fmt.Errorf("%d processes may not be killed: %w", len(immune), unix.EPERM)
	}
	return nil
}

// freeze sends SIGSTOP to all members until a look finds no new ones, and returns those that are alive.
func (t *tree) freeze(immune map[identity]bool, deadline time.Time) ([]seen, error) {
	frozen := make(map[identity]bool)
	for {
		found, err := t.scan()
		if err != nil {
			return nil, err
		}
		alive := found[:0]
		fresh := false
		for _, s := range found {
			if immune[s.id()] {
				continue
			}
			alive = append(alive, s)
			if !frozen[s.id()] {
				frozen[s.id()], fresh = true, true
				_ = send(s, unix.SIGSTOP)
			}
		}
		if !fresh || !time.Now().Before(deadline) {
			return alive, nil
		}
	}
}

// bound finds out since when members may have started: not before the first leader, or not before this process.
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
	leader, err := look(t.leaders[0].os.Pid)
	if err == nil {
		t.since = leader.start
	}
	return nil
}

// scan returns the members that are alive. A process that is just executing another program shows nothing of itself for
// an instant, so that a look that finds nobody is repeated while there are such processes.
func (t *tree) scan() ([]seen, error) {
	pause := pollMin
	for deadline := time.Now().Add(unclearTime); ; {
		alive, unclear, err := t.look()
		if err != nil || len(alive) > 0 || !unclear || time.Now().After(deadline) {
			return alive, err
		}
		time.Sleep(pause)
		pause = min(2*pause, pollMax)
	}
}

// look looks once at all processes. It reports whether there were some of which nothing could be seen.
func (t *tree) look() (alive []seen, unclear bool, err error) {
	list, err := processes(t.since)
	if err != nil {
		return nil, false, err
	}
	members := make(map[int]bool)
	for _, l := range t.leaders {
		members[l.os.Pid] = true
	}
	self := os.Getpid()
	rest := list[:0]
	for _, s := range list {
		switch {
		case s.pid == self:
			continue
		case t.known[s.id()]:
			members[s.pid] = true
		}
		rest = append(rest, s)
	}
	list = rest
	spread(list, members)
	for _, s := range list {
		if members[s.pid] || s.dead {
			continue
		}
		marked, hidden := carries(s.pid, t.marker)
		unclear = unclear || hidden
		if marked {
			members[s.pid] = true
		}
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
	return alive, unclear, nil
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

// terminateGroups is what remains where processes cannot be listed: it ends the groups and waits for the leaders.
func (t *tree) terminateGroups(grace time.Duration) error {
	if grace > 0 {
		t.signalGroups(unix.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		for _, l := range t.leaders {
			select {
			case <-l.exited:
			case <-timer.C:
				timer.Reset(0)
			}
		}
	}
	t.signalGroups(unix.SIGKILL)
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	for _, l := range t.leaders {
		select {
		case <-l.exited:
		case <-timer.C:
			return fmt.Errorf("process %d does not die of SIGKILL", l.os.Pid)
		}
	}
	return nil
}

// send sends a signal to a process, unless its number means another one by now. A process that is gone is no error.
func send(s seen, signal unix.Signal) error {
	handle, err := os.FindProcess(s.pid) // on Linux a handle that a number used again does not fool
	if err != nil {
		return nil
	}
	defer func() { _ = handle.Release() }()
	now, err := look(s.pid)
	if err != nil || now.start != s.start {
		return nil
	}
	if err := handle.Signal(signal); !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// awaitDeath waits until all of the processes are dead and reports whether that came before the deadline.
func awaitDeath(list []seen, deadline time.Time) bool {
	pause := pollMin
	for i := 0; i < len(list); {
		now, err := look(list[i].pid)
		if err != nil || now.start != list[i].start || now.dead {
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
