package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// processesWith lists the processes of this machine that have text in their command lines. Where no
// /proc exists, it lists none.
func processesWith(text string) []int {
	var pids []int
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue // the process may have ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// running reports whether a process of this machine has marker in its command line.
func running(marker string) bool { return len(processesWith(marker)) > 0 }

// witness looks for processes of this machine with a marker in their command lines, so that their
// absence later means that they have ended.
type witness struct {
	t      *testing.T
	marker string
	seen   atomic.Bool
}

// watchFor returns a witness that looks until it has seen a process, or the test ends.
func watchFor(t *testing.T, marker string) *witness {
	t.Helper()
	w := &witness{t: t, marker: marker}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil && !w.seen.Load() {
			w.seen.Store(running(marker))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-done }) // the context of a test ends before its cleanups
	return w
}

// gone records a failure unless the witness has seen a process, and none is left.
func (w *witness) gone() {
	w.t.Helper()
	if running(w.marker) {
		w.t.Error("a process is alive: " + w.marker)
	}
	if !w.seen.Load() && runtime.GOOS == "linux" {
		w.t.Error("no process was seen: " + w.marker)
	}
}

// process is a process of this machine; its start time distinguishes it from a later one with the
// same PID.
type process struct {
	pid   int
	start string
}

// runs reports whether the process is alive; a zombie is not.
func (p process) runs() bool {
	now, state, _, err := readProcess(p.pid)
	return err == nil && now == p && state != "Z"
}

// readProcess reads /proc/PID/stat.
func readProcess(pid int) (p process, state string, parent int, err error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, "", 0, err
	}
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	if len(fields) < 20 {
		return process{}, "", 0, fmt.Errorf("malformed %q", line)
	}
	parent, err = strconv.Atoi(fields[1])
	return process{pid, fields[19]}, fields[0], parent, err
}

// childrenOf returns the processes whose parent is pid, zombies included.
func childrenOf(t *testing.T, pid int) []process {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var children []process
	for _, name := range names {
		n, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if p, _, parent, err := readProcess(n); err == nil && parent == pid {
			children = append(children, p)
		}
	}
	return children
}
