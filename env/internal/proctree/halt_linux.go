package proctree

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopTime bounds the wait until processes that got SIGSTOP stand still.
	stopTime = 5 * time.Second
	// crowd is a number of processes from which a fork bomb is assumed; haltTime is how long members
	// may resist being stopped one by one where fewer run.
	crowd    = 100
	haltTime = 2 * time.Second
)

// haltAfter stops all processes of the pid namespace, if this process is its PID 1, unless
// resumeOthers is called before: after d where a crowd of processes runs, and haltTime later
// anyway. A process with a pending signal does not begin to fork, so one more scan finds all
// members, and stopped processes use no processor time.
//
// It is the last resort. A process that is not a member could notice it: a shell with job control
// that a busy machine stops later than its child sees a stopped job, and goes on without it.
func (t *tree) haltAfter(d time.Duration) {
	t.haltWhen(func(resumed <-chan struct{}) bool { return isHaltDue(d, haltTime, resumed) })
}

// haltWhen stops all processes of the pid namespace, if this process is its PID 1, once due returns
// true. Due must return when its channel is closed.
func (t *tree) haltWhen(due func(resumed <-chan struct{}) bool) {
	if !t.first || t.undoHalt != nil {
		return
	}
	var before []procInfo
	resumed, done := make(chan struct{}), make(chan struct{})
	halted := false
	go func() {
		defer close(done)
		if !due(resumed) {
			return
		}
		halted = true
		t.halt.Lock()
		t.fork.Lock()
		_ = unix.Kill(-1, unix.SIGSTOP)
		before, _ = processes(0)
		t.fork.Unlock()
	}()
	t.undoHalt = func() {
		close(resumed)
		<-done
		if !halted {
			return
		}
		defer t.halt.Unlock()
		awaitStop(before, time.Now().Add(stopTime))
		list, err := processes(0)
		if err != nil {
			_ = unix.Kill(-1, unix.SIGCONT)
		}
		// Children first: a parent could notice that its child is stopped.
		slices.SortFunc(list, func(a, b procInfo) int {
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

// isHaltDue waits for d and then until a crowd of processes runs or patience has passed. It reports
// false if resumed is closed before.
func isHaltDue(d, patience time.Duration, resumed <-chan struct{}) bool {
	deadline := time.Now().Add(d + patience)
	pause := time.NewTimer(d)
	defer pause.Stop()
	for {
		select {
		case <-resumed:
			return false
		case <-pause.C:
		}
		numbers, err := processNumbers()
		if err != nil || len(numbers) >= crowd || !time.Now().Before(deadline) {
			return true
		}
		pause.Reset(min(freezeTime, time.Until(deadline)))
	}
}

// resumeOthers resumes the processes that haltAfter stopped, except for members. Processes that
// were stopped before are resumed too.
func (t *tree) resumeOthers() {
	if t.undoHalt != nil {
		t.undoHalt()
		t.undoHalt = nil
	}
}

// awaitStop waits until the processes of list that got SIGSTOP stand still, or until the deadline.
// The kernel (kernel/fork.c, copy_process) gives a signal to all processes also to the child of one
// that is forking just then, whenever that is born, and no SIGCONT that comes before takes it back:
// a child that is missing in the list of those to resume would stay stopped.
func awaitStop(list []procInfo, deadline time.Time) {
	pause := pollMin
	for i := 0; i < len(list); {
		if s := list[i]; s.pid == os.Getpid() || !isRunning(s) {
			i++
			continue
		}
		if !time.Now().Before(deadline) {
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, pollMax)
	}
}

// isRunning reports whether a thread of the process runs or could run. One in an uninterruptible
// wait cannot: it waits for the disk, or, in vfork, for a child that may be stopped itself.
func isRunning(s procInfo) bool {
	dir := "/proc/" + strconv.Itoa(s.pid) + "/task/"
	threads, _ := os.ReadDir(dir) // a process that has ended has none
	if now, err := readProcess(s.pid); err != nil || now.start != s.start {
		return false
	}
	return slices.ContainsFunc(threads, func(thread os.DirEntry) bool {
		line, err := readOnce(dir+thread.Name()+"/stat", maxStat)
		if err != nil {
			return false
		}
		now, err := parseStat(string(line))
		return err == nil && now.running
	})
}
