//go:build unix

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

const (
	// helperEndTime bounds the wait for a helper that has nothing left to do.
	helperEndTime = 20 * time.Second
	// deathTime bounds the wait for a helper that has been killed, or that has closed its stream.
	deathTime = 2 * time.Second
)

// Supervised starts a helper and returns the environment that it serves: the same as New(cfg) would
// return, but for the process that does the work. Errors about cfg are as those of New; a
// *HelperError means that another helper may do. The end of ctx ends the starting only. The helper
// has a session of its own, no variables, and works in the root folder.
func Supervised(ctx context.Context, cfg Config, h Helper) (*SupervisedEnvironment, error) {
	return supervise(ctx, cfg, h.locate, nil)
}

// supervise starts a helper, confined by a plan if there is one.
func supervise(
	ctx context.Context, cfg Config, find locator, plan *sandbox.Plan,
) (*SupervisedEnvironment, error) {
	// Both depend on this process, not on the helper.
	dir, err := workDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("local: working directory: %w", err)
	}
	base, err := baseVars(cfg)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	start, err := json.Marshal(helper.Start{Dir: dir, Vars: base.list, Inherit: vars.None})
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	p, stream, err := startHelper(find, plan)
	if err != nil {
		return nil, &HelperError{Err: err}
	}
	client, err := client.Open(ctx, client.Config{
		Dial: func(context.Context) (io.ReadWriteCloser, error) {
			s := stream
			if stream = nil; s == nil {
				return nil, fmt.Errorf("%w: its helper has ended", env.ErrGone)
			}
			return s, nil
		},
		Start: start,
	})
	if err != nil {
		return nil, errors.Join(p.refused(err), p.Tidy())
	}
	return &SupervisedEnvironment{remote: client, helper: p}, nil
}

// Close implements env.Environment. When it returns, the helper has ended.
func (e *SupervisedEnvironment) Close() error {
	var err error
	e.closing.Do(func() {
		err = e.remote.Close()
		end := e.helper.end(helperEndTime)
		if err == nil && end != nil { // it had time for an answer
			end = fmt.Errorf("%w: %w", env.ErrGone, end)
		}
		err = errors.Join(err, end)
		err = errors.Join(err, e.helper.Tidy())
	})
	return err
}

// helperProcess is a helper that was started.
type helperProcess struct {
	*sandbox.Process
	said *helper.StderrTail
}

// locator finds the program of a helper. Only that of a Helper knows of the embedded ones.
type locator func() (*sandbox.Program, error)

// locate finds the program of a Helper.
func (h Helper) locate() (*sandbox.Program, error) {
	if h.Path != "" {
		return sandbox.ProgramAt(h.Path, h.Args)
	}
	found, err := helper.Find(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	installed, err := found.Install("")
	if err != nil {
		return nil, err
	}
	return &sandbox.Program{
		Path: installed.Exec(), Name: installed.Name(), Args: h.Args,
		File: installed.File(),
	}, nil
}

// ahead begins to find the program at once, which reads all of it, beside what else there is to do.
// The first call of the locator returns that program, and each later one finds it again. The
// function lets go of the program if nobody asked for it.
func (find locator) ahead() (locator, func()) {
	type result struct {
		program *sandbox.Program
		err     error
	}
	first := make(chan result, 1)
	go func() {
		defer close(first)
		program, err := find()
		first <- result{program, err}
	}()
	again := func() (*sandbox.Program, error) {
		if r, ok := <-first; ok {
			return r.program, r.err
		}
		return find()
	}
	return again, func() {
		if r, ok := <-first; ok && r.err == nil {
			r.program.Close()
		}
	}
}

// startHelper starts a helper and returns the stream to it.
func startHelper(find locator, plan *sandbox.Plan) (*helperProcess, io.ReadWriteCloser, error) {
	program, err := find()
	if err != nil {
		return nil, nil, err
	}
	defer program.Close()
	ours, theirs, err := sandbox.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = theirs.Close() }()
	args := []string{"serve"}
	if plan != nil {
		args = append(args, "--confined")
	}
	said := &helper.StderrTail{}
	p, err := sandbox.Start(plan, program, sandbox.Files{}, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, said
	}, args...)
	if err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	return &helperProcess{p, said}, ours, nil
}

// refused ends the helper and returns why there is no environment: the error with which it refused,
// or, if it did not get as far as that, what became of it.
func (p *helperProcess) refused(err error) error {
	lost := false
	for _, is := range []error{io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		lost = lost || errors.Is(err, is)
	}
	var ended error
	if lost { // it is just about to end, and its end says more
		ended = p.end(deathTime)
	} else {
		_ = p.end(0)
	}
	if ended != nil {
		err = ended
	}
	if lost || errors.Is(err, env.ErrProtocol) {
		return &HelperError{Err: fmt.Errorf("%s: %w", p.Cmd.Path, err)}
	}
	return err
}

// end waits for the end of the helper, which is killed after a time. The error tells of an end that
// was not in order.
func (p *helperProcess) end(patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.Exited:
		if p.ExitErr == nil {
			return nil
		}
		orphans := ""
		if status, ok := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			orphans = "; what it had started may still run"
		}
		return fmt.Errorf("the helper has ended: %w%s%s", p.ExitErr, orphans, tells(p.said))
	case <-timer.C:
	}
	p.Kill()
	return fmt.Errorf("the helper was killed since it did not end%s", tells(p.said))
}

// tells returns what a helper said, as the rest of a sentence.
func tells(said *helper.StderrTail) string {
	if text := said.String(); text != "" {
		return ": " + text
	}
	return ""
}
