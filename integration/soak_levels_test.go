package integration_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/race"
)

// level is the use of resources by the process. Where no /proc exists, files and rss are zero.
type level struct {
	files, goroutines int
	heap, rss         int64
}

func (k *soak) levels(t *testing.T) level {
	t.Helper()
	// Two collections empty the pools.
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l := level{goroutines: runtime.NumGoroutine(), heap: int64(m.HeapAlloc)}
	if runtime.GOOS != "linux" {
		return l
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	l.files = len(files)
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		t.Fatalf("memory of the process: %q, %v", data, err)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	l.rss = pages * int64(os.Getpagesize())
	return l
}

// still returns the levels when descriptors and goroutines have not changed for a while: those of
// connections end by themselves.
func (k *soak) still(t *testing.T) level {
	t.Helper()
	last := k.levels(t)
	for same, deadline := 0, time.Now().Add(time.Minute); same < 10 &&
		time.Now().Before(deadline); same++ {
		time.Sleep(50 * time.Millisecond)
		now := k.levels(t)
		if now.files != last.files || now.goroutines != last.goroutines {
			same = 0
		}
		last = now
	}
	return last
}

// settle waits until the process has no more descriptors and goroutines than before.
func (k *soak) settle(t *testing.T, want level) {
	t.Helper()
	var got level
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got = k.levels(t); got.files <= want.files && got.goroutines <= want.goroutines {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d descriptors and %d goroutines, at first %d and %d", got.files, got.goroutines,
		want.files, want.goroutines)
	if got.goroutines > want.goroutines {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1) // a buffer takes all
		t.Logf("%.8000s", stacks.String())
	}
}

func (k *soak) checkMemory(t *testing.T, base level) {
	t.Helper()
	now := k.levels(t)
	t.Logf("heap %d KiB, after the warm-up %d KiB; resident %d KiB, after the warm-up %d KiB",
		now.heap>>10, base.heap>>10, now.rss>>10, base.rss>>10)
	if limit := base.heap + int64(soakGrowth*float64(base.heap)) + soakHeapSlack; now.heap > limit {
		t.Errorf("the heap has %d bytes, after the warm-up %d", now.heap, base.heap)
	}
	if race.Enabled() {
		return // the detector's memory grows
	}
	if limit := base.rss + int64(soakGrowth*float64(base.rss)) + soakRSSSlack; now.rss > limit {
		t.Errorf("%d bytes are resident, after the warm-up %d", now.rss, base.rss)
	}
}

// checkLeftovers checks that no process or file of the sessions is left.
func (k *soak) checkLeftovers(t *testing.T) {
	t.Helper()
	for _, name := range []string{"tmp", "sessions"} {
		left, err := os.ReadDir(filepath.Join(k.root, name))
		if err != nil || len(left) > 0 {
			t.Errorf("left in the directory %s: %v, %v", name, left, err)
		}
	}
	if work, err := os.ReadDir(filepath.Join(k.root, "work")); err != nil ||
		len(work) != len(k.lanes) {
		t.Errorf("%d directories to work in are left of %d lanes, %v", len(work), len(k.lanes), err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		// An ended process, or another user's, is not of the sessions.
		if vars, err := os.ReadFile(name); err == nil && bytes.Contains(vars,
			[]byte("SANDBOXAGENT_SOAK="+k.marker)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			t.Errorf("the process %s is left: %q", name, line)
		}
	}
	if children := childrenOf(t, os.Getpid()); len(children) > 0 {
		t.Errorf("children of this process are left: %v", children)
	}
}
