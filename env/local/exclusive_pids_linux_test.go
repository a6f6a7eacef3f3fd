package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pidsGroup creates a control group for at most limit processes and returns its directory.
// Processes in it are killed when the test ends.
func pidsGroup(t *testing.T, limit int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root creates control groups")
	}
	for _, parent := range []string{
		"/sys/fs/cgroup/pids", "/sys/fs/cgroup",
		"/sys/fs/cgroup/unified",
	} {
		dir := filepath.Join(parent, fmt.Sprintf("local-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(limit)),
			0o600); err != nil {
			_ = os.Remove(dir)
			continue
		}
		if os.Getenv(aloneVar) == "" {
			guard(t, dir)
		}
		t.Cleanup(func() {
			_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("0"), 0o600) // nothing grows any more
			eventually(t, "an empty control group", func() bool {
				data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				for _, field := range strings.Fields(string(data)) {
					if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
						_ = unix.Kill(pid, unix.SIGKILL)
					}
				}
				return os.Remove(dir) == nil
			})
		})
		return dir
	}
	t.Skip("no control group can limit processes")
	return ""
}

// guard starts a process that kills the processes in a control group if this process is killed.
func guard(t *testing.T, dir string) {
	t.Helper()
	script := `while kill -0 $1 2>/dev/null; do sleep 1; done
while echo 1 >"$2/pids.max"; do kill -9 $(cat "$2/cgroup.procs"); rmdir "$2"; done 2>/dev/null`
	self := strconv.Itoa(os.Getpid())
	c := exec.Command("/bin/sh", "-c", script, "sh", self, dir) //nolint:noctx // it outlives the test
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL)
		_ = c.Wait()
	})
}

func groupSize(t *testing.T, dir string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(data)))
}

const (
	// bombLimit is the number of processes that a bomb reaches.
	bombLimit = 100
	// groupVar names the control group for it.
	groupVar = "LOCAL_TEST_GROUP"
)

// bombs grow until they are stopped, and most end after a while. Each joins the control group $1
// first.
var bombs = []struct{ name, script string }{
	{"plain", `echo 0 >"$1/cgroup.procs" || exit; exec bash -c ':(){ :|:& };:; exec sleep 1000'`},
	{"stubborn", `echo 0 >"$1/cgroup.procs" || exit; trap '' TERM; ` +
		`exec bash -c 'b() { [ $SECONDS -ge 100 ] || { b|b& b|b& }; }; b; ` +
		`while [ $SECONDS -lt 100 ]; do b; done' 2>/dev/null`},
	{"in other sessions", `echo 0 >"$1/cgroup.procs" || exit; exec env -i perl -e '
use POSIX; $SIG{TERM} = "IGNORE"; my $end = time + 100;
while (time < $end) { my $p = fork; if (defined $p && !$p) { POSIX::setsid() } }'`},
}

// TestForkBombDies stops commands that fork as fast as they can, up to a limit.
func TestForkBombDies(t *testing.T) {
	for _, bomb := range bombs {
		t.Run(bomb.name, func(t *testing.T) {
			if bomb.name != "plain" {
				needFull(t, "takes the processors for seconds")
			}
			for _, s := range settings {
				t.Run(s.name, func(t *testing.T) {
					group := os.Getenv(groupVar)
					if group == "" { // created here, so that nothing is left if the process below dies
						group = pidsGroup(t, bombLimit)
						t.Setenv(groupVar, group)
					}
					aloneIn(t, s, func(t *testing.T) { defuse(t, bomb.script, group) })
				})
			}
		})
	}
}

// defuse starts a bomb beside a neighbour, which survives, and stops it.
func defuse(t *testing.T, bomb, group string) {
	for _, program := range []string{"bash", "perl"} {
		if _, err := exec.LookPath(program); err != nil && strings.Contains(bomb, program) {
			t.Skip(program + " is not installed")
		}
	}
	e := newExclusive(t)
	neighbour := newMark(t)
	output(t, e, withMark(sh(escapees, "1"), neighbour))
	eventually(t, "the neighbour", func() bool { return len(marked(t, neighbour)) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		err error
		at  time.Time
	}
	done := make(chan outcome, 1)
	go func() {
		_, err := e.Exec(ctx, sh(bomb+"; wait", group))
		done <- outcome{err, time.Now()}
	}()
	eventually(t, "the bomb", func() bool {
		return groupSize(t, group) > bombLimit/2 || len(done) > 0
	})
	start := time.Now()
	cancel()
	o := <-done
	t.Logf("the bomb was dead after %v", o.at.Sub(start))
	if !errors.Is(o.err, context.Canceled) || strings.Contains(o.err.Error(), "processes") {
		t.Error(o.err)
	}
	if n := groupSize(t, group); n > 0 {
		t.Errorf("%d processes live on", n)
	}
	left := marked(t, neighbour)
	if len(left) != 1 {
		t.Fatal("another command's daemon died")
	}
	eventually(t, "the neighbour to run again", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", left[0]))
		return err == nil && !bytes.Contains(stat, []byte(") T "))
	})
	noZombies(t, 1)
}
