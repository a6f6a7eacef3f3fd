package proctree

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// How members of a tree are found, and how they escape.
const (
	trackedBy = "a marker variable read by sysctl"
	trackLost = "clears or overwrites its variables, or is a program that the system protects,"
)

// Process states of the kernel.
const (
	stateStopped = 4
	stateZombie  = 5
)

// trackable reports why processes cannot be listed.
func trackable() error { return nil }

// processes returns all processes that did not start before since.
func processes(since uint64) ([]procInfo, error) {
	list, _, err := newProcesses(since, make(map[int]bool))
	return list, err
}

// newProcesses returns the processes that started at since or later and are not in visited, and
// adds them to visited. gone is true if one of them was dead.
func newProcesses(since uint64, visited map[int]bool) (list []procInfo, gone bool, err error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, false, err
	}
	for i := range infos {
		pid := int(infos[i].Proc.P_pid)
		if visited[pid] {
			continue
		}
		visited[pid] = true
		s := describeProcess(&infos[i])
		gone = gone || s.dead
		if s.start >= since {
			list = append(list, s)
		}
	}
	return list, gone, nil
}

// readProcess returns one process.
func readProcess(pid int) (procInfo, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return procInfo{}, err
	}
	if int(info.Proc.P_pid) != pid {
		return procInfo{}, unix.ESRCH
	}
	return describeProcess(info), nil
}

func describeProcess(info *unix.KinfoProc) procInfo {
	start := info.Proc.P_starttime
	s := procInfo{
		pid:     int(info.Proc.P_pid),
		ppid:    int(info.Eproc.Ppid),
		pgid:    int(info.Eproc.Pgid),
		start:   uint64(start.Sec)*1_000_000 + uint64(start.Usec),
		dead:    info.Proc.P_stat == stateZombie,
		stopped: info.Proc.P_stat == stateStopped,
	}
	s.sid, _ = unix.Getsid(s.pid)
	return s
}

// hasMarker reports whether a process has a variable that starts with one of markers. The system
// shows the arguments and variables of this user's processes, except for those of programs that it
// protects.
func hasMarker(pid int, markers []string) (marked, hidden bool) {
	data, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return false, false
	}
	for _, m := range markers {
		if bytes.Contains(data, []byte("\x00"+m)) {
			return true, false
		}
	}
	return false, false
}
