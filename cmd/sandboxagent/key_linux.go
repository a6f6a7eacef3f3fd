package main

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// hideFromSystem overwrites the values of variables in the block that /proc/PID/environ shows, and
// closes the memory of this process to other processes of the same user. Root can still read the
// memory. If it fails, the key is as visible as in any program with a key in a variable.
func hideFromSystem(names []string) {
	_ = overwriteEnviron(names) // see above for the effect of a failure
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// overwriteEnviron writes zeros over the values of variables in the original block of this process.
func overwriteEnviron(names []string) error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	// The second field, the name, is in parentheses and may hold blanks. env_start and env_end are
	// fields 50 and 51.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const before = 3 // the first of fields is field 3
	if len(fields) <= 51-before {
		return errors.New("/proc/self/stat has too few fields")
	}
	start, err := strconv.ParseInt(string(fields[50-before]), 10, 64)
	if err != nil {
		return err
	}
	end, err := strconv.ParseInt(string(fields[51-before]), 10, 64)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close() //nolint:errcheck // each write reports its error
	block := make([]byte, max(end-start, 0))
	if _, err := mem.ReadAt(block, start); err != nil {
		return err
	}
	for len(block) > 0 {
		entry, rest, _ := bytes.Cut(block, []byte{0})
		if name, value, ok := bytes.Cut(entry, []byte("=")); ok && slices.Contains(names, string(name)) {
			if _, err := mem.WriteAt(make([]byte, len(value)), start+int64(len(name))+1); err != nil {
				return err
			}
		}
		start += int64(len(block) - len(rest))
		block = rest
	}
	return nil
}
