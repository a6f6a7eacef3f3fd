package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

const (
	// interruptPoints is the number of points of a run at which the program is interrupted.
	interruptPoints = 30
	// firstPoints is the number of points at which it is killed while it prepares the daemon's first
	// container.
	firstPoints = 8
	// crashTTL is the lease of a container in these tests, and crashLimit the time after which all
	// must be gone: a busy daemon takes its time to end and remove containers.
	crashTTL   = 3 * time.Second
	crashSlack = 30 * time.Second
	crashLimit = crashTTL + crashSlack
	// janitorLimit is the time after which the process must be gone that cleans up after a program
	// killed while its container was made: it waits until the daemon may have made the container.
	janitorLimit = 40 * time.Second
	// atOnce is the largest number of containers at a time.
	atOnce = 4
)

// TestDockerCrashes ends the program in the middle, by SIGKILL and by SIGINT, at points spread over
// its whole life with a container, the making of which is a good part of it. Nothing may survive:
// no container, none of its volumes, no process in it or beside it.
func TestDockerCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills the program a hundred times")
	}
	d := privateDocker(t, daemons.Debian)
	t.Run("F1_kill_while_the_first_container_is_made", func(t *testing.T) { proveFirstCrashes(t, d) })
	late := d.victimUntil(t, "sleep 1000", "--ttl=1m")
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the processes", func() bool { return late.processes(t) > 0 })
	killedAt := time.Now()
	if err := late.kill(); err != nil {
		t.Error(err)
	}
	t.Run("F25_interrupt", func(t *testing.T) { proveInterrupts(t, d) })
	t.Run("F1_kill", func(t *testing.T) { proveDockerCrashes(t, d) })
	t.Run("F1_kill_with_the_default_TTL", func(t *testing.T) {
		if err := late.awaitEnd(t.Context(), killedAt.Add(time.Minute+crashSlack)); err != nil {
			t.Error(err)
		}
	})
	d.awaitJanitors(t, time.Now().Add(janitorLimit))
	if left, err := d.volumes(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	d.checkNone(t, "")
}

// victim is a run of the program that a test ends.
type victim struct {
	*program
	docker *dockerHost
}

// victim makes a run of eight calls of commands that leave processes in every way.
func (d *dockerHost) victim(t *testing.T, flags ...string) *victim {
	t.Helper()
	return d.victimUntil(t, "true", flags...)
}

// victimUntil makes such a run, with one more command.
func (d *dockerHost) victimUntil(t *testing.T, last string, flags ...string) *victim {
	t.Helper()
	v := &victim{program: &program{marker: newMark()}, docker: d}
	dir := t.TempDir()
	call := fmt.Sprintf("  - calls: [{tool: shell, args: {command: %q}}]\n", v.strays())
	writeTree(t, dir, map[string]string{
		"model.yaml": "turns:\n" + strings.Repeat(call, 8) +
			fmt.Sprintf("  - calls: [{tool: shell, args: {command: %q}}]\n", last) + "  - text: done\n",
		"work/f": "f\n",
	})
	args := []string{"run", "--model=script:" + filepath.Join(dir, "model.yaml"), "--patch=" +
		filepath.Join(dir, "patch"), "--image=" + daemons.Debian, "go on"}
	v.Cmd = d.command(t, filepath.Join(dir, "work"), v.marker, append(args, flags...)...)
	v.Stdout, v.Stderr = &v.stdout, &v.stderr
	d.removeLeft(t, v.marker)
	return v
}

// processes is the number of running processes of the commands.
func (v *victim) processes(t *testing.T) int {
	t.Helper()
	n := 0
	for _, pid := range v.left() {
		if pid != v.Process.Pid {
			n++
		}
	}
	return n
}

