package local_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// aloneVar names the test for which a copy of the test program runs.
const aloneVar = "LOCAL_TEST_ALONE"

// A setting is how the exclusive process runs.
type setting struct {
	name string
	attr syscall.SysProcAttr
}

var settings = []setting{
	{"sub-reaper", syscall.SysProcAttr{Setsid: true}},
	{"PID 1", syscall.SysProcAttr{
		Setsid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
	}},
}

// alone runs a test in another process, in each setting.
func alone(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			if os.Getenv(aloneVar) == "" {
				t.Parallel()
			}
			aloneIn(t, s, test)
		})
	}
}

// aloneIn runs a test in another process.
func aloneIn(t *testing.T, s setting, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(aloneVar) == t.Name() {
		if os.Getpid() == 1 {
			mountProc(t)
		}
		test(t)
		return
	}
	if s.attr.Cloneflags != 0 && os.Getuid() != 0 {
		t.Skip("only root creates pid namespaces")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 31*time.Minute)
	defer cancel()
	parts := strings.Split(t.Name(), "/")
	for i := range parts {
		parts[i] = "^" + parts[i] + "$"
	}
	args := []string{"-test.run=" + strings.Join(parts, "/"), "-test.v", "-test.timeout=30m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), aloneVar+"="+t.Name())
	c.SysProcAttr = &s.attr
	out, err := c.CombinedOutput()
	if c.Process != nil {
		killMarked(t, markPrefix(t, c.Process.Pid)) // a process that panicked leaves some
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) && !bytes.Contains(out,
		[]byte("--- SKIP")) {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") || strings.Contains(line, "--- SKIP") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// killMarked kills processes that have an argument that begins with prefix.
func killMarked(t *testing.T, prefix string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		args, _ := os.ReadFile(name)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && bytes.Contains(args, []byte("\x00"+prefix)) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// mountProc shows the processes of a new pid namespace.
func mountProc(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
}
