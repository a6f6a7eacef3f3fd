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

// How members of a tree are found here, and what hides them.
const (
	trackedBy = "a marker variable read from /proc"
	trackLost = "clears or overwrites its variables or changes its user"
)

// flagKernel marks threads of the kernel, in the flags of a process.
const flagKernel = 0x00200000

// maxStat is more than the length of the line that the kernel writes about a process. It gives it
// all at once.
const maxStat = 2048

// errStat means that a line about a process cannot be understood.
var errStat = errors.New("malformed process status")

// trackable reports why processes cannot be listed. A /proc that shows another process namespace
// names other processes by the same numbers.
func trackable() error {
	self, err := os.Readlink("/proc/self")
	if err == nil && self != strconv.Itoa(os.Getpid()) {
		err = errors.ErrUnsupported
	}
	return err
}

// processes returns all processes that did not start before since.
func processes(since uint64) ([]seen, error) {
	list, _, err := newcomers(since, make(map[int]bool))
	return list, err
}

// newcomers returns the processes that did not start before since and are not in looked, and adds
// to it whether there was a process of that number. It reports whether some were dead or gone by
// the time they were looked at.
func newcomers(since uint64, looked map[int]bool) (list []seen, gone bool, err error) {
	numbers, err := processNumbers()
	if err != nil {
		return nil, false, err
	}
	for _, pid := range numbers {
		if _, done := looked[pid]; done {
			continue
		}
		s, err := look(pid)
		looked[pid] = err == nil
		switch {
		case err == nil:
			gone = gone || s.dead
			if s.start >= since {
				list = append(list, s)
			}
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
			gone = true
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return nil, false, err // it may be there
		}
	}
	for i, s := range list {
		if s.ppid == 0 || looked[s.ppid] {
			continue
		}
		// Its parent has died since, and it has got another one, unless parents cannot be seen.
		if now, err := look(s.pid); err == nil && now.start == s.start && now.ppid != s.ppid {
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

// look returns one process. Trees are looked at while somebody forks in them, so that it is done
// with few system calls.
func look(pid int) (seen, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return seen{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var line [maxStat]byte
	n, err := unix.Read(fd, line[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, line[:])
	}
	if err != nil {
		return seen{}, err
	}
	return parseStat(string(line[:n]))
}

// parseStat reads the line that the kernel writes about a process in /proc/PID/stat. The second
// field is the program's name in parentheses and may hold anything, so that the fields behind it
// count from the last parenthesis.
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
	flags, err6 := strconv.ParseUint(fields[6], 10, 64)
	if errors.Join(err0, err1, err2, err3, err4, err5, err6) != nil {
		return seen{}, errStat
	}
	s := seen{pid: pid, ppid: ppid, pgid: pgid, sid: sid, start: start, kernel: flags&flagKernel != 0}
	switch fields[0] {
	case "Z":
		s.dead, s.headless = threads <= 1, threads > 1
	case "X", "x":
		s.dead = true
	case "T", "t":
		s.stopped = true
	}
	return s, nil
}

// carries reports whether a process has a variable that begins with one of markers. A process that
// is hidden has ended or is between two programs: the new one has its memory already, but neither
// arguments nor variables.
func carries(pid int, markers []string) (marked, hidden bool) {
	// A process that executes a program between the opening and the reading of its variables shows
	// none either, and has some when it is looked at again.
	for range 3 {
		vars, err := readLive(pid, "environ")
		if err != nil {
			return false, !errors.Is(err, fs.ErrPermission) // which means that it is somebody else's
		}
		if len(vars) > 0 {
			return hasPrefix(vars, markers), false
		}
		if bare, hidden := hasNoVars(pid); bare || hidden {
			return false, hidden
		}
	}
	return false, true
}

// hasNoVars reports whether the program that a process executes has no variables, or is hidden. The
// kernel sets the end of a program's code after it has put the variables in place, and tells both
// in one line.
func hasNoVars(pid int) (bare, hidden bool) {
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
	// There are systems with this interface that tell these places of nobody.
	code, _ := memoryOf("/proc/self")
	return code == 0, code != 0
}

// memoryOf returns where the code of the thread or process ends whose folder is dir, and how many
// bytes of variables it was given. Both are 0 if it is not known.
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
	begin, err1 := strconv.ParseUint(fields[47], 10, 64)
	end, err2 := strconv.ParseUint(fields[48], 10, 64)
	if err0 != nil || err1 != nil || err2 != nil || end < begin {
		return 0, 0
	}
	return code, end - begin
}

// readLive reads what /proc tells of a process under a name. It is the same for all threads, and
// nothing is told of a main thread that has ended before the others, or nothing to an ordinary
// user.
func readLive(pid int, name string) ([]byte, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	data, err := readMemory(dir + "/" + name)
	if err == nil && len(data) > 0 {
		return data, nil
	}
	if s, _ := look(pid); !s.headless {
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

// readMemory reads a file that shows memory of a process. The process may execute another program
// meanwhile, and then the memory is gone and the file ends there, so that only what one read gives
// is whole.
func readMemory(name string) ([]byte, error) {
	for size := 16 << 10; ; size *= 4 {
		data, err := readOnce(name, size)
		if err != nil || len(data) < size {
			return data, err
		}
	}
}

// readOnce returns what one read of up to size bytes gives.
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

// hasPrefix reports whether one of vars, which end with zeros, begins with one of markers.
func hasPrefix(vars []byte, markers []string) bool {
	return slices.ContainsFunc(markers, func(m string) bool {
		return bytes.HasPrefix(vars, []byte(m)) || bytes.Contains(vars, []byte("\x00"+m))
	})
}

// send sends a signal to a process, unless its number means another one by now. A process that is
// gone is no error.
func send(s seen, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	handle := err == nil // without one, the number may be used again after the look at it
	if handle {
		defer func() { _ = unix.Close(fd) }()
	}
	now, err := look(s.pid)
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
