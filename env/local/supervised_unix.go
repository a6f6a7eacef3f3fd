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
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

const (
	// helperEndTime bounds the wait for a helper that has nothing left to do.
	helperEndTime = 20 * time.Second
	// deathTime bounds the wait for a helper that has been killed, or that has closed its stream.
	deathTime = 2 * time.Second
)

// Supervised starts a helper and returns the environment that it serves: the same as New(cfg)
// returns, except that the helper does the work. Errors about cfg are those of New; a *HelperError
// means that another helper may work. ctx bounds the start only. The helper has a session of its
// own, no variables, and works in the root directory.
func Supervised(ctx context.Context, cfg Config, h remote.Helper) (*SupervisedEnvironment, error) {
	program, err := helperLocator(ctx, h, cfg.Prepared)()
	if err != nil {
		return nil, &HelperError{Err: err}
	}
	defer program.Close()
	return supervise(ctx, cfg, program, nil)
}

// supervise starts a helper, in the sandbox of a plan unless plan is nil.
func supervise(
	ctx context.Context, cfg Config, program *sandbox.Program, plan *sandbox.Plan,
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
	p, stream, err := startHelper(program, plan)
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
		return nil, errors.Join(p.startError(err), p.Tidy())
	}
	return &SupervisedEnvironment{Served: client, helper: p}, nil
}

// Close implements env.Environment. When it returns, the helper has ended.
func (e *SupervisedEnvironment) Close() error {
	var err error
	e.closing.Do(func() {
		err = e.Served.Close()
		endErr := e.helper.end(helperEndTime)
		if err == nil && endErr != nil { // the helper answered before
			endErr = fmt.Errorf("%w: %w", env.ErrGone, endErr)
		}
		err = errors.Join(err, endErr, e.helper.Tidy())
		if e.program != nil {
			e.program.Close()
		}
	})
	return err
}

// Kill kills everything that the environment started, with SIGKILL. It resumes a helper that a
// command has stopped.
func (e *SupervisedEnvironment) Kill() error {
	_ = e.helper.Cmd.Process.Signal(unix.SIGCONT) // it may have ended
	return e.Served.Kill()
}

// helperProcess is a started helper.
type helperProcess struct {
	*sandbox.Process
	stderr *helper.StderrTail
}

// locator locates the program of a helper. The caller closes the program.
type locator func() (*sandbox.Program, error)

// helperLocator returns the locator of a helper. Unlike Helper.Resolve it takes Binary and Program
// as they are, for whatever this machine executes may serve.
func helperLocator(ctx context.Context, h remote.Helper, prepared *Prepared) locator {
	return func() (*sandbox.Program, error) {
		if h.Binary != "" {
			return sandbox.ProgramAt(h.Binary, h.Args)
		}
		installed, err := prepared.take(), error(nil)
		if installed == nil {
			installed, err = install(ctx, h)
		}
		switch {
		case err == nil:
			return &sandbox.Program{
				Path: installed.Exec(), Name: installed.Name(), File: installed.File(),
			}, nil
		case h.Program != "":
			return sandbox.ProgramAt(h.Program, h.Args)
		}
		return nil, err
	}
}

// install returns the file of the embedded helper, or of one that is built.
func install(ctx context.Context, h remote.Helper) (*helper.Installed, error) {
	embedded := remote.Helper{NoBuild: h.NoBuild || h.Program != "", Cache: h.Cache}
	p, err := embedded.Resolve(ctx, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return (*helper.Program)(p).Install(h.Cache)
}

// startHelper starts a helper and returns its end of the stream. The caller closes program.
func startHelper(
	program *sandbox.Program, plan *sandbox.Plan,
) (*helperProcess, io.ReadWriteCloser, error) {
	stream, helperStream, err := sandbox.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = helperStream.Close() }()
	args := []string{"serve"}
	if plan != nil {
		args = append(args, "--confined")
	}
	stderr := &helper.StderrTail{}
	p, err := sandbox.Start(plan, program, sandbox.Files{}, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = helperStream, helperStream, stderr
	}, args...)
	if err != nil {
		return nil, nil, errors.Join(err, stream.Close())
	}
	return &helperProcess{p, stderr}, stream, nil
}

// startError ends the helper and returns why no environment was created: the error of the helper,
// or, if the stream broke before that arrived, how the helper ended.
func (p *helperProcess) startError(err error) error {
	broken := false
	for _, target := range []error{io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		broken = broken || errors.Is(err, target)
	}
	var endErr error
	if broken { // the helper is about to end by itself, and its exit code explains more
		endErr = p.end(deathTime)
	} else {
		_ = p.end(0)
	}
	if endErr != nil {
		err = endErr
	}
	if broken || errors.Is(err, env.ErrProtocol) {
		return &HelperError{Err: fmt.Errorf("%s: %w", p.Cmd.Path, err)}
	}
	return err
}

// end waits for the end of the helper, and kills it after timeout. It returns an error unless the
// helper exited with code 0.
func (p *helperProcess) end(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.Exited:
		if p.ExitErr == nil {
			return nil
		}
		orphans := ""
		if status, ok := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			orphans = "; processes that it started may still run"
		}
		return fmt.Errorf("the helper has ended: %w%s%s", p.ExitErr, orphans, p.stderrSuffix())
	case <-timer.C:
	}
	p.Kill()
	return fmt.Errorf("the helper did not end and was killed%s", p.stderrSuffix())
}

// stderrSuffix returns ": " and the last output of the helper, or "" if it wrote none.
func (p *helperProcess) stderrSuffix() string {
	if text := p.stderr.String(); text != "" {
		return ": " + text
	}
	return ""
}
