package portable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// place stands for a host: its shells do not end with the client, unless they see the end of their input.
type place struct {
	mu    sync.Mutex
	cmds  []*exec.Cmd
	links []*link
	over  bool // no more shells are started
}

// link is the standard input of a shell. It can be cut, as when a client is killed, or be stopped, as when nothing arrives.
type link struct {
	io.WriteCloser
	mu      sync.Mutex
	stopped bool
}

// Write implements io.Writer.
func (l *link) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return len(p), nil
	}
	return l.WriteCloser.Write(p)
}

// Close implements io.Closer.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil
	}
	return l.WriteCloser.Close()
}

func (l *link) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}

// start returns a function that starts shells of a kind.
func (p *place) start(t *testing.T, k kind) func(context.Context) (portable.Shell, error) {
	command := k.command(t)
	return func(context.Context) (portable.Shell, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.over {
			return portable.Shell{}, env.ErrGone
		}
		c := command()
		s, err := startProcess(c)
		if err != nil {
			return s, err
		}
		l := &link{WriteCloser: s.Stdin}
		s.Stdin = l
		s.Close = sync.OnceValue(func() error {
			_ = l.Close()
			// The streams here end, and the shell finds out by itself.
			go func() { _ = c.Wait() }()
			return errors.Join(s.Stdout.(io.Closer).Close(), s.Stderr.(io.Closer).Close())
		})
		p.cmds, p.links = append(p.cmds, c), append(p.links, l)
		return s, nil
	}
}

// stop has nothing arrive any more.
func (p *place) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, l := range p.links {
		l.stop()
	}
}

// cut ends all links, as the death of the client does.
func (p *place) cut() {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		_ = l.WriteCloser.Close()
	}
}

// alive returns the shells that live.
func (p *place) alive() (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.cmds {
		if runs(c.Process.Pid) {
			pids = append(pids, c.Process.Pid)
		}
	}
	return pids
}

// runs reports whether a process lives.
func runs(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	state := data[bytes.LastIndexByte(data, ')')+1:]
	return err == nil && len(state) > 1 && state[1] != 'Z' && state[1] != 'X'
}

