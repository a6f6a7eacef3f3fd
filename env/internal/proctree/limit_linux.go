package proctree

import (
	"bufio"
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The marker of a command is its value of the hard limit RLIMIT_RTTIME. Children inherit it, every
// process may lower it, only a privileged one may raise it, and it affects threads of real-time
// priority only. Values as large as these, in microseconds, affect none.
const (
	// maxLimit is the largest marker if no limit is set: 36,000 years.
	maxLimit = 1 << 60
	// limitRange is the maximum number of markers of a supervisor.
	limitRange = 1 << 40
	// minLimit is the smallest marker: nine years.
	minLimit = 1 << 48
)

// firstLimit lowers this process's limit to the first marker. It is random, so that no two
// supervisors, nested or not, use the same markers. On failure it returns 0 and the reason.
func firstLimit() (first uint64, reason string) {
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &limit); err != nil {
		return 0, "limits cannot be read"
	}
	high := min(limit.Max, maxLimit)
	if high < 4*minLimit {
		return 0, "a limit of real-time CPU time is in force"
	}
	high -= limitRange // for the commands of a supervisor around this one
	first = high/2 + rand.Uint64N(high/2)
	if err := setLimit(limit, first); err != nil {
		return 0, "limits cannot be set"
	}
	if got, ok := limitOf(os.Getpid()); !ok || got != first {
		return 0, "the system does not keep limits of this size"
	}
	return first, ""
}

// nextLimit lowers this process's limit to the next marker. It returns 0 if none is left, because
// another process has lowered the limit.
func nextLimit() uint64 {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &limit)
	if err != nil || limit.Max < minLimit || setLimit(limit, limit.Max-1) != nil {
		return 0
	}
	return limit.Max - 1
}

func setLimit(old unix.Rlimit, limit uint64) error {
	set := unix.Rlimit{Cur: min(old.Cur, limit), Max: limit}
	return unix.Prlimit(0, unix.RLIMIT_RTTIME, &set, nil)
}

// limitOf returns the limit of a process.
func limitOf(pid int) (limit uint64, ok bool) {
	var limits unix.Rlimit
	switch err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limits); {
	case err == nil:
		return limits.Max, true
	case !errors.Is(err, unix.EPERM):
		return 0, false // gone
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits") // another user's
	if err != nil {
		return 0, false
	}
	return parseLimits(data)
}

// parseLimits finds the limit in the text of /proc/PID/limits.
func parseLimits(data []byte) (limit uint64, ok bool) {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		rest, found := strings.CutPrefix(lines.Text(), "Max realtime timeout")
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return 0, false
		}
		if limit, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return limit, true
		}
		return 0, false // unlimited
	}
	return 0, false
}

// stopMarked sends SIGSTOP to all processes that have one of the markers. It takes a small part of
// the time of a scan, of which a fork bomb leaves hardly any.
func stopMarked(isMarker func(limit uint64) bool) {
	numbers, err := processNumbers()
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, pid := range numbers {
		if limit, ok := limitOf(pid); pid == self || !ok || !isMarker(limit) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// By now the number may belong to another process.
		if limit, ok := limitOf(pid); ok && isMarker(limit) {
			_ = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
		}
		_ = unix.Close(fd)
	}
}
