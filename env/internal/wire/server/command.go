package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// errCancelled is the cause with which a DELETE ends a command.
var errCancelled = fmt.Errorf("the client has cancelled the command: %w", context.Canceled)

// command is a command with its streams. The result is valid once done is closed.
type command struct {
	id             string
	stdout, stderr *ring            // nil for an output without a writer
	stdin          *stdin           // nil without stdin
	sizes          chan env.TTYSize // nil without a terminal
	interrupts     chan struct{}
	done           chan struct{}   // closed when it has ended
	result         wire.ExecResult // how it ended
	lost           bool            // the result was dropped

	mu        sync.Mutex
	killed    bool
	cancel    context.CancelCauseFunc // nil until it runs
	responses uint64                  // the number so far
	wakeup    chan struct{}           // wakes the response; one for each
}

// memory returns how many bytes of memory the outputs take.
func (c *command) memory() int {
	n := 0
	for _, r := range []*ring{c.stdout, c.stderr} {
		if r != nil {
			n += r.memory()
		}
	}
	return n
}

func newCommand(id string, request *wire.ExecRequest) *command {
	c := &command{
		id: id, interrupts: make(chan struct{}), done: make(chan struct{}),
		wakeup: make(chan struct{}, 1),
	}
	if request.Stdin {
		c.stdin = newStdin()
	}
	if request.Stdout {
		c.stdout = newRing(c.wake)
	}
	if request.Stderr && !request.Merged {
		c.stderr = newRing(c.wake)
	}
	if request.TTY != nil {
		c.sizes = make(chan env.TTYSize)
	}
	return c
}

// command returns the command for the environment.
func (c *command) command(request *wire.ExecRequest) env.Command {
	cmd := env.Command{
		Argv:    wire.Strings(request.Argv),
		Dir:     string(request.Dir),
		Vars:    wire.Strings(request.Vars),
		Timeout: request.Timeout,
		Confine: request.Confine.Env(),

		MaxProcesses: request.MaxProcesses,
		Interrupt:    c.interrupts,
	}
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	if c.stdout != nil {
		cmd.Stdout = c.stdout
		if request.Merged {
			cmd.Stderr = c.stdout
		}
	}
	if c.stderr != nil {
		cmd.Stderr = c.stderr
	}
	if request.TTY != nil {
		cmd.TTY = &env.TTY{Size: *request.TTY, Resize: c.sizes}
	}
	return cmd
}

// setCancel sets the function that cancels the command, and calls it if a DELETE came earlier.
func (c *command) setCancel(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	if c.killed {
		cancel(errCancelled)
	}
}

// kill cancels the command.
func (c *command) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.cancel != nil {
		c.cancel(errCancelled)
	}
}

// outcome returns the result of Exec for the wire.
func (c *command) outcome(r env.Result, err error) wire.ExecResult {
	result := wire.ExecResult{
		ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory,
		Detached: r.Detached, Elapsed: r.Elapsed, TooManyProcesses: r.TooManyProcesses,
	}
	c.mu.Lock()
	deleted := c.killed
	c.mu.Unlock()
	if deleted && errors.Is(err, context.Canceled) {
		result.Cancelled = true
		err = withoutCancellation(err)
	}
	result.Error = wire.ToError(err)
	for _, o := range c.outputs() {
		if o.kind == wire.FrameStdout {
			result.Stdout = o.ring.total()
		} else {
			result.Stderr = o.ring.total()
		}
	}
	return result
}

// withoutCancellation returns err without the cancellation. A *env.StartError stays.
func withoutCancellation(err error) error {
	if start := (*env.StartError)(nil); errors.As(err, &start) {
		return start
	}
	if !errors.Is(err, context.Canceled) {
		return err
	}
	switch e := err.(type) { //nolint:errorlint // each level is looked at
	case interface{ Unwrap() []error }:
		var rest []error
		for _, inner := range e.Unwrap() {
			rest = append(rest, withoutCancellation(inner))
		}
		return errors.Join(rest...)
	case interface{ Unwrap() error }:
		return withoutCancellation(e.Unwrap())
	default:
		return nil
	}
}

// output is one output of a command.
type output struct {
	kind wire.FrameKind
	ring *ring
}

func (c *command) outputs() []output {
	var list []output
	if c.stdout != nil {
		list = append(list, output{wire.FrameStdout, c.stdout})
	}
	if c.stderr != nil {
		list = append(list, output{wire.FrameStderr, c.stderr})
	}
	return list
}

// wake wakes the response, which waits for output.
func (c *command) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	signal(c.wakeup)
}

// attach makes a response the one that sends the output, from the given offsets on. It returns its
// number and its wakeup.
func (c *command) attach(p *peer, outputs []output,
	stdout, stderr int64,
) (uint64, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.current() { // a late request does not take over from those of the connection that counts
		return 0, nil, errCutOff
	}
	if (c.stdout == nil && stdout > 0) || (c.stderr == nil && stderr > 0) {
		return 0, nil, errOffset
	}
	c.responses++
	for _, o := range outputs {
		offset := stdout
		if o.kind == wire.FrameStderr {
			offset = stderr
		}
		if err := o.ring.attach(c.responses, offset); err != nil {
			return 0, nil, errOffset
		}
	}
	signal(c.wakeup) // the response before, which is replaced
	c.wakeup = make(chan struct{}, 1)
	return c.responses, c.wakeup, nil
}

// send responds with the output from the given offsets on, and the result.
func (c *command) send(ctx context.Context, p *peer, a *response, stdout, stderr int64) error {
	if c.lost {
		return fmt.Errorf("%w: its result was dropped", env.ErrUnknownOutcome)
	}
	outputs := c.outputs()
	number, woken, err := c.attach(p, outputs, stdout, stderr)
	if err != nil {
		return err
	}
	for {
		ended := c.ended() // looked at first, so that all output has been seen when it counts
		sent := 0
		for _, o := range outputs {
			room, err := a.reserve(maxOutput, maxOutput)
			if err != nil {
				return err
			}
			n, err := o.ring.take(number, room)
			if err != nil {
				return errCutOff // another response has taken over
			}
			if sent += n; n > 0 {
				a.commit(o.kind, n)
			}
		}
		switch {
		case sent > 0: // more may follow
		case ended:
			return c.finish(a)
		default:
			if err := c.wait(ctx, a, number, woken); err != nil {
				return err
			}
		}
	}
}

// wait sends the collected frames and waits for more output.
func (c *command) wait(ctx context.Context, a *response, number uint64,
	woken <-chan struct{},
) error {
	if a.buf != nil && len(*a.buf) > 0 {
		if err := a.flush(); err != nil {
			return err
		}
	}
	a.release()
	select {
	case <-woken:
	case <-c.done:
	case <-ctx.Done():
		return cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.responses != number {
		return errCutOff
	}
	return nil
}

// finish ends the response with the result.
func (c *command) finish(a *response) error {
	result := c.result
	return a.finish(wire.FrameResult, &result, func() { result.Error = shorten(result.Error) })
}

func (c *command) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// abandon discards output that does not fit, instead of blocking the command.
func (c *command) abandon() {
	for _, o := range c.outputs() {
		o.ring.abandon()
	}
}
