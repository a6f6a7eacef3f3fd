package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
)

// endTime bounds how long, after the timeout of a run, an environment may take to stop opening, or
// to close. Half of it bounds the wait for a first response then.
const endTime = 30 * time.Second

// errLate means that work went on for too long after the timeout of a run.
var errLate = errors.New("it did not stop in time after the timeout")

// timedOut reports whether the timeout of a run ended ctx.
func timedOut(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), agent.ErrTimeLimit)
}

// inTime calls work and returns its results. If they do not come within limit after the timeout of
// the run of ctx, the error is errLate, and work goes on until the program exits.
func inTime[T any](ctx context.Context, limit time.Duration, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	var late <-chan time.Time
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		if timedOut(ctx) { // after a signal, the user can send another one
			timer := time.NewTimer(limit)
			defer timer.Stop()
			late = timer.C
		}
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-late:
		var none T
		return none, errLate
	}
}

// openInTime is open for a run.
func (p *program) openInTime(ctx context.Context, s environmentSettings) (*environment, error) {
	e, err := inTime(ctx, p.endTime(), func() (*environment, error) { return p.open(ctx, s) })
	if err != nil && timedOut(ctx) {
		err = fmt.Errorf("the environment was not open (--env=%s): %w", s.backend.name(), err)
	}
	return e, err
}

// closeInTime is environment.close for a run. An environment that was silent after the timeout, or
// does not close in time, is abandoned.
func (p *program) closeInTime(ctx context.Context, e *environment) error {
	if e == nil {
		return nil
	}
	err := errLate
	if !e.silent {
		_, err = inTime(ctx, e.endTime, func() (struct{}, error) { return struct{}{}, e.close() })
	}
	if errors.Is(err, errLate) {
		p.killAll(nil)
		err = errors.New("the environment did not close in time after the timeout; what is left of it " +
			"ends by itself")
	}
	return err
}

// checkAlive returns an error, and marks the environment as silent, if the timeout of the run has
// ended ctx and the environment does not respond any more.
func (e *environment) checkAlive(ctx context.Context) error {
	if !timedOut(ctx) {
		return nil
	}
	cause := fmt.Errorf("the environment has been silent for %s after the timeout", e.endTime/2)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), e.endTime/2, cause)
	defer cancel()
	if _, err := e.plain.Stat(ctx, "."); err != nil && ctx.Err() != nil {
		e.silent = true
		return cause
	}
	return nil
}
