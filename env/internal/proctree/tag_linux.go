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

// Tags are values of the hard limit RLIMIT_RTTIME. A process inherits it whatever else it sheds,
// anybody may lower it, nobody without special rights may raise it, and it counts for threads with
// real-time priority only. Nothing notices values as large as these: they are microseconds.
const (
	// tagTop is the largest tag if no limit is set: 36,000 years.
	tagTop = 1 << 60
	// tagRange is how many tags a supervisor may give.
	tagRange = 1 << 40
	// tagFloor is the smallest tag: nine years.
	tagFloor = 1 << 48
)

// firstTag lowers this process's limit to the first tag. It is a random one, so that no two
// supervisors, nested or not, give the same tags. If it fails, it returns 0 and the reason.
func firstTag() (first uint64, reason string) {
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &limit); err != nil {
		return 0, "limits cannot be read"
	}
	high := min(limit.Max, tagTop)
	if high < 4*tagFloor {
		return 0, "a limit of real-time CPU time is in force"
	}
	high -= tagRange // which the supervisor around this one may give itself
	first = high/2 + rand.Uint64N(high/2)
	if err := setTag(limit, first); err != nil {
		return 0, "limits cannot be set"
	}
	if got, ok := tagOf(os.Getpid()); !ok || got != first {
		return 0, "the system does not keep limits of this size"
	}
	return first, ""
}

// nextTag lowers this process's limit to the next tag. It returns 0 if none is left, because
// another process has lowered the limit.
func nextTag() uint64 {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &limit)
	if err != nil || limit.Max < tagFloor || setTag(limit, limit.Max-1) != nil {
		return 0
	}
	return limit.Max - 1
}

func setTag(limit unix.Rlimit, tag uint64) error {
	limit.Cur, limit.Max = min(limit.Cur, tag), tag
	return unix.Prlimit(0, unix.RLIMIT_RTTIME, &limit, nil)
}

// tagOf returns the tag of a process.
func tagOf(pid int) (tag uint64, ok bool) {
	var limit unix.Rlimit
	switch err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit); {
	case err == nil:
		return limit.Max, true
	case !errors.Is(err, unix.EPERM):
		return 0, false // gone
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits") // another user's
	if err != nil {
		return 0, false
	}
	return parseLimits(data)
}

// parseLimits finds the tag in the text of /proc/PID/limits.
func parseLimits(data []byte) (tag uint64, ok bool) {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		rest, found := strings.CutPrefix(lines.Text(), "Max realtime timeout")
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return 0, false
		}
		if tag, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return tag, true
		}
		return 0, false // unlimited
	}
	return 0, false
}

// stopTagged sends SIGSTOP to all processes with a wanted tag. It takes a small part of the time of
// a scan, of which a fork bomb leaves hardly any.
func stopTagged(wanted func(tag uint64) bool) {
	numbers, err := processNumbers()
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, pid := range numbers {
		if tag, ok := tagOf(pid); pid == self || !ok || !wanted(tag) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if tag, ok := tagOf(pid); ok && wanted(tag) { // or the number belongs to another process now
			_ = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
		}
		_ = unix.Close(fd)
	}
}
