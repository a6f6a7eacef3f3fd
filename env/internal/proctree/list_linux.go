package proctree

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// How members of a tree are found, and how they escape.
const (
	trackedBy = "a marker variable read from /proc"
	trackLost = "clears or overwrites its variables or changes its user"
)

// flagKernel marks threads of the kernel, in the flags of a process.
const flagKernel = 0x00200000

// maxStat exceeds the length of the line in /proc/PID/stat, which one read returns whole.
const maxStat = 2048

// errStat reports a malformed line in /proc/PID/stat.
var errStat = errors.New("malformed process status")

// trackable reports why processes cannot be listed. The /proc of another pid namespace shows other
// processes under the same numbers.
func trackable() error {
	self, err := os.Readlink("/proc/self")
	if err == nil && self != strconv.Itoa(os.Getpid()) {
		err = errors.ErrUnsupported
	}
	return err
}

// processes returns all processes that did not start before since.
func processes(since uint64) ([]procInfo, error) {
	list, _, err := newProcesses(since, make(map[int]bool))
	return list, err
}

// newProcesses returns the processes that started at since or later and are not in visited, and
// adds to visited whether a process of that number existed. gone is true if one had ended when it
// was read.
func newProcesses(since uint64, visited map[int]bool) (list []procInfo, gone bool, err error) {
	numbers, err := processNumbers()
	if err != nil {
		return nil, false, err
	}
	for _, pid := range numbers {
		if _, done := visited[pid]; done {
			continue
		}
		s, err := readProcess(pid)
		visited[pid] = err == nil
		switch {
		case err == nil:
			gone = gone || s.dead
			if s.start >= since {
				list = append(list, s)
			}
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
			gone = true
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return nil, false, err // it may exist
		}
	}
	for i, s := range list {
		if s.ppid == 0 || visited[s.ppid] {
			continue
		}
		// Its parent has died since, and it has another one, unless parents are hidden.
		if now, err := readProcess(s.pid); err == nil && now.start == s.start && now.ppid != s.ppid {
			list[i], gone = now, true
		}
	}
	return list, gone, nil
}

// processNumbers returns the numbers of all processes.
func processNumbers() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, pid)
		}
	}
	return numbers, nil
}

// readProcess returns one process. It makes few system calls, since members fork meanwhile.
func readProcess(pid int) (procInfo, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return procInfo{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var line [maxStat]byte
	n, err := unix.Read(fd, line[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, line[:])
	}
	if err != nil {
		return procInfo{}, err
	}
	return parseStat(string(line[:n]))
}

// parseStat parses the line in /proc/PID/stat. The second field, the program's name in parentheses,
// may contain anything, so the later fields count from the last parenthesis.
func parseStat(line string) (procInfo, error) {
	open, last := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || last < open {
		return procInfo{}, errStat
	}
	fields := strings.Fields(line[last+1:])
	if len(fields) < 20 {
		return procInfo{}, errStat
	}
	pid, err0 := strconv.Atoi(strings.TrimSpace(line[:open]))
	ppid, err1 := strconv.Atoi(fields[1])
	pgid, err2 := strconv.Atoi(fields[2])
	sid, err3 := strconv.Atoi(fields[3])
	threads, err4 := strconv.Atoi(fields[17])
	start, err5 := strconv.ParseUint(fields[19], 10, 64)
	flags, err6 := strconv.ParseUint(fields[6], 10, 64)
	if errors.Join(err0, err1, err2, err3, err4, err5, err6) != nil {
		return procInfo{}, errStat
	}
	s := procInfo{pid: pid, ppid: ppid, pgid: pgid, sid: sid, start: start}
	s.kernel = flags&flagKernel != 0
	switch fields[0] {
	case "R", "S":
		s.running = true
	case "Z":
		s.dead, s.headless = threads <= 1, threads > 1
	case "X", "x":
		s.dead = true
	case "T", "t":
		s.stopped = true
	}
	return s, nil
}

// hasMarker reports whether a process has a variable that starts with one of markers. A hidden
// process has ended or is between two programs: the new one has its memory already, but neither
// arguments nor variables.
func hasMarker(pid int, markers []string) (marked, hidden bool) {
	// A process that executes a program between open and read shows no variables either; another try
	// reads them.
	for range 3 {
		vars, err := readLive(pid, "environ")
		if err != nil {
			return false, !errors.Is(err, fs.ErrPermission) // it is another user's
		}
		if len(vars) > 0 {
			return hasPrefix(vars, markers), false
		}
		if none, hidden := hasNoVars(pid); none || hidden {
			return false, hidden
		}
	}
	return false, true
}

// hasNoVars reports whether a process has no variables, or is hidden. The kernel sets the end of a
// program's code after its variables, and shows both in one line.
func hasNoVars(pid int) (none, hidden bool) {
	if args, err := readLive(pid, "cmdline"); err != nil || len(args) == 0 {
		return false, true
	}
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return false, true
	}
	for _, t := range threads { // one that has ended before the others has no memory
		if code, vars := memoryOf(dir + t.Name()); code != 0 {
			return vars == 0, false
		}
	}
	// Some systems show these addresses of no process.
	code, _ := memoryOf("/proc/self")
	return code == 0, code != 0
}

