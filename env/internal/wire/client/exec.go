package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// errSilent ends a command whose outcome the server does not report after a request to kill it.
var errSilent = errors.New("the server does not report the result of the command")

// Exec implements env.Environment. Without a connection the command runs on, and the next
// connection resumes its output. If no connection follows, or another server replaced this one, the
// error wraps env.ErrUnknownOutcome and env.ErrGone.
func (c *Client) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	cmd.Argv = slices.Clone(cmd.Argv)
	x, err := c.newExecution(ctx, cmd)
	if err != nil {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: err}
	}
	defer c.calls.Done()
	return x.run(ctx)
}

// execution is a command in progress.
type execution struct {
	c              *Client
	id             string
	cmd            env.Command
	body           []byte
	stdout, stderr *sink       // nil for an output without a writer
	sent           bool        // the server may have the command
	deleted        atomic.Bool // the server has the request to kill it
	progress       atomic.Int64
	writing        atomic.Int32 // writers of the caller that are in a call
	tasks          sync.WaitGroup
	input          *input // nil without standard input
}

// newExecution registers a call and prepares the command. Its error is why the command cannot be
// sent.
func (c *Client) newExecution(ctx context.Context, cmd env.Command) (*execution, error) {
	if err := env.UserError(cmd.User); err != nil {
		return nil, err
	}
	size := 0
	for _, s := range cmd.Argv {
		size += len(s)
	}
	for _, s := range cmd.Vars {
		size += len(s)
	}
	if size > wire.MaxRequest {
		return nil, fmt.Errorf("arguments and variables of %d bytes: %w", size, env.ErrTooLarge)
	}
	x := &execution{c: c, id: c.newID(), cmd: cmd}
	var merged bool
	x.stdout, x.stderr, merged = sinks(cmd, func(n int) {
		x.progress.Add(1)
		x.writing.Add(int32(n))
	})
	r := wire.ExecRequest{
		Argv: wire.Texts(cmd.Argv), Dir: wire.Text(cmd.Dir), Vars: wire.Texts(cmd.Vars),
		Timeout: cmd.Timeout, MaxProcesses: cmd.MaxProcesses, Confine: wire.ToConfinement(cmd.Confine),
		Stdin: cmd.Stdin != nil, Stdout: x.stdout != nil, Stderr: cmd.Stderr != nil,
		Merged: merged,
	}
	if cmd.TTY != nil {
		r.TTY = &cmd.TTY.Size
	}
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	var err error
	if x.body, err = jsonBody(r); err != nil {
		c.calls.Done()
		return nil, err
	}
	return x, nil
}

// run runs the command and returns its result.
func (x *execution) run(ctx context.Context) (env.Result, error) {
	// The end of ctx does not end the requests, but sends one more; the response then has the
	// result.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	killed := make(chan struct{})
	spare := func() bool { return true } // keeps the command from being killed
	var result *wire.ExecResult
	var err error
	for tries, steps := 0, int64(0); tries < maxTries; tries++ {
		if now := x.progress.Load(); now != steps { // the last connection was of use
			tries, steps = 0, now
		}
		wait := ctx
		if x.sent {
			wait = life
		}
		var l *link
		if l, err = x.c.connection(wait); err != nil {
			break
		}
		if !x.sent {
			x.sent = true
			spare = context.AfterFunc(ctx, func() {
				defer close(killed)
				x.kill(life, cancel)
			})
			x.startStreams(life)
		}
		result, err = x.receive(life, l)
		if !errors.Is(err, errLost) {
			break
		}
		err = errBroken
	}
	if errors.Is(context.Cause(life), errSilent) {
		err = errSilent
	}
	cancel(nil)
	if !spare() {
		<-killed
	}
	streamErrs := x.finishStreams()
	if (errors.Is(err, errSilent) || errors.Is(err, errBroken)) && !x.deleted.Load() {
		x.c.abandoned.add(x.c, x.id)
	}
	return x.toResult(ctx, result, err, streamErrs)
}

// startStreams starts the goroutines for stdin, interrupts and the size of the terminal.
func (x *execution) startStreams(life context.Context) {
	if x.cmd.Stdin != nil {
		x.input = newInput(x.cmd.Stdin)
		x.tasks.Go(func() { x.feed(life) })
	}
	if x.cmd.Interrupt != nil {
		x.tasks.Go(func() { x.interrupt(life) })
	}
	if x.cmd.TTY != nil && x.cmd.TTY.Resize != nil {
		x.tasks.Go(func() { x.resize(life, x.cmd.TTY.Resize) })
	}
}

