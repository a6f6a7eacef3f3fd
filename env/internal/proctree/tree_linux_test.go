package proctree

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       procInfo
		bad        bool
	}{
		{"plain", "7 (sh) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7", procInfo{
			pid: 7, ppid: 10,
			pgid: 20, sid: 30, start: 12345, running: true,
		}, false},
		{"zombie", "7 (sh) Z 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", procInfo{
			pid: 7, ppid: 10,
			pgid: 20, sid: 30, start: 12345, dead: true,
		}, false},
		{
			"main thread ended, others live", "7 (sh) Z 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 3 0 12345",
			procInfo{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345, headless: true},
			false,
		},
		{"stopped", "7 (sh) T 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", procInfo{
			pid: 7, ppid: 10,
			pgid: 20, sid: 30, start: 12345, stopped: true,
		}, false},
		{
			"name with parentheses", "7 (a) Z (1 2) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345",
			procInfo{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345, running: true},
			false,
		},
		{
			"name with line feed", "7 (a\n) S 1) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345\n",
			procInfo{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345, running: true},
			false,
		},
		{"thread of the kernel", "7 (k) I 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 12345", procInfo{
			pid:  7,
			ppid: 2, start: 12345, kernel: true,
		}, false},
		{"empty", "", procInfo{}, true},
		{"cut", "7 (sh) S 10 20", procInfo{}, true},
		{"parentheses the wrong way", "7 )sh( S 10 20 30", procInfo{}, true},
		{"no number", "7 (sh) S x 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", procInfo{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat(tt.line)
			if (err != nil) != tt.bad {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(procInfo{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (a) Z (1 2) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345")
	f.Add(")(")
	f.Fuzz(func(t *testing.T, line string) {
		if s, err := parseStat(line); err != nil && s != (procInfo{}) {
			t.Errorf("%q: %+v with error %v", line, s, err)
		}
	})
}

// TestSendSparesNumbersUsedAgain sends to a process that has the right number and the wrong start.
// That it still answers shows that it got nothing: a process that got SIGKILL reads no more.
func TestSendSparesNumbersUsedAgain(t *testing.T) {
	cat := exec.CommandContext(t.Context(), "cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := readProcess(cat.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := s
	other.start--
	if err := send(other, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 1)
	_, werr := in.Write([]byte("x"))
	if _, err := out.Read(answer); werr != nil || err != nil {
		t.Fatalf("another process was killed: %v, %v", werr, err)
	}
	if err := send(s, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := cat.Wait(); err == nil {
		t.Error("the process was not killed")
	}
}

// TestWithoutProc ends a group where processes cannot be listed.
func TestWithoutProc(t *testing.T) {
	set, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"gentle":   "sleep 1000; :",
		"stubborn": "trap '' TERM; while :; do sleep 0.1; done",
	} {
		t.Run(name, func(t *testing.T) {
			attr := &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, nil, nil}}
			p, err := set.Start("/bin/sh", []string{"sh", "-c", script}, attr)
			if err != nil {
				t.Fatal(err)
			}
			tr := tree{leaders: []*Process{p}}
			if err := tr.terminateGroups(100e6); err != nil {
				t.Error(err)
			}
			if s, err := readProcess(p.os.Pid); err != nil || !s.dead {
				t.Errorf("%+v, %v", s, err)
			}
			_, _, _ = p.Reap()
		})
	}
}

// TestSlowKill kills a tree where one attempt takes longer than all have.
func TestSlowKill(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & wait")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{os: cmd.Process, Exited: make(chan struct{})}
	tree := newTree([]*Process{p})
	err := tree.killUntil(time.Now())
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	_ = cmd.Wait() // it was killed
	if err != nil {
		t.Error(err)
	}
}

// TestKnownMembersStayCandidates has a member whose parent was there when it was looked at, and
// gone when it was the parent's turn.
func TestKnownMembersStayCandidates(t *testing.T) {
	child, other := procInfo{pid: 100, ppid: 200, start: 5}, procInfo{pid: 101, ppid: 200, start: 5}
	tr := newTree(nil)
	tr.below, tr.known[child.id()] = true, true
	list := []procInfo{child, other}
	got := tr.candidates(list)
	if diff := cmp.Diff([]procInfo{child}, got, cmp.AllowUnexported(procInfo{})); diff != "" {
		t.Error(diff)
	}
	if list[1] != other {
		t.Errorf("the list was changed: %+v", list)
	}
}

// TestChildrenGoOnBeforeTheirParents stops all processes of a pid namespace and lets them go on. A
// parent that waits for its children, as a shell with job control does, sees none of them stand
// still by then.
func TestChildrenGoOnBeforeTheirParents(t *testing.T) {
	if !inOwnNamespace(t) {
		return
	}
	const script = `use POSIX ":sys_wait_h"; $| = 1; $SIG{USR1} = sub { print "end\n"; exit };
for (1..50) { fork or do { sleep 1000; exit } } print "ready\n";
while ((my $p = waitpid(-1, WUNTRACED)) > 0) { print "$p stands still\n" }`
	parent := exec.CommandContext(t.Context(), "perl", "-e", script)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("%q", lines.Text())
	}
	await := func(state func(s procInfo) bool) {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			list, err := processes(0)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("%+v, %v", list, err)
			}
			if !slices.ContainsFunc(list, func(s procInfo) bool { return s.pid != 1 && !state(s) }) {
				return
			}
		}
	}
	tr := newTree(nil)
	tr.first, tr.halt = true, new(sync.Mutex)
	// A parent that stops last could see it, too, but that is not what this is about.
	if err := parent.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(func(s procInfo) bool { return s.stopped || s.pid != parent.Process.Pid })
	tr.haltWhen(atOnce)
	await(func(s procInfo) bool { return s.stopped })
	tr.resumeOthers()
	await(func(s procInfo) bool { return !s.stopped })
	// Perl handles a signal that comes right before a call of waitpid only after it, hence several.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for parent.Process.Signal(unix.SIGUSR1) == nil {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	if !lines.Scan() || lines.Text() != "end" {
		t.Errorf("the parent saw that %s", lines.Text())
		_ = parent.Process.Kill()
	}
	_ = parent.Wait() // it may have been killed
}

