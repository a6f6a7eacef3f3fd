package proctree

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// stopTime bounds the wait until processes that got SIGSTOP stand still.
const stopTime = 5 * time.Second

// haltAfter stops all processes of the pid namespace after d, if this process is its PID 1, unless
// resumeOthers is called before. A process with a pending signal does not begin to fork, so one
// more scan finds all members, and stopped processes use no processor time.
func (t *tree) haltAfter(d time.Duration) {
	if !t.first || t.undoHalt != nil {
		return
	}
	var before []procInfo
	halted := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		t.halt.Lock()
		t.fork.Lock()
		_ = unix.Kill(-1, unix.SIGSTOP)
		before, _ = processes(0)
		t.fork.Unlock()
		close(halted)
	})
	t.undoHalt = func() {
		if timer.Stop() {
			return
		}
		<-halted
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