// finishStreams ends those goroutines and returns the errors of the caller's writers and reader,
// none of which is called afterwards.
func (x *execution) finishStreams() []error {
	var errs []error
	for _, s := range []*sink{x.stdout, x.stderr} {
		if s != nil {
			errs = append(errs, s.finish())
		}
	}
	if x.input != nil {
		errs = append(errs, x.input.stop())
	}
	x.tasks.Wait()
	return errs
}

// receive sends the command, or requests the rest of its output, and returns its result. Its error
// is errLost or ends the call.
func (x *execution) receive(life context.Context, l *link) (*wire.ExecResult, error) {
	query := url.Values{}
	if x.stdout != nil && x.stdout.taken > 0 {
		query.Set("stdout", strconv.FormatInt(x.stdout.taken, 10))
	}
	if x.stderr != nil && x.stderr.taken > 0 {
		query.Set("stderr", strconv.FormatInt(x.stderr.taken, 10))
	}
	a, err := x.c.send(life, l, request{
		method: "POST", path: "/exec/" + x.id, query: query,
		body: x.body,
	})
	if err != nil {
		return nil, err
	}
	defer a.close()
	for {
		kind, size, err := a.head()
		if err != nil {
			return nil, err
		}
		x.progress.Add(1)
		switch kind {
		case wire.FrameStdout:
			err = x.output(a, x.stdout, kind, size)
		case wire.FrameStderr:
			err = x.output(a, x.stderr, kind, size)
		case wire.FrameResult:
			return x.result(a, size)
		case wire.FrameEnd:
			end, err := a.last(size)
			if err == nil {
				err = x.c.decodeError(end.Error)
			}
			if err == nil {
				err = a.malformed("a command without a result")
			}
			return nil, err
		default:
			err = a.unexpected(kind)
		}
		if err != nil {
			return nil, err
		}
	}
}

// output delivers the payload of a frame in parts, which count even if the connection is lost
// within the frame.
func (x *execution) output(a *response, s *sink, kind wire.FrameKind, size int) error {
	if s == nil {
		return a.unexpected(kind)
	}
	for size > 0 {
		piece, err := a.peek(size)
		if err != nil {
			return err
		}
		s.write(piece)
		a.skip(len(piece))
		size -= len(piece)
		x.progress.Add(1)
	}
	return nil
}

// result decodes the last frame. The output must be complete by then.
func (x *execution) result(a *response, size int) (*wire.ExecResult, error) {
	payload, err := a.payload(size)
	if err != nil {
		return nil, err
	}
	var r wire.ExecResult
	if err := wire.Decode(payload, &r); err != nil {
		return nil, x.c.violation(err)
	}
	stdout, stderr := x.stdout.count(), x.stderr.count()
	// An environment that is being closed discards output that it cannot deliver.
	whole := r.Stdout == stdout && r.Stderr == stderr
	if !whole && !errors.Is(r.Error.Err(), fs.ErrClosed) {
		return nil, a.malformed("outputs of %d and %d bytes announced, %d and %d received",
			r.Stdout, r.Stderr, stdout, stderr)
	}
	// Windows has exit codes of 32 bits, which are negative where int has 32 bits.
	least, most := int64(-1), int64(math.MaxUint8)
	if x.c.info.OS == "windows" {
		least, most = math.MinInt32, math.MaxUint32
	}
	if code := int64(r.ExitCode); code < least || code > most {
		return nil, a.malformed("exit code %d", code)
	}
	return &r, a.finish()
}

