//go:build unix

package envtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// faults are the faults of a runner.
type faults struct {
	group     bool           // it signals the group, not only the leader
	everybody bool           // it signals the groups of all other commands, too
	first     syscall.Signal // what it sends first
	noKill    bool           // it does not send SIGKILL later
	wait      time.Duration  // how long it waits for the pipes; 0 means until end of file
	sweep     bool           // it kills the group also after a normal end
	grace     time.Duration  // how long it waits before SIGKILL; 0 means env.GraceTime
}

// runner runs commands like a first attempt with package os/exec.
type runner struct {
	faults
	mu     sync.Mutex
	groups []int
}

func (r *runner) signal(pid int, s syscall.Signal) {
	if !r.group {
		_ = syscall.Kill(pid, s)
		return
	}
	_ = syscall.Kill(-pid, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.groups {
		if r.everybody {
			_ = syscall.Kill(-other, s)
		}
	}
}

func (r *runner) run(
	ctx context.Context, good env.Environment, cmd env.Command,
) (env.Result, error) {
	c := exec.Command(cmd.Argv[0], cmd.Argv[1:]...)
	c.Dir = host(good, cmd.Dir)
	c.Env = append(os.Environ(), cmd.Vars...)
	c.Stdin, c.Stdout, c.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = r.wait
	if err := c.Start(); err != nil {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: err}
	}
	pid := c.Process.Pid
	r.mu.Lock()
	r.groups = append(r.groups, pid)
	r.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()

	var timeout <-chan time.Time
	if cmd.Timeout > 0 {
		timeout = time.After(cmd.Timeout)
	}
	var waitErr, err error
	ended := true
	var timedOut bool
	stop := func() {
		r.signal(pid, r.first)
		select {
		case waitErr = <-done:
			return
		case <-time.After(cmp.Or(r.grace, env.GraceTime)):
		}
		if !r.noKill {
			r.signal(pid, syscall.SIGKILL)
		}
		select {
		case waitErr = <-done:
		case <-time.After(cmp.Or(r.grace, env.GraceTime)):
			ended = false
		}
	}
	select {
	case waitErr = <-done:
	case <-timeout:
		timedOut = true
		stop()
	case <-ctx.Done():
		stop()
		err = fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
	if r.sweep {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	res := env.Result{TimedOut: timedOut, Detached: errors.Is(waitErr, exec.ErrWaitDelay)}
	if ended && c.ProcessState != nil {
		res.ExitCode = c.ProcessState.ExitCode()
		if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			res.ExitCode = 128 + int(status.Signal())
			res.Signal = map[syscall.Signal]string{
				syscall.SIGTERM: "SIGTERM",
				syscall.SIGKILL: "SIGKILL",
			}[status.Signal()]
		}
	}
	var exit *exec.ExitError
	if err == nil && !timedOut && waitErr != nil && !errors.As(waitErr, &exit) && !errors.Is(waitErr,
		exec.ErrWaitDelay) {
		err = waitErr
	}
	return res, err
}

func run(f faults) breaker {
	return func(_ *testing.T, good env.Environment) env.Environment {
		a, r := newAltered(good), &runner{faults: f}
		a.exec = func(ctx context.Context, cmd env.Command) (env.Result, error) {
			return r.run(ctx, good, cmd)
		}
		return &a
	}
}

func brokenProcesses() []breakage {
	const soon = time.Second // long enough for output to arrive on a busy machine
	return []breakage{
		{"only the leader is killed", run(faults{first: syscall.SIGTERM, wait: soon}), []string{
			"kill/children_die_on_timeout", "kill/children_die_on_cancel", "kill/double_fork_dies",
			"kill/two_hundred_processes_die", "kill/during_a_flood",
			"kill/cancel_in_grace_time", "tty/timeout", "tty/cancel",
		}},
		{
			"only the group is killed", run(faults{group: true, first: syscall.SIGTERM, wait: soon}),
			[]string{
				"kill/setsid_escapee_dies_on_timeout", "kill/setsid_escapee_dies_on_cancel",
				"kill/setsid_double_fork_dies",
			},
		},
		{"everybody is killed", run(faults{
			group: true, everybody: true, first: syscall.SIGTERM,
			wait: soon,
		}), []string{"kill/neighbour_survives"}},
		{"SIGKILL comes first", run(faults{group: true, first: syscall.SIGKILL, wait: soon}), []string{
			"kill/term_is_sent_first", "kill/term_reaches_children",
		}},
		{"SIGKILL comes early", run(faults{
			group: true, first: syscall.SIGTERM, wait: soon, grace: env.GraceTime / 4,
		}), []string{"kill/grace_is_two_seconds"}},
		{"SIGKILL comes late", run(faults{
			group: true, first: syscall.SIGTERM, wait: soon, grace: 2 * env.GraceTime,
		}), []string{"kill/grace_is_two_seconds"}},
		{"SIGKILL never comes", run(faults{
			group: true, first: syscall.SIGTERM, noKill: true,
			wait: soon,
		}), []string{"kill/term_ignored"}},
		{
			"children are waited for", run(faults{group: true, first: syscall.SIGTERM}),
			[]string{"background/bytes_before_exit_delivered", "background/child_outlives_timeout"},
		},
		{"children are killed with a normal end", run(faults{
			group: true, first: syscall.SIGTERM,
			wait: soon, sweep: true,
		}), []string{"background/child_holding_pipe"}},
		{
			"pipes are cut", run(faults{group: true, first: syscall.SIGTERM, wait: time.Nanosecond}),
			[]string{
				"background/child_keeps_writing", "background/bytes_while_waiting_delivered",
				"stream/slow_writer_gets_everything",
			},
		},
		{
			"the reader of standard input is waited for", run(faults{group: true, first: syscall.SIGTERM}),
			[]string{"exec/stdin_reader_blocks"},
		},
	}
}
