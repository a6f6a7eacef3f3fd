package attack_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// survivors are ways for a process to outlive its command. Each starts "sleep $1", which would
// live for days.
var survivors = map[string]string{
	"background":  `sleep "$1" &`,
	"no hang-up":  `nohup sleep "$1" >/dev/null 2>&1 &`,
	"new session": `setsid sleep "$1" >/dev/null 2>&1 </dev/null &`,
	"orphan":      `(setsid sh -c '(sleep "$0" &) &' "$1" &)`,
	"without a mark": `env -i PATH="$PATH" setsid sh -c 'cd /
		exec sleep "$0"' "$1" &`,
	"signals ignored": `(trap "" TERM HUP INT QUIT USR1
		exec setsid sleep "$1") >/dev/null 2>&1 &`,
	"stopped": `sleep "$1" & until grep -q ^sleep /proc/$!/cmdline; do :; done
		kill -STOP $!`,
	"other name": `perl -e '$0 = "sandboxd"; fork or exec "sleep", $ARGV[0]' "$1" &`,
	"chain of forks": `perl -e 'for (1..200) { fork and exit; select undef, undef, undef, 0.001 }
		exec "sleep", $ARGV[0]' "$1" >/dev/null 2>&1 &`,
	"waits for death": `perl -e 'setpgrp; $p = getppid; fork and exit;
		sleep 1 while getppid != 1 && kill 0, $p;
		exec "sleep", $ARGV[0]' "$1" &`,
	"another user": `setpriv --reuid 12345 --clear-groups sleep "$1" &
		sleep "$1" &`,
	"death signal": `perl -e 'syscall(` + strconv.Itoa(unix.SYS_PRCTL) + `, 1, 0);
		exec "setsid", "sleep", $ARGV[0]' "$1" &`,
	"another namespace": `unshare --fork --pid --mount sleep "$1" &
		unshare --user --fork --pid sleep "$1" &
		sleep "$1" &`,
	"limits": `perl -e '$l = pack("QQ", 1000000, 1000000);
		syscall(` + strconv.Itoa(unix.SYS_SETRLIMIT) + `, 15, $l);
		fork and exit; exec "setsid", "sleep", $ARGV[0]' "$1" &`,
}

// TestSurvivors has processes outlive a command, at its end, by its timeout, and when the program
// is killed, on this machine without a sandbox and in each sandbox.
func TestSurvivors(t *testing.T) {
	long(t)
	backends := append(sandboxes(t), backend{name: "supervised", flags: []string{"--sandbox=off"}})
	for name, script := range survivors {
		t.Run("bare/"+name, func(t *testing.T) {
			t.Parallel()
			bareSurvivor(t, script)
		})
	}
	for _, b := range backends {
		for name, script := range survivors {
			for end, tail := range map[string]string{
				"end": "", "timeout": "\nsleep 600", "kill": "\n: >ready; sleep 600",
			} {
				t.Run(strings.Join([]string{b.name, name, end}, "/"), func(t *testing.T) {
					t.Parallel()
					survive(t, b, script+tail, end)
				})
			}
		}
	}
}

// bareSurvivor checks that a process survives where nothing kills it.
func bareSurvivor(t *testing.T, script string) {
	t.Helper()
	mark := newMark()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", mark)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	await(t, "a survivor", func() bool { return len(marked(t, mark)) > 0 })
	for _, pid := range marked(t, mark) {
		_ = unix.Kill(pid, unix.SIGKILL) // one may have ended
	}
	await(t, "its end", func() bool { return len(marked(t, mark)) == 0 })
}

func survive(t *testing.T, b backend, script, end string) {
	t.Helper()
	dir, mark := t.TempDir(), newMark()
	var flags []string
	if end == "timeout" {
		flags = []string{"--timeout=1s"}
	}
	done := make(chan ran, 1)
	cmd, wait := b.start(t, dir, flags, script, mark)
	go func() { done <- wait() }()
	if end == "kill" {
		await(t, "the command", func() bool {
			_, err := os.Stat(filepath.Join(dir, "ready"))
			return err == nil || len(done) > 0
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
	got := <-done
	if want := map[string]int{"end": 0, "timeout": 124, "kill": -1}[end]; got.code != want {
		t.Errorf("want exit code %d: %s", want, got)
	}
	gone := func() bool { return len(marked(t, mark)) == 0 }
	if end == "kill" { // the helper needs a moment
		await(t, "the end of all processes", gone)
	} else if !gone() {
		t.Error("a process is left")
	}
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// newMark returns seconds, which no other sleep has.
func newMark() string { return strconv.Itoa(1_000_000 + rand.IntN(9_000_000)) }

// marked returns the processes that sleep for mark seconds.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, _ := os.ReadFile(name) // it may have ended
		if string(data) != "sleep\x00"+mark+"\x00" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