// memoryOf returns the end address of the code, and the size of the variables in bytes, of the
// thread or process with the /proc directory dir. Both are 0 if they are unknown.
func memoryOf(dir string) (code, vars uint64) {
	line, err := readOnce(dir+"/stat", maxStat)
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	if len(fields) < 49 {
		return 0, 0
	}
	code, err0 := strconv.ParseUint(fields[24], 10, 64)
	start, err1 := strconv.ParseUint(fields[47], 10, 64)
	end, err2 := strconv.ParseUint(fields[48], 10, 64)
	if err0 != nil || err1 != nil || err2 != nil || end < start {
		return 0, 0
	}
	return code, end - start
}

// readLive reads a file of a process in /proc that is the same for all threads. That of a main
// thread that has ended before the others is empty, or closed to ordinary users; then another
// thread's is read.
func readLive(pid int, name string) ([]byte, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	data, err := readMemory(dir + "/" + name)
	if err == nil && len(data) > 0 {
		return data, nil
	}
	if s, _ := readProcess(pid); !s.headless {
		return data, err
	}
	threads, terr := os.ReadDir(dir + "/task")
	for _, t := range threads {
		data, err := readMemory(dir + "/task/" + t.Name() + "/" + name)
		if err == nil && t.Name() != strconv.Itoa(pid) {
			return data, nil
		}
	}
	return nil, errors.Join(err, terr)
}

// readMemory reads a file that shows memory of a process. It uses a single read: if the process
// executes another program between two reads, the file ends early.
func readMemory(name string) ([]byte, error) {
	for size := 16 << 10; ; size *= 4 {
		data, err := readOnce(name, size)
		if err != nil || len(data) < size {
			return data, err
		}
	}
}

// readOnce returns the result of one read of up to size bytes.
func readOnce(name string, size int) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, size)
	n, err := file.Read(data)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// hasPrefix reports whether one of vars, which are NUL-terminated, starts with one of markers.
func hasPrefix(vars []byte, markers []string) bool {
	return slices.ContainsFunc(markers, func(m string) bool {
		return bytes.HasPrefix(vars, []byte(m)) || bytes.Contains(vars, []byte("\x00"+m))
	})
}

// send sends a signal to a process, unless its number belongs to another one by now. An ended
// process is no error.
func send(s procInfo, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	handle := err == nil // without one, the number may be reused before the signal
	if handle {
		defer func() { _ = unix.Close(fd) }()
	}
	now, err := readProcess(s.pid)
	if err != nil || now.start != s.start {
		return nil
	}
	if handle {
		err = unix.PidfdSendSignal(fd, signal, nil, 0)
	} else {
		err = unix.Kill(s.pid, signal)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
