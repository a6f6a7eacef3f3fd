package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/proctree"
)

// Exec implements env.Environment. If Stdout and Stderr are the same value, the command has
// one pipe for both, which keeps their order.
//
// A terminal is a pseudo-terminal of the system: it echoes until a program turns that off, writes
// "\r\n" for "\n", cuts input lines beyond its limit, and sends SIGHUP to its foreground process
// group when the command exits. A program that edits lines itself, as interactive shells do, and
// starts after the end of the input, gets the end-of-file character as a key. If the system has no
// pseudo-terminals, the error wraps errors.ErrUnsupported.
func (e *Environment) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	x, err := e.start(ctx, cmd)
	if err != nil {
		return env.Result{}, &env.StartError{Argv: slices.Clone(cmd.Argv), Err: err}
	}
	defer e.work.Done()
	result, err := x.wait(ctx)
	if err != nil {
		err = fmt.Errorf("exec %s: %w", cmd.Argv[0], err)
	}
	return result, err
}

// execution is a running command with its streams.
type execution struct {
	e        *Environment
	process  *proctree.Process
	pumps    []*pump
	feeder   *feeder   // nil without standard input
	terminal *terminal // nil without a terminal
	timeout  time.Duration
	// overrun gets the end of a command that has too many processes: nil, or the error of counting.
	overrun  chan error
	miscount error
	// ignoreInterrupts stops receiving from Command.Interrupt; stopCounting stops counting.
	ignoreInterrupts, stopCounting func()
}

const (
	// countInterval is the time between two counts of the processes of a command.
	countInterval = 200 * time.Millisecond
	// maxMiscounts is the number of counts in a row that fail before the command is killed.
	maxMiscounts = 5
)

// start starts cmd. On success it has registered a call in progress.
func (e *Environment) start(ctx context.Context, cmd env.Command) (*execution, error) {
	if err := contextError(ctx); err != nil {
		return nil, err
	}
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	dir := e.dir
	if cmd.Dir != "" {
		var err error
		if dir, err = e.path(cmd.Dir); err != nil {
			return nil, &fs.PathError{Op: "chdir", Path: cmd.Dir, Err: err}
		}
	}
	confined, err := e.confine(cmd.Confine)
	if err != nil {
		return nil, err
	}
	vars := e.base.with(slices.Concat([]string{"PWD=" + filepath.Clean(dir)}, confined.vars(),
		cmd.Vars))
	file, err := lookProgram(cmd.Argv[0], dir, vars)
	if err != nil {
		if dirErr := checkDir(dir, cmd.Dir); dirErr != nil {
			return nil, dirErr
		}
		return nil, err
	}

	e.starting.RLock()
	defer e.starting.RUnlock()
	if !e.enter() {
		return nil, fs.ErrClosed
	}
	x, err := e.launch(file, dir, vars, cmd, confined)
	if err != nil {
		e.work.Done()
		return nil, err
	}
	return x, nil
}

// checkCommand rejects commands that are invalid on every system.
func checkCommand(cmd env.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fmt.Errorf("empty argv: %w", fs.ErrInvalid)
	}
	for i, arg := range cmd.Argv {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("argument %d has a NUL byte: %w", i, fs.ErrInvalid)
		}
	}
	if cmd.Timeout < 0 || cmd.MaxProcesses < 0 {
		return fmt.Errorf("negative timeout or number of processes: %w", fs.ErrInvalid)
	}
	if err := env.UserError(cmd.User); err != nil {
		return err
	}
	if cmd.MaxProcesses > 0 {
		if err := proctree.Countable(); err != nil {
			return fmt.Errorf("the processes of a command cannot be counted: %w: %w",
				errors.ErrUnsupported, err)
		}
	}
	if cmd.TTY != nil && cmd.Stderr != nil {
		return fmt.Errorf("a command on a terminal has no separate stderr: %w", fs.ErrInvalid)
	}
	return checkVars(cmd.Vars)
}