// toResult combines the server's result with the errors of this side.
func (x *execution) toResult(ctx context.Context, r *wire.ExecResult, err error,
	streamErrs []error,
) (env.Result, error) {
	if err != nil {
		return env.Result{}, x.unknownResult(ctx, err, streamErrs)
	}
	result := env.Result{
		ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory,
		Detached: r.Detached, Elapsed: r.Elapsed, TooManyProcesses: r.TooManyProcesses,
	}
	end := env.ContextError(ctx)
	if !r.Cancelled {
		end = nil
	} else if end == nil {
		end = fmt.Errorf("%w: the server ended the command", env.ErrUnknownOutcome)
	}
	remote := x.c.decodeError(r.Error)
	var start *env.StartError
	if errors.As(remote, &start) {
		cause := start.Err
		if end != nil {
			cause = end
		}
		return env.Result{}, &env.StartError{Argv: x.cmd.Argv, Err: cause}
	}
	if errors.Is(r.Error.Err(), fs.ErrClosed) && !errors.Is(remote, fs.ErrClosed) {
		return result, x.unknownResult(ctx, remote, streamErrs)
	}
	return result, errors.Join(remote, x.wrapError(errors.Join(streamErrs...)), x.wrapError(end))
}

// wrapError adds the program to an error of this side. Errors of the server have it already.
func (x *execution) wrapError(err error) error {
	if err == nil {
		return nil
	}
	program := ""
	if len(x.cmd.Argv) > 0 {
		program = x.cmd.Argv[0]
	}
	return fmt.Errorf("exec %s: %w", program, err)
}

// unknownResult returns the error of a command whose result has not arrived.
func (x *execution) unknownResult(ctx context.Context, err error, streamErrs []error) error {
	if !x.sent {
		return &env.StartError{Argv: x.cmd.Argv, Err: err}
	}
	var start *env.StartError
	if errors.As(err, &start) { // the server reports that it did not run
		return &env.StartError{Argv: x.cmd.Argv, Err: start.Err}
	}
	if !errors.Is(err, env.ErrUnknownOutcome) && !errors.Is(err, fs.ErrClosed) {
		err = fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
	}
	return x.wrapError(errors.Join(append([]error{err, env.ContextError(ctx)}, streamErrs...)...))
}

// kill requests that the server kill the command. If the server then sends nothing for a while,
// cancel ends the wait.
func (x *execution) kill(life context.Context, cancel context.CancelCauseFunc) {
	x.tasks.Go(func() {
		// The response to the POST has the result, whatever the response to this one is.
		x.deleted.Store(x.c.command(life, request{method: "DELETE", path: "/exec/" + x.id}) == nil)
	})
	ticker := time.NewTicker(x.c.limits.response)
	defer ticker.Stop()
	for last := int64(-1); ; {
		select {
		case <-life.Done():
			return
		case <-ticker.C:
		}
		now := x.progress.Load()
		if now == last && x.writing.Load() == 0 {
			cancel(errSilent)
			return
		}
		last = now
	}
}

// maxAbandoned bounds the number of abandoned commands.
const maxAbandoned = 4096

// abandonedCommands are commands that may still run after the end of their call, because no request
// to kill them has reached the server. It is repeated with the next connection.
type abandonedCommands struct {
	mu      sync.Mutex
	ids     []string
	running bool // a goroutine sends the requests
	stopped bool
	work    sync.WaitGroup
}

// add adds a command. Beyond maxAbandoned the oldest is dropped.
func (o *abandonedCommands) add(c *Client, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	if len(o.ids) == maxAbandoned {
		o.ids = slices.Delete(o.ids, 0, 1)
	}
	o.ids = append(o.ids, id)
	if !o.running {
		o.running = true
		o.work.Go(func() {
			for id, ok := o.next(); ok; id, ok = o.next() {
				c.cancelAbandoned(id)
			}
		})
	}
}

// next returns the next command; false ends the goroutine.
func (o *abandonedCommands) next() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running = len(o.ids) > 0; !o.running {
		return "", false
	}
	id := o.ids[0]
	o.ids = slices.Delete(o.ids, 0, 1)
	return id, true
}

// stop waits for the end of the goroutine. The client has ended.
func (o *abandonedCommands) stop() {
	o.mu.Lock()
	o.stopped = true
	o.mu.Unlock()
	o.work.Wait()
}

// cancelAbandoned requests that the server kill a command. It waits for a connection until the
// client ends. It repeats a request without a response, since that connection may be dead.
func (c *Client) cancelAbandoned(id string) {
	err := errBroken
	for errors.Is(err, errBroken) || errors.Is(err, context.DeadlineExceeded) {
		err = c.retry(context.Background(), func(l *link) error {
			ctx, cancel := context.WithTimeout(context.Background(), c.limits.response)
			defer cancel()
			return c.single(ctx, l, request{method: "DELETE", path: "/exec/" + id}, nil)
		})
	}
}