// inSession returns the processes in the sessions of shells.
func (p *place) inSession(t *testing.T) (pids []int) {
	t.Helper()
	sessions := make(map[string]bool)
	p.mu.Lock()
	for _, c := range p.cmds {
		sessions[strconv.Itoa(c.Process.Pid)] = true
	}
	p.mu.Unlock()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range files {
		data, err := os.ReadFile(name)
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if err == nil && len(fields) > 4 && sessions[string(fields[3])] && string(fields[0]) != "Z" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// busyPlace starts an environment with a command in progress, one that was left behind and one in a session of its own.
// It returns the processes of these.
func busyPlace(t *testing.T, k kind, ttl time.Duration) (p *place, pids []int, temp string) {
	t.Helper()
	p = new(place)
	e, err := portable.New(t.Context(), portable.Config{Start: p.start(t, k), Dir: t.TempDir(), Backend: "portable", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // the contact may be lost
	if got := e.Info().Strength(env.CleanCrash); got != env.BestEffort {
		t.Errorf("clean-crash is %q", got)
	}
	temp = strings.TrimSpace(output(t, e, `echo "$TMPDIR"`))
	for _, script := range []string{"sleep 4713 >/dev/null 2>&1 & echo $!", "setsid sleep 4714 >/dev/null 2>&1 & sleep 0; echo $!"} {
		pid, err := strconv.Atoi(strings.TrimSpace(output(t, e, script)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	started := make(chan int)
	var once sync.Once
	go func() {
		_, _ = e.Exec(context.WithoutCancel(t.Context()), env.Command{ // it ends with the place
			// Its child has neither its marker nor, when it is looked for, a parent that lives.
			Argv: []string{"sh", "-c", "trap '' HUP TERM; env -i sleep 4715 & echo $!; wait"},
			Stdout: writer(func(data []byte) (int, error) {
				once.Do(func() {
					pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
					started <- pid
				})
				return len(data), nil
			}),
		})
	}()
	pids = append(pids, <-started)
	for _, pid := range pids {
		if !runs(pid) {
			t.Fatalf("process %d does not run", pid)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // where the test fails
	}
	return p, pids, temp
}

// nothingLeft waits until a place is as if nobody had been there.
func nothingLeft(t *testing.T, p *place, pids []int, temp string) {
	t.Helper()
	eventually(t, "the processes to end", func() bool {
		for _, pid := range pids {
			if runs(pid) {
				return false
			}
		}
		return len(p.alive()) == 0 && len(p.inSession(t)) == 0
	})
	if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
		t.Errorf("the temporary folder holds %v, error %v", entries, err)
	}
}

// TestClientKilled ends the contact as the death of a client does.
func TestClientKilled(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p, pids, temp := busyPlace(t, k, time.Hour)
		p.cut()
		nothingLeft(t, p, pids, temp)
	})
}

// TestClientSilent has nothing arrive any more, on links that seem to last.
func TestClientSilent(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p, pids, temp := busyPlace(t, k, 4*time.Second)
		// As long as the client is there, nothing happens.
		for end := time.Now().Add(7 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			for _, pid := range pids {
				if !runs(pid) {
					t.Fatalf("process %d has ended while the client is there", pid)
				}
			}
		}
		p.stop()
		nothingLeft(t, p, pids, temp)
	})
}

// TestKeeperCloses closes environments at once and later, and looks for keepers.
func TestKeeperCloses(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		for i := range 6 {
			p := new(place)
			e, err := portable.New(t.Context(), portable.Config{Start: p.start(t, k), Dir: t.TempDir(), TTL: time.Hour, MaxShells: 4})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 1 {
				output(t, e, "sleep 4716 >/dev/null 2>&1 & echo")
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, "all shells to end", func() bool { return len(p.alive()) == 0 && len(p.inSession(t)) == 0 })
		}
	})
}

// keeper returns the keeper whose timer sleeps for so many seconds at a time, 0 for none. That of the keeper old does not
// count.
func (p *place) keeper(t *testing.T, seconds, old int) int {
	t.Helper()
	for _, child := range p.inSession(t) {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(child) + "/cmdline")
		data, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		if err != nil || !strings.HasSuffix(string(line), fmt.Sprintf("sleep\x00%d\x00", seconds)) {
			continue // it may have ended
		}
		session, err := strconv.Atoi(strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))[3])
		if err == nil && session != 0 && session != old {
			return session
		}
	}
	return 0
}

// TestKeeperKilled kills the keeper: another one takes its place.
func TestKeeperKilled(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p := new(place)
		e, err := portable.New(t.Context(), portable.Config{Start: p.start(t, k), Dir: t.TempDir(), TTL: 8 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		temp := strings.TrimSpace(output(t, e, `echo "$TMPDIR"`))
		var pid int
		eventually(t, "the keeper to have a timer", func() bool {
			pid = p.keeper(t, 2, 0)
			return pid != 0
		})
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another keeper", func() bool { return !runs(pid) && p.keeper(t, 2, pid) != 0 })
		if got := output(t, e, "echo on"); got != "on\n" {
			t.Errorf("printed %q", got)
		}
		left := strings.TrimSpace(output(t, e, "sleep 4717 >/dev/null 2>&1 & echo $!"))
		n, _ := strconv.Atoi(left)
		p.cut()
		nothingLeft(t, p, []int{n}, temp)
	})
}

// TestSleepsKilled kills what the keeper sleeps with, again and again: that is no end of the client.
func TestSleepsKilled(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p, pids, temp := busyPlace(t, k, 4*time.Second)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for _, pid := range p.inSession(t) {
				if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); strings.HasSuffix(string(line), "sleep\x001\x00") {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
				}
			}
		}
		for _, pid := range pids {
			if !runs(pid) {
				t.Fatalf("process %d has ended while the client is there", pid)
			}
		}
		// A timer that cannot sleep gives up, and the next sign of life starts another.
		eventually(t, "a timer", func() bool { return p.keeper(t, 1, 0) != 0 })
		p.stop()
		nothingLeft(t, p, pids, temp)
	})
}