// launch creates the streams, and starts the process and the goroutines that serve it.
func (e *Environment) launch(
	file, dir string, vars []string, cmd env.Command, confined *confinement,
) (*execution, error) {
	x := &execution{e: e, timeout: cmd.Timeout, overrun: make(chan error, 1)}
	attr := &os.ProcAttr{Dir: dir, Env: vars, Files: []*os.File{e.null, e.null, e.null}}
	connect := x.connectPipes
	if cmd.TTY != nil {
		connect = x.connectTerminal
	}
	childFiles, err := connect(cmd, attr)
	defer closeAll(childFiles)
	if err != nil {
		x.disconnect()
		return nil, err
	}
	x.process, err = confined.start(func() (*proctree.Process, error) {
		return e.set.Start(file, cmd.Argv, attr)
	})
	var unconfined *confineError
	if errors.As(err, &unconfined) {
		x.disconnect()
		return nil, err
	}
	if err != nil {
		x.disconnect()
		if dirErr := checkDir(dir, cmd.Dir); dirErr != nil {
			return nil, dirErr
		}
		return nil, explainStart(file, dir, err)
	}
	x.serve(cmd)
	return x, nil
}

// connectPipes creates pipes for the streams of cmd and puts the process's ends into attr. It
// returns the files that only the process needs.
func (x *execution) connectPipes(
	cmd env.Command, attr *os.ProcAttr,
) (childFiles []*os.File, err error) {
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	if cmd.Stdin != nil {
		r, w := pipe()
		attr.Files[0], x.feeder = r, &feeder{w: w}
		childFiles = append(childFiles, r)
	}
	if cmd.Stdout != nil {
		r, w := pipe()
		attr.Files[1], x.pumps = w, append(x.pumps, newPump(r, cmd.Stdout, "stdout"))
		childFiles = append(childFiles, w)
	}
	if cmd.SharesWriter() {
		attr.Files[2] = attr.Files[1]
	} else if cmd.Stderr != nil {
		r, w := pipe()
		attr.Files[2], x.pumps = w, append(x.pumps, newPump(r, cmd.Stderr, "stderr"))
		childFiles = append(childFiles, w)
	}
	return childFiles, err
}

// disconnect closes the streams of a process that could not be started.
func (x *execution) disconnect() {
	for _, p := range x.pumps {
		_ = p.r.Close()
	}
	if x.feeder != nil {
		_ = x.feeder.w.Close()
	}
	if x.terminal != nil {
		_ = x.terminal.tty.Close()
	}
}

// closeAll closes files that may be nil.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// serve starts the goroutines that copy the streams.
func (x *execution) serve(cmd env.Command) {
	x.ignoreInterrupts = x.receiveInterrupts(cmd.Interrupt)
	x.stopCounting = x.count(cmd.MaxProcesses)
	if x.terminal != nil {
		go x.terminal.follow(cmd.TTY.Resize)
	}
	if x.feeder != nil {
		stdin := cmd.Stdin
		if stdin == nil {
			stdin = strings.NewReader("")
		}
		go func() {
			buf := x.e.buffer()
			defer x.e.buffers.Put(buf)
			x.feeder.run(stdin, buf[:])
		}()
	}
	for _, p := range x.pumps {
		x.e.work.Add(1)
		go func() {
			defer x.e.work.Done()
			buf := x.e.buffer()
			defer x.e.buffers.Put(buf)
			p.run(buf[:])
			x.e.forget(p)
		}()
	}
}

// receiveInterrupts interrupts the process for each value of interrupts, which may be nil, until it
// is closed or ignore is called.
func (x *execution) receiveInterrupts(interrupts <-chan struct{}) (ignore func()) {
	if interrupts == nil {
		return func() {}
	}
	return untilStopped(func(stop <-chan struct{}) {
		for {
			select {
			case <-stop:
				return
			case _, ok := <-interrupts:
				if !ok {
					return
				}
				x.process.Interrupt()
			}
		}
	})
}

// count counts the processes of the command until there are more than most, the command exits or
// stop is called; zero counts nothing.
func (x *execution) count(most int) (stop func()) {
	if most == 0 {
		return func() {}
	}
	return untilStopped(func(stop <-chan struct{}) {
		ticker := time.NewTicker(countInterval)
		defer ticker.Stop()
		for miscounts := 0; ; {
			select {
			case <-stop:
				return
			case <-x.process.Exited:
				return
			case <-ticker.C:
			}
			n, err := x.e.set.Count(x.process)
			if miscounts++; err == nil {
				miscounts = 0
			}
			switch {
			case n > most:
				x.overrun <- nil
				return
			case miscounts == maxMiscounts:
				x.overrun <- fmt.Errorf("its processes cannot be counted: %w", err)
				return
			}
		}
	})
}

// untilStopped calls f in a goroutine. The returned function closes f's channel and waits for f.
func untilStopped(f func(stop <-chan struct{})) (stop func()) {
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f(stopping)
	}()
	return func() {
		close(stopping)
		<-done
	}
}