func atOnce(<-chan struct{}) bool { return true }

// TestOnlyCrowdsAreStoppedEarly has few processes in a pid namespace, and then many.
func TestOnlyCrowdsAreStoppedEarly(t *testing.T) {
	if !inOwnNamespace(t) {
		return
	}
	resumed := make(chan struct{})
	time.AfterFunc(5*freezeTime, func() { close(resumed) })
	if isHaltDue(0, time.Hour, resumed) {
		t.Error("few processes are stopped early")
	}
	if !isHaltDue(0, freezeTime, nil) {
		t.Error("few processes are never stopped")
	}
	for range crowd {
		c := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		}()
	}
	if !isHaltDue(0, time.Hour, nil) {
		t.Error("a crowd is not stopped early")
	}
}

// TestForksUnderWayAreResumed stops and resumes all processes of a pid namespace, while some fork.
// No child stays stopped: its parent would wait for it forever. A process with much memory forks
// slowly, above all beside busy processes, so the signal meets many forks under way.
func TestForksUnderWayAreResumed(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		for range runtime.NumCPU() {
			busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
			if err := busy.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = busy.Process.Kill()
				_ = busy.Wait()
			}()
		}
	}
	if !inOwnNamespace(t) {
		return
	}
	const script = `my $end; $SIG{USR1} = sub { $end = 1 }; my $m = "x" x (64 << 20);
print STDERR "ready\n";
until ($end) { my $p = fork; $p or exit; waitpid $p, 0 }`
	parents := make([]*exec.Cmd, 3)
	for i := range parents {
		parents[i] = exec.CommandContext(t.Context(), "nice", "-n", "19", "perl", "-e", script)
		out, err := parents[i].StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parents[i].Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	tr := newTree(nil)
	tr.first, tr.halt = true, new(sync.Mutex)
	for range 100 {
		time.Sleep(time.Millisecond) // they go on forking
		tr.haltWhen(atOnce)
		for tr.halt.TryLock() { // until it is held by the halt
			tr.halt.Unlock()
			time.Sleep(50 * time.Microsecond)
		}
		tr.resumeOthers()
	}
	for _, c := range parents {
		if err := c.Process.Signal(unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		hang := time.AfterFunc(20*time.Second, func() {
			list, err := processes(0)
			t.Errorf("a parent waits for a child: %+v, %v", list, err)
			_ = unix.Kill(-1, unix.SIGKILL)
		})
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		hang.Stop()
	}
}

// inNamespace is a variable of tests that run as PID 1 of a pid namespace.
const inNamespace = "LOCAL_TEST_FIRST"

// inOwnNamespace runs the calling test again as PID 1 of a new pid namespace, and reports whether
// this is that run.
func inOwnNamespace(t *testing.T) bool {
	if os.Getenv(inNamespace) == "" {
		if os.Getuid() != 0 {
			t.Skip("only root makes pid namespaces")
		}
		if _, err := exec.LookPath("perl"); err != nil {
			t.Skip("perl is not installed")
		}
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=10m")
		c.Env = append(os.Environ(), inNamespace+"=1")
		c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return false
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc",
		"/proc", "proc", 0, "")); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestMainThreadHasEnded reads a process whose main thread has ended before another one.
func TestMainThreadHasEnded(t *testing.T) {
	const other = "LOCAL_TEST_OTHER_THREAD"
	if os.Getenv(other) != "" {
		for { // until this runs on the main thread
			go func() {
				runtime.LockOSThread()
				if unix.Gettid() == os.Getpid() {
					_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
				}
				select {}
			}()
			time.Sleep(time.Millisecond)
		}
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=10m")
	c.Env = []string{other + "=1"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := readProcess(c.Process.Pid)
		if err != nil || s.dead {
			t.Fatalf("it is taken for dead: %+v, %v", s, err)
		}
		if s.headless {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the main thread lives: %+v", s)
		}
	}
	for marker, want := range map[string]bool{other: true, "ANOTHER": false} {
		if marked, hidden := hasMarker(c.Process.Pid, []string{marker}); marked != want || hidden {
			t.Errorf("marked by %s: %t, hidden: %t", marker, marked, hidden)
		}
	}
}

// TestMarksAreSeenBetweenPrograms reads the marker of a process that executes one program after
// another, after large variables.
func TestMarksAreSeenBetweenPrograms(t *testing.T) {
	const marker = "LOCAL_TEST_MARK"
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", `exec /bin/sh -c "$SELF"`)
	c.Env = []string{
		"SELF=" + `exec /bin/sh -c "$SELF"`, "FILL=" + strings.Repeat("x", 60<<10),
		marker + "=1",
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	for range 3000 {
		if marked, hidden := hasMarker(c.Process.Pid, []string{marker}); !marked && !hidden {
			t.Fatal("the marker was not found")
		}
	}
}

// TestProcessesWithoutVariables reads markers of processes without variables.
func TestProcessesWithoutVariables(t *testing.T) {
	c := exec.CommandContext(t.Context(), "/bin/sleep", "600")
	c.Env = []string{}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		marked, hidden := hasMarker(c.Process.Pid, []string{"LOCAL_TEST_MARK"})
		if marked {
			t.Fatal("a process without variables was reported to have a marker")
		}
		if !hidden { // it executes its program now
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a process without variables is taken for one that can not be procInfo")
		}
	}
}