// kill ends the program by SIGKILL.
func (v *victim) kill() error {
	err := v.Process.Kill()
	_ = v.Wait() // it was killed, or had ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// awaitEnd waits until nothing is left of the run.
func (v *victim) awaitEnd(ctx context.Context, deadline time.Time) error {
	for {
		left, err := v.docker.containers(ctx, v.marker)
		if err != nil {
			return err
		}
		for _, pid := range processesWith(v.marker) {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
		if len(left) == 0 {
			return nil
		}
		if late := time.Since(deadline); late > 0 {
			return fmt.Errorf("left %s after the time is over: %v", late.Round(time.Millisecond), left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// awaitJanitors waits until no process is left that cleans up in this daemon.
func (d *dockerHost) awaitJanitors(t *testing.T, deadline time.Time) {
	t.Helper()
	for {
		var left []int
		for _, pid := range processesWith("__discard") {
			if vars, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil &&
				bytes.Contains(vars, []byte(d.host)) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the processes %v still clean up", left)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lifetime returns how long an undisturbed run takes beside others of its kind: the time of the
// quickest, since a point after its end would be wasted.
func (d *dockerHost) lifetime(t *testing.T) time.Duration {
	t.Helper()
	var all [atOnce]time.Duration
	var group sync.WaitGroup
	for i := range all {
		v := d.victim(t)
		group.Go(func() {
			began := time.Now()
			if err := v.Run(); err != nil {
				t.Errorf("an undisturbed run: %v\n%s", err, v.stderr.String())
			}
			all[i] = time.Since(began)
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return slices.Min(all[:])
}

// atPoints starts n runs, a few at once, and calls end with each when a part of life is over that
// grows from run to run.
func atPoints(
	t *testing.T, d *dockerHost, n int, life time.Duration, flags []string, end func(i int, v *victim),
) {
	t.Helper()
	victims := make([]*victim, n)
	for i := range victims {
		victims[i] = d.victim(t, flags...)
	}
	next := make(chan int)
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for i := range next {
				if err := victims[i].Start(); err != nil {
					t.Error(err)
					continue
				}
				// Spread between one point and the next, so that each execution of the test tries others.
				time.Sleep((time.Duration(i)*life + rand.N(life)) / time.Duration(n))
				end(i, victims[i])
			}
		})
	}
	for _, i := range rand.Perm(n) {
		next <- i
	}
	close(next)
	group.Wait()
}

// tally counts the states at the points.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.of[what]++
}

// state returns the state of the container of a run; "none" if it has none.
func (v *victim) state(ctx context.Context) string {
	list, err := v.docker.containers(ctx, v.marker)
	if err != nil || len(list) == 0 {
		return "none"
	}
	_, state, _ := strings.Cut(list[len(list)-1], "(")
	state, _, _ = strings.Cut(state, ",")
	return state
}

func proveDockerCrashes(t *testing.T, d *dockerHost) {
	life := d.lifetime(t)
	var seen tally
	atPoints(t, d, crashPoints, life, []string{"--ttl=" + crashTTL.String()}, func(i int, v *victim) {
		if err := v.kill(); err != nil {
			t.Error(err)
		}
		deadline := time.Now().Add(crashLimit)
		if status, ok := v.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			seen.add("killed, container " + v.state(t.Context()))
		} else {
			seen.add("had ended")
		}
		if err := v.awaitEnd(t.Context(), deadline); err != nil {
			t.Errorf("killed at point %d of %d of %s: %v\n%s", i, crashPoints, life, err, v.stderr.String())
		}
	})
	t.Logf("in a life of %s: %v", life, seen.of)
	if seen.of["killed, container none"] == 0 || seen.of["killed, container running"] == 0 ||
		seen.of["had ended"] > 3*crashPoints/4 {
		t.Errorf("the points are not spread over the life: %v", seen.of)
	}
}

// proveFirstCrashes kills the program while it stores the helper and makes a layer, which it does
// once for each daemon. Their parts must not keep the next container from starting.
func proveFirstCrashes(t *testing.T, d *dockerHost) {
	dir := t.TempDir()
	collect := func() {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command(t), "env", "gc", "--all")
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host)
		if got := finish(t, cmd); got.code != 0 {
			t.Fatalf("env gc: %d %s", got.code, got.stderr)
		}
	}
	args := []string{"exec", "--image=" + daemons.Debian, "--ttl=" + crashTTL.String(), "--", "true"}
	began := time.Now()
	if got := d.run(t, dir, nil, args...); got.code != 0 {
		t.Fatalf("%d %s", got.code, got.stderr)
	}
	life := time.Since(began)
	for i := range firstPoints {
		collect()
		v := &victim{program: &program{marker: newMark()}, docker: d}
		v.Cmd = d.command(t, dir, v.marker, args...)
		d.removeLeft(t, v.marker)
		if err := v.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep((time.Duration(i)*life + rand.N(life)) / firstPoints)
		if err := v.kill(); err != nil {
			t.Error(err)
		}
		deadline := time.Now().Add(crashLimit)
		if got := d.run(t, dir, nil, args...); got.code != 0 {
			t.Errorf("after a kill at point %d the next one ends with %d\n%s", i, got.code, got.stderr)
		}
		if err := v.awaitEnd(t.Context(), deadline); err != nil {
			t.Errorf("killed at point %d of %d of %s: %v", i, firstPoints, life, err)
		}
	}
}

// proveInterrupts interrupts the program, which cleans up before it ends.
func proveInterrupts(t *testing.T, d *dockerHost) {
	life := d.lifetime(t)
	var seen tally
	atPoints(t, d, interruptPoints, life, nil, func(i int, v *victim) {
		state := v.state(t.Context())
		seen.add("container " + state)
		_ = v.Process.Signal(os.Interrupt) // it may have ended
		timer := time.AfterFunc(30*time.Second, func() {
			t.Errorf("interrupted at point %d of %d of %s, it does not end", i, interruptPoints, life)
			_ = v.Process.Kill()
		})
		defer timer.Stop()
		_ = v.Wait() // the exit code is checked
		status, ok := v.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case !ok:
			t.Errorf("a state of another kind: %v", v.ProcessState)
		case status.ExitStatus() == 0 || status.ExitStatus() == 130:
		// it had not got as far as to catch signals
		case status.Signaled() && status.Signal() == syscall.SIGINT && state == "none":
		default:
			t.Errorf("interrupted at point %d of %d of %s, it ends with %v\n%s", i, interruptPoints, life,
				v.ProcessState, v.stderr.String())
		}
		if err := v.awaitEnd(t.Context(), time.Now()); err != nil {
			t.Errorf("interrupted at point %d of %d of %s: %v", i, interruptPoints, life, err)
		}
	})
	t.Logf("in a life of %s: %v", life, seen.of)
	if seen.of["container none"] == 0 || seen.of["container running"] == 0 {
		t.Errorf("the points are not spread over the life: %v", seen.of)
	}
}
