package portable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// reason says why waiting for a command ended.
type reason int

const (
	over      reason = iota // what was waited for has come
	timedOut                // the command's timeout passed
	cancelled               // the context ended
	closed                  // the environment is being closed
	late                    // the time for it is over
)

// wait waits for the command, for its output and, where it was stopped, for the end of its tree.
func (x *execution) wait(ctx context.Context) (env.Result, error) {
	var timeout <-chan time.Time
	if x.cmd.Timeout > 0 {
		timer := time.NewTimer(x.cmd.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	why := x.await(events{timeout: timeout, cancelled: ctx.Done(), closed: x.e.done}, func() bool { return x.exited || x.failed != nil })
	err := x.stop(why)
	detached := false
	if x.lost == nil {
		detached, why, err = x.drain(ctx, why, err)
	}
	whole := x.lost == nil // what is lost from here on is nobody's output
	var errs []error
	var result env.Result
	for i, s := range x.sinks {
		serr := s.finish()
		if serr != nil {
			serr = fmt.Errorf("write %s: %w", [2]string{"stdout", "stderr"}[i], serr)
		}
		errs = append(errs, serr)
	}
	select {
	case err := <-x.unread:
		errs = append(errs, err)
	default: // a Read that blocks is not waited for
	}
	x.release(detached)
	if x.failed != nil && why == over {
		return env.Result{}, x.failed
	}
	result.Detached = detached
	result.TimedOut = why == timedOut
	errs = append(errs, x.fill(ctx, &result, whole), err)
	switch why {
	case cancelled:
		errs = append(errs, ended(ctx))
	case closed:
		errs = append(errs, fs.ErrClosed)
	}
	return result, errors.Join(errs...)
}

// events are what ends waiting for what a shell says; nil channels do not.
type events struct {
	timeout, deadline <-chan time.Time
	cancelled, closed <-chan struct{}
}

// await notes what the shell says until done, or until something else ends the waiting. Done counts more than what comes
// at the same time, except that nobody can tell what came first when Close has begun.
func (x *execution) await(ev events, done func() bool) reason {
	for x.lost == nil && !done() {
		why := over
		select {
		case s := <-x.records:
			x.note(s)
		case <-ev.timeout:
			why = timedOut
		case <-ev.cancelled:
			why = cancelled
		case <-ev.closed:
			why = closed
		case <-ev.deadline:
			why = late
		}
		for why != over && len(x.records) > 0 {
			x.note(<-x.records)
		}
		if why != over && (why == closed || !done()) {
			return why
		}
	}
	return over
}

// note notes what the shell has said.
func (x *execution) note(s said) {
	bad := func() {
		if x.lost == nil {
			x.lost = fmt.Errorf("%w: unexpected record %q", env.ErrProtocol, s.rec.kind)
		}
	}
	switch {
	case s.err != nil:
		x.lost = s.err
	case s.rec.kind == 'e':
		x.sinks[s.stream].end()
		x.open--
		if x.open == 0 && !x.exited {
			x.lost = fmt.Errorf("%w: no record of the end of a command", env.ErrProtocol)
		}
	case s.stream != 1:
		bad()
	case s.rec.kind == 'i':
		if !x.exited {
			x.lost = errInput
		}
	case s.rec.kind == 'a':
		x.carriers = [2]int{s.rec.a, s.rec.b}
		if x.shell.once {
			go x.feed()
		}
	case s.rec.kind == 'c':
		x.root = s.rec.a
	case (s.rec.kind == 'x' || s.rec.kind == 's') && !x.exited && s.rec.a < 256:
		x.exited, x.ended, x.status = true, time.Now(), s.rec
		for _, sink := range x.sinks {
			sink.exit()
		}
		if s.rec.kind == 's' {
			x.failed = &env.StartError{Argv: append([]string(nil), x.cmd.Argv...), Err: x.startError(s.rec)}
		}
	default:
		bad()
	}
}

// startError returns why a command did not start.
func (x *execution) startError(rec record) error {
	switch rec.a {
	case 1:
		name := x.cmd.Dir
		if name == "" {
			name = x.dir
		}
		return &fs.PathError{Op: "chdir", Path: name, Err: errCode(rec.b, "")}
	case 2:
		return errCode(rec.b, "")
	case 3:
		if rec.b == 127 { // the interpreter, or somebody was faster
			return fs.ErrNotExist
		}
		size := 0
		for _, word := range append(x.cmd.Argv, x.cmd.Vars...) {
			size += len(word)
		}
		if size > maxArgument {
			return syscall.E2BIG
		}
		return fs.ErrPermission
	default:
		return errors.New("its streams could not be opened")
	}
}

// target returns the processes of the command.
func (x *execution) target() *target {
	t := &target{word: x.marker + "="}
	if !x.exited {
		t.root = x.root
	}
	return t
}

// stop kills the tree if the command did not end by itself. When it returns nil, all of the tree is dead.
func (x *execution) stop(why reason) error {
	if why == over || x.lost != nil {
		return nil
	}
	// The process has to be known, which may take a moment.
	x.await(events{deadline: time.After(leaveTime)}, func() bool { return x.root != 0 || x.exited })
	x.signaled = true
	err := x.e.terminate(x.target(), x.e.done)
	if err == nil {
		x.await(events{deadline: time.After(leaveTime)}, func() bool { return x.exited })
	}
	return err
}

// drain waits for the rest of the output. The command has exited, but a descendant may hold its pipes; if waiting for it
// is cancelled, it is killed like any other part of the tree and the reason changes.
func (x *execution) drain(ctx context.Context, why reason, err error) (detached bool, _ reason, _ error) {
	if !x.exited {
		x.ended = time.Now()
		for _, s := range x.sinks {
			s.exit()
		}
	}
	for x.open > 0 && x.lost == nil {
		left := time.Duration(0)
		for _, s := range x.sinks {
			if !s.hasEnded() {
				left = max(left, s.remaining(x.ended, env.DrainTime))
			}
		}
		if left <= 0 {
			return true, why, err
		}
		open := x.open
		timer := time.NewTimer(left)
		ev := events{deadline: timer.C}
		if why == over {
			ev.cancelled, ev.closed = ctx.Done(), x.e.done
		}
		now := x.await(ev, func() bool { return x.open < open })
		timer.Stop()
		if now == cancelled || now == closed {
			why = now
			err = errors.Join(err, x.stop(why))
		}
	}
	return false, why, err
}

// release gives the shell back, which has to get rid of pipes that somebody still holds.
func (x *execution) release(detached bool) {
	if detached {
		cut := operation{body: "sa_cut " + quote(x.shell.dir) + " " + strconv.Itoa(x.carriers[0]) + " " + strconv.Itoa(x.carriers[1]) + "\n:"}
		if err := x.e.warden.inTime(cut); err == nil {
			x.await(events{deadline: time.After(leaveTime)}, func() bool { return x.open == 0 && x.exited })
		}
	}
	sound := x.lost == nil && x.open == 0 && x.exited
	if !sound {
		x.e.bury(x.shell, x.target(), x.root == 0 && !x.exited)
	}
	x.e.pool.give(x.shell, true, sound)
}

// fill says how the command ended, as far as that is known. An exit code counts only with all of the output.
func (x *execution) fill(ctx context.Context, r *env.Result, whole bool) error {
	if !x.exited || x.failed != nil || !whole {
		r.ExitCode, r.Elapsed = -1, time.Since(x.began)
		if x.lost != nil {
			return fmt.Errorf("%w: %w", env.ErrUnknownOutcome, x.e.lost(ctx, x.lost))
		}
		return nil
	}
	r.ExitCode, r.Elapsed = x.status.a, x.ended.Sub(x.began)
	name := signalName(x.status.a - 128)
	if x.status.b == 1 || x.signaled && (name == "SIGTERM" || name == "SIGKILL") {
		r.Signal = name
	}
	return nil
}

// signalName returns the name of a signal that ends a process, by its number on Linux; empty if there is none.
func signalName(number int) string {
	names := []string{
		1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV",
		12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 29: "IO",
		30: "PWR", 31: "SYS",
	}
	if number < 0 || number >= len(names) || names[number] == "" {
		return ""
	}
	return "SIG" + names[number]
}
