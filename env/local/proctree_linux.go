package local

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
)

// errStat means that a line about a process cannot be understood.
var errStat = errors.New("malformed process status")

// trackable reports why processes cannot be listed. A /proc that shows another process namespace names other processes
// by the same numbers.
func trackable() error {
	self, err := os.Readlink("/proc/self")
	if err == nil && self != strconv.Itoa(os.Getpid()) {
		err = errors.ErrUnsupported
	}
	return err
}

// processes returns all processes that did not start before since.
func processes(since uint64) ([]seen, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []seen
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := look(pid); err == nil && s.start >= since {
			list = append(list, s)
		}
	}
	return list, nil
}

// look returns one process.
func look(pid int) (seen, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return seen{}, err
	}
	return parseStat(string(data))
}

// parseStat reads the line that the kernel writes about a process in /proc/PID/stat. The second field is the program's
// name in parentheses and may hold anything, so that the fields behind it count from the last parenthesis.
func parseStat(line string) (seen, error) {
	open, last := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || last < open {
		return seen{}, errStat
	}
	fields := strings.Fields(line[last+1:])
	if len(fields) < 20 {
		return seen{}, errStat
	}
	pid, err0 := strconv.Atoi(strings.TrimSpace(line[:open]))
	ppid, err1 := strconv.Atoi(fields[1])
	pgid, err2 := strconv.Atoi(fields[2])
	sid, err3 := strconv.Atoi(fields[3])
	threads, err4 := strconv.Atoi(fields[17])
	start, err5 := strconv.ParseUint(fields[19], 10, 64)
	if errors.Join(err0, err1, err2, err3, err4, err5) != nil {
		return seen{}, errStat
	}
	s := seen{pid: pid, ppid: ppid, pgid: pgid, sid: sid, start: start}
	switch fields[0] {
	case "Z":
		s.dead = threads <= 1 // the main thread may end before the others
	case "X", "x":
		s.dead = true
	case "T", "t":
		s.stopped = true
	}
	return s, nil
}

// carries reports whether a process has a variable that begins with marker. A process that is hidden is between two
// programs: the new one has its memory already, but neither arguments nor variables.
func carries(pid int, marker string) (marked, hidden bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	vars, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return false, false // somebody else's, or gone
	}
	if len(vars) > 0 {
		return bytes.HasPrefix(vars, []byte(marker)) || bytes.Contains(vars, []byte("\x00"+marker)), false
	}
	args, err := os.ReadFile(dir + "/cmdline")
	return false, err == nil && len(args) == 0 && !isKernel(pid)
}

// isKernel reports whether a process is a thread of the kernel, which has no program.
func isKernel(pid int) bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return errors.Is(err, os.ErrNotExist)
}
