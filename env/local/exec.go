package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// Exec implements env.Environment. If Stdout and Stderr are the same value, the command has one pipe for both, so that
// their order is kept.
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

// execution is a command that runs, with its streams.
type execution struct {
	e       *Environment
	process *process
	pumps   []*pump
	feeder  *feeder // nil without standard input
	timeout time.Duration
}

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
	marker := e.nextMarker()
	extra := make([]string, 0, len(cmd.Vars)+2)
	extra = append(extra, "PWD="+filepath.Clean(dir))
	extra = append(extra, cmd.Vars...)
	extra = append(extra, marker+"=1")
	vars := e.base.with(extra)
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
	x, err := e.launch(file, dir, vars, marker, cmd)
	if err != nil {
		e.work.Done()
		return nil, err
	}
	return x, nil
}

// checkCommand reports what no system could run.
func checkCommand(cmd env.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fmt.Errorf("empty argv: %w", fs.ErrInvalid)
	}
	for i, arg := range cmd.Argv {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("argument %d has a NUL byte: %w", i, fs.ErrInvalid)
		}
	}
	if cmd.Timeout < 0 {
		return fmt.Errorf("negative timeout: %w", fs.ErrInvalid)
	}
	return checkVars(cmd.Vars)
}

// launch makes the pipes, starts the process and the goroutines that serve it.
func (e *Environment) launch(file, dir string, vars []string, marker string, cmd env.Command) (_ *execution, err error) {
	x := &execution{e: e, timeout: cmd.Timeout}
	std := [3]*os.File{e.null, e.null, e.null}
	var theirs, ours []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	if cmd.Stdin != nil {
		r, w := pipe()
		std[0], x.feeder = r, &feeder{w: w}
		theirs, ours = append(theirs, r), append(ours, w)
	}
	if cmd.Stdout != nil {
		r, w := pipe()
		std[1], x.pumps = w, append(x.pumps, newPump(r, cmd.Stdout, "stdout"))
		theirs, ours = append(theirs, w), append(ours, r)
	}
	if cmd.Stderr != nil && cmd.Stdout != nil && same(cmd.Stdout, cmd.Stderr) {
		std[2] = std[1]
	} else if cmd.Stderr != nil {
		r, w := pipe()
		std[2], x.pumps = w, append(x.pumps, newPump(r, cmd.Stderr, "stderr"))
		theirs, ours = append(theirs, w), append(ours, r)
	}
	if err != nil {
		return nil, err
	}
	attr := &os.ProcAttr{Dir: dir, Env: vars, Files: std[:]}
	if x.process, err = e.startProcess(file, cmd.Argv, attr, marker); err != nil {
		if dirErr := checkDir(dir, cmd.Dir); dirErr != nil {
			return nil, dirErr
		}
		return nil, explainStart(file, dir, err)
	}
	e.mu.Lock()
	e.running[x.process] = struct{}{}
	e.mu.Unlock()
	x.serve(cmd.Stdin)
	return x, nil
}

// closeAll closes files that may be nil.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// serve starts the goroutines that carry the streams.
func (x *execution) serve(stdin io.Reader) {
	if x.feeder != nil {
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

// reason says why waiting for something ended.
type reason int

const (
	ended     reason = iota // what was waited for has come
	timedOut                // the command's timeout passed
	cancelled               // the context ended
	closed                  // the environment is being closed
)

// await waits for done, or for what ends a command before. If done has come too, it counts, unless Close has begun: then
// nobody can tell which of the two was first.
func (x *execution) await(ctx context.Context, timeout <-chan time.Time, done <-chan struct{}) reason {
	why := ended
	select {
	case <-done:
	case <-timeout:
		why = timedOut
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
	why := x.await(ctx, timeout, x.process.exited)
	err := x.stop(why)
	if err == nil {
		<-x.process.exited
	} else { // part of the tree does not die, but perhaps not this part
		select {
		case <-x.process.exited:
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
	errs = append(errs, x.status(&result))
	switch why {
	case cancelled:
		errs = append(errs, contextError(ctx))
	case closed:
		errs = append(errs, fs.ErrClosed)
	}
	return result, errors.Join(errs...)
}

// stop kills the tree if the command did not end by itself. When it returns nil, all of the tree is dead.
func (x *execution) stop(why reason) error {
	switch why {
	case ended:
		return nil
	case closed:
		<-x.e.swept
		return x.e.unswept
	default:
		return x.e.terminate(x.process)
	}
}

// drain waits for the rest of the output. The command has exited, but a descendant may hold its pipes; if waiting for it
// is cancelled, it is killed like any other part of the tree and why is changed.
func (x *execution) drain(ctx context.Context, why *reason) error {
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

// release takes the command out of the books. While Close kills, the process must not be reaped, so that its number
// cannot mean another one.
func (x *execution) release() {
	e := x.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		e.mu.Unlock()
		<-e.swept
		e.mu.Lock()
	}
	delete(e.running, x.process)
	for _, p := range x.pumps {
		switch {
		case p.gone:
		case e.closed:
			_ = p.r.Close()
		default:
			e.draining[p] = struct{}{}
		}
	}
}

// forget notes that a pump has come to its end.
func (e *Environment) forget(p *pump) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.gone = true
	delete(e.draining, p)
}

// status reaps the process and fills in how it ended.
func (x *execution) status(result *env.Result) error {
	if !isClosed(x.process.exited) { // it cannot be killed, which is an error already
		go func() {
			<-x.process.exited
			_, _, _ = x.process.reap()
		}()
		result.ExitCode, result.Elapsed = -1, time.Since(x.process.started)
		return nil
	}
	var err error
	result.Elapsed = x.process.elapsed
	if result.ExitCode, result.Signal, err = x.process.reap(); err != nil {
		result.ExitCode = -1
		return fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
	}
	return nil
}

func (e *Environment) buffer() *[bufferSize]byte {
	buf, _ := e.buffers.Get().(*[bufferSize]byte)
	return buf
}