// reason is why a wait ended.
type reason int

const (
	ended     reason = iota // the awaited event
	timedOut                // the command's timeout passed
	overrun                 // the command has too many processes, or they cannot be counted
	cancelled               // the context ended
	closed                  // the environment is being closed
)

// await waits for done, or for an event that ends the command before. If both have come, done
// counts, unless Close has started: which of these two was first is unknown.
func (x *execution) await(
	ctx context.Context, timeout <-chan time.Time, done <-chan struct{},
) reason {
	why := ended
	select {
	case <-done:
	case <-timeout:
		why = timedOut
	case x.miscount = <-x.overrun:
		why = overrun
	case <-ctx.Done():
		why = cancelled
	case <-x.e.done:
	}
	if isClosed(x.e.done) {
		return closed
	}
	if isClosed(done) {
		return ended
	}
	return why
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits for the command, for its output and, where it was stopped, for the end of its tree.
func (x *execution) wait(ctx context.Context) (env.Result, error) {
	var timeout <-chan time.Time
	if x.timeout > 0 {
		timer := time.NewTimer(x.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	why := x.await(ctx, timeout, x.process.Exited)
	err := x.stop(why)
	if err == nil {
		<-x.process.Exited
	} else { // a part of the tree does not die, perhaps another one
		select {
		case <-x.process.Exited:
		case <-time.After(env.GraceTime):
		}
	}
	errs := []error{x.drain(ctx, &why), err}
	var result env.Result
	for _, p := range x.pumps {
		detached, err := p.result()
		result.Detached = result.Detached || detached
		errs = append(errs, err)
	}
	x.release()
	result.TimedOut = why == timedOut
	result.TooManyProcesses = why == overrun && x.miscount == nil
	errs = append(errs, x.status(&result))
	switch why {
	case overrun:
		errs = append(errs, x.miscount)
	case cancelled:
		errs = append(errs, contextError(ctx))
	case closed:
		errs = append(errs, fs.ErrClosed)
	}
	return result, errors.Join(errs...)
}

// stop kills the tree if the command did not end by itself. When it returns nil, all of the tree is
// dead.
func (x *execution) stop(why reason) error {
	switch why {
	case ended:
		return nil
	case closed:
		<-x.e.swept
		return x.e.sweepErr
	case overrun:
		return x.e.set.Stop(x.process, 0)
	default:
		return x.e.set.Stop(x.process, env.GraceTime)
	}
}

// drain waits for the rest of the output. The command has exited, but a descendant may hold its
// pipes; if waiting for it is cancelled, it is killed like any other part of the tree and why is
// changed.
func (x *execution) drain(ctx context.Context, why *reason) error {
	x.ignoreInterrupts()
	x.stopCounting()
	if x.terminal != nil {
		x.terminal.end()
	}
	until := time.Now().Add(env.DrainTime)
	for _, p := range x.pumps {
		p.expire(until)
	}
	var err error
	for _, p := range x.pumps {
		if *why == ended {
			if *why = x.await(ctx, nil, p.done); *why != ended {
				err = x.stop(*why)
			}
		}
		<-p.done
	}
	if x.feeder != nil {
		err = errors.Join(err, x.feeder.stop())
	}
	return err
}

// release hands pipes that processes still hold over to the environment. They stay open until Close
// has killed all processes.
func (x *execution) release() {
	e := x.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		e.mu.Unlock()
		<-e.swept
		e.mu.Lock()
	}
	for _, p := range x.pumps {
		switch {
		case p.returned:
		case e.closed:
			_ = p.r.Close()
		default:
			e.draining[p] = struct{}{}
		}
	}
}

// forget removes a pump that has returned.
func (e *Environment) forget(p *pump) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.returned = true
	delete(e.draining, p)
}

// status reaps the process and sets its exit code, signal and duration.
func (x *execution) status(result *env.Result) error {
	if !isClosed(x.process.Exited) { // it cannot be killed, which stop has reported
		go func() {
			<-x.process.Exited
			_, _, _ = x.process.Reap()
		}()
		result.ExitCode, result.Elapsed = -1, time.Since(x.process.Started)
		return nil
	}
	var err error
	result.Elapsed = x.process.Elapsed()
	if result.ExitCode, result.Signal, err = x.process.Reap(); err != nil {
		result.ExitCode = -1
		return fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
	}
	return nil
}

func (e *Environment) buffer() *[bufferSize]byte {
	buf, _ := e.buffers.Get().(*[bufferSize]byte)
	return buf
}
