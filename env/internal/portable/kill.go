package portable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// maxProcesses bounds what a place says about its processes.
	maxProcesses = 16 << 20
	// pollFirst and pollLast bound the pauses between two looks at processes that are to end.
	pollFirst, pollLast = 5 * time.Millisecond, 100 * time.Millisecond
	// killTime bounds how long processes that get SIGKILL may take.
	killTime = 10 * time.Second
	// lateTime is how long a process may take to become the command that it was started for.
	lateTime = 3 * time.Second
)

// target says which processes are meant: those with a word in their variables, a root and those that were found before,
// with all that descends from them.
type target struct {
	word string
	// root is a process that is meant; zero is none. It is looked up once: later its number may mean another one.
	root int
	// seen are processes that have been found before, with the times of their start.
	seen map[int]uint64
}

// process is one line of the table of processes.
type process struct {
	pid, parent int
	start       uint64
	dead        bool
}

// kill sends SIGKILL until nothing of t is left.
func (e *Environment) kill(t *target) error {
	return e.signalUntil(context.Background(), t, "KILL", time.Now().Add(killTime))
}

// killFirst is kill for a command that is killed before what it depends on. If it is late, it may be a process that has not become it,
// which nothing shows: then it has lateTime to do so.
func (e *Environment) killFirst(command *target, late bool) error {
	for end := time.Now().Add(lateTime); late && time.Now().Before(end); {
		pids, err := e.find(command)
		if err != nil {
			return err
		}
		if len(pids) > 0 {
			break
		}
		select {
		case <-time.After(pollLast):
		case <-e.done:
			return fs.ErrClosed
		}
	}
	return e.kill(command)
}

// signal sends a signal to processes, some of which may have ended.
func (e *Environment) signal(signal string, pids []int) error {
	var words strings.Builder
	for _, pid := range pids {
		fmt.Fprintf(&words, " %d", pid)
	}
	if err := e.warden.inTime(operation{body: "kill -" + signal + words.String() + " 2>/dev/null\n:"}); err != nil {
		return e.lost(context.Background(), err)
	}
	return nil
}

// terminate sends SIGTERM to t, and SIGKILL to what is left after env.GraceTime or when hurry is closed.
func (e *Environment) terminate(t *target, hurry <-chan struct{}) error {
	select {
	case <-hurry:
		return e.kill(t)
	default:
	}
	grace, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-hurry:
			cancel()
		case <-grace.Done():
		}
	}()
	if err := e.signalUntil(grace, t, "TERM", time.Now().Add(env.GraceTime)); err == nil {
		return nil
	}
	return e.kill(t)
}

// signalUntil sends a signal to every process of t, SIGTERM once each, until none is left. It gives up at the deadline.
func (e *Environment) signalUntil(ctx context.Context, t *target, signal string, deadline time.Time) error {
	told := make(map[int]bool)
	for pause := pollFirst; ; pause = min(2*pause, pollLast) {
		pids, err := e.find(t)
		if err != nil || len(pids) == 0 {
			return err
		}
		var tell []int
		for _, pid := range pids {
			if signal == "KILL" || !told[pid] {
				tell = append(tell, pid)
			}
			told[pid] = true
		}
		if len(tell) > 0 {
			if err := e.signal(signal, tell); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %d processes do not end", errWarden, len(pids))
		}
	}
}

// find returns the processes of t that live.
func (e *Environment) find(t *target) ([]int, error) {
	word := t.word
	if word == "" {
		word = e.id + "-" // of which there is none
	}
	var out collect
	var err error
	for range 2 { // the first time the warden may be lost
		out = collect{max: maxProcesses}
		if err = e.warden.inTime(operation{body: "sa_ps " + quote(word) + "\n:", out: out.add}); err == nil {
			break
		}
	}
	if err != nil {
		return nil, e.lost(context.Background(), err)
	}
	marked, table, ok := strings.Cut("\n"+string(out.data), "\n\n")
	if !ok {
		return nil, fmt.Errorf("%w: malformed table of processes", env.ErrProtocol)
	}
	processes := parseTable(table)
	if len(processes) == 0 {
		return nil, fmt.Errorf("%w: %w", errWarden, errors.New("the table of processes is empty"))
	}
	return t.among(parseMarked(marked), processes, e.warden.pid()), nil
}

// parseMarked parses lines such as "/proc/12/environ".
func parseMarked(text string) map[int]bool {
	marked := make(map[int]bool)
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), "/")
		if len(fields) == 4 {
			if pid, err := strconv.Atoi(fields[2]); err == nil && pid > 1 {
				marked[pid] = true
			}
		}
	}
	return marked
}

// parseTable parses what /proc/PID/stat has for each process. The name of a program, in parentheses, may hold anything, so
// that the fields behind it count from the last parenthesis of a line. With a newline in it, its process is not found.
func parseTable(text string) []process {
	var list []process
	for line := range strings.Lines(text) {
		left, right := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
		number := strings.TrimSpace(line[:max(0, left)])
		fields := strings.Fields(line[right+1:])
		if left < 0 || right < left || len(fields) < 20 {
			continue
		}
		pid, err := strconv.Atoi(number)
		parent, perr := strconv.Atoi(fields[1])
		start, serr := strconv.ParseUint(fields[19], 10, 64)
		if err != nil || perr != nil || serr != nil || pid < 1 || parent < 0 {
			continue
		}
		list = append(list, process{pid: pid, parent: parent, start: start, dead: strings.Contains("ZXx", fields[0])})
	}
	return list
}

// among returns the processes of t in a table, without the warden's, and remembers them.
func (t *target) among(marked map[int]bool, table []process, warden int) []int {
	const unknown, in, out = 0, 1, 2
	state := map[int]int{warden: out}
	parents := make(map[int]int, len(table))
	for _, p := range table {
		parents[p.pid] = p.parent
		start, seen := t.seen[p.pid]
		if state[p.pid] == unknown && (marked[p.pid] || p.pid == t.root || seen && start == p.start) {
			state[p.pid] = in
		}
	}
	t.root = 0
	// A process is what it is itself, or else what its nearest ancestor is of which that is known.
	t.seen = make(map[int]uint64)
	var pids []int
	for _, p := range table {
		verdict := unknown
		for pid, steps := p.pid, 0; verdict == unknown && pid > 0 && steps <= len(table); steps++ {
			verdict = state[pid]
			pid = parents[pid]
		}
		if verdict == in && !p.dead && p.pid > 1 {
			pids = append(pids, p.pid)
			t.seen[p.pid] = p.start
		}
	}
	slices.Sort(pids)
	return pids
}
