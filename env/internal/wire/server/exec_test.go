package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

func TestExecStreams(t *testing.T) {
	describe := func(_ context.Context, cmd env.Command) (env.Result, error) {
		described := fmt.Sprintf("stdin %t, stdout %t, stderr %t, same %t, tty %t",
			cmd.Stdin != nil, cmd.Stdout != nil, cmd.Stderr != nil, cmd.Stdout == cmd.Stderr, cmd.TTY != nil)
		if cmd.Stdout != nil {
			_, _ = io.WriteString(cmd.Stdout, "out")
		}
		if cmd.Stderr != nil {
			_, _ = io.WriteString(cmd.Stderr, "err")
		}
		return env.Result{}, errors.New(described)
	}
	for _, c := range []struct {
		name           string
		request        wire.ExecRequest
		streams        string
		stdout, stderr string
	}{
		{
			"none",
			wire.ExecRequest{},
			"stdin false, stdout false, stderr false, same true, tty false", "",
			"",
		},
		{"stdout", wire.ExecRequest{Stdout: true}, "stdin false, stdout true, stderr false, same " +
			"false, tty false", "out", ""},
		{"stderr", wire.ExecRequest{Stderr: true}, "stdin false, stdout false, stderr true, same " +
			"false, tty false", "", "err"},
		{
			"both",
			wire.ExecRequest{Stdout: true, Stderr: true},
			"stdin false, stdout true, stderr true, same false, tty false", "out", "err",
		},
		{
			"merged",
			wire.ExecRequest{Stdout: true, Stderr: true, Merged: true},
			"stdin false, stdout true, stderr true, same true, tty false", "outerr", "",
		},
		{
			"terminal",
			wire.ExecRequest{Stdin: true, Stdout: true, TTY: &env.TTYSize{Columns: 1}},
			"stdin true, stdout true, stderr false, same false, tty true", "out", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			a := startServer(t, &wiretest.Env{OnExec: describe}, nil).connect("c").run("1", c.request)
			if a.result == nil || a.result.Error == nil {
				t.Fatalf("no error: %+v", a)
			}
			if got := a.result.Error.Err().Error(); got != c.streams {
				t.Errorf("the command has %s", got)
			}
			if string(a.stdout) != c.stdout || string(a.stderr) != c.stderr {
				t.Errorf("output %q and %q", a.stdout, a.stderr)
			}
			if int(a.result.Stdout) != len(c.stdout) || int(a.result.Stderr) != len(c.stderr) {
				t.Errorf("totals %d and %d", a.result.Stdout, a.result.Stderr)
			}
		})
	}
}

func TestExecErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
	}{
		{"not found", &env.StartError{Argv: []string{"x"}, Err: &fs.PathError{
			Op: "exec", Path: "x",
			Err: fs.ErrNotExist,
		}}},
		{"closed", fmt.Errorf("exec x: %w", fs.ErrClosed)},
		{"unknown", fmt.Errorf("%w: %w", env.ErrUnknownOutcome, env.ErrGone)},
		{"not cancelled by the client", context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			e := wiretest.Exec(func(context.Context, env.Command) (env.Result, error) {
				return env.Result{}, c.err
			})
			a := startServer(t, e, nil).connect("c").run("1", wire.ExecRequest{Argv: []wire.Text{"x"}})
			if a.result == nil || a.result.Cancelled {
				t.Fatalf("the answer is %+v", a)
			}
			if got := a.result.Error.Err(); got == nil || got.Error() != c.err.Error() {
				t.Errorf("the error is %v, want %v", got, c.err)
			}
		})
	}
}

// writer returns an environment whose commands write size bytes to both outputs, and how many were
// started.
func writer(size int64) (*wiretest.Env, *atomic.Int32) {
	started := new(atomic.Int32)
	return wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		started.Add(1)
		var both sync.WaitGroup
		for _, w := range []io.Writer{cmd.Stdout, cmd.Stderr} {
			both.Go(func() {
				random := rand.New(rand.NewPCG(1, 2))
				for at := int64(0); at < size; {
					n := int(min(size-at, int64(1+random.IntN(100<<10))))
					_, _ = w.Write(wiretest.Sequence(at, n))
					at += int64(n)
				}
			})
		}
		both.Wait()
		return env.Result{ExitCode: 7}, nil
	}), started
}

// TestExecResume cuts answers at random places, with the request and with the connection, and goes
// on where it was.
func TestExecResume(t *testing.T) {
	wiretest.NoLeaks(t)
	const size = 5 << 20
	e, started := writer(size)
	s := startServer(t, e, nil)
	random := rand.New(rand.NewPCG(3, 4))
	c := s.connect("c")
	var stdout, stderr int64
	var result *wire.ExecResult
	cuts := 0
	for result == nil {
		ctx, cancel := context.WithCancel(t.Context())
		path := fmt.Sprintf("/exec/1?stdout=%d&stderr=%d", stdout, stderr)
		response, err := c.send(ctx, "POST", path, jsonOf(wire.ExecRequest{Stdout: true, Stderr: true}))
		if err != nil || response.status != http.StatusOK {
			t.Fatalf("%v %v", response, err)
		}
		frames := &wire.FrameReader{R: response}
		for limit := random.IntN(40); cuts > 30 || limit > 0; limit-- {
			kind, payload, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			at := &stdout
			if kind == wire.FrameStderr {
				at = &stderr
			}
			if kind == wire.FrameResult {
				result = &wire.ExecResult{}
				if err := wire.Decode(payload, result); err != nil {
					t.Fatal(err)
				}
				break
			}
			if !bytes.Equal(payload, wiretest.Sequence(*at, len(payload))) {
				t.Fatalf("output of kind %d at %d is wrong", kind, *at)
			}
			*at += int64(len(payload))
		}
		if result == nil {
			cuts++
			// Some bytes of the next frame get lost.
			_, _ = io.CopyN(io.Discard, response, int64(random.IntN(maxOutput)))
		}
		cancel()
		_ = response.Close()
		if random.IntN(3) == 0 {
			c = s.connect("c") // and the old connection is dead
		}
	}
	if result.ExitCode != 7 || result.Stdout != size || result.Stderr != size || stdout != size ||
		stderr != size {
		t.Errorf("result %+v after %d and %d bytes", result, stdout, stderr)
	}
	if started.Load() != 1 || cuts < 5 {
		t.Errorf("started %d times, cut %d times", started.Load(), cuts)
	}
}

func TestExecOffsetsRefused(t *testing.T) {
	wiretest.NoLeaks(t)
	e, started := writer(ringKeep + 3*maxOutput)
	c := startServer(t, e, nil).connect("c")
	c.run("1", wire.ExecRequest{Stdout: true, Stderr: true}).fine(t)
	for _, query := range []string{
		"stdout=0", "stdout=99999999", "stderr=5&stdout=" + strconv.Itoa(ringKeep+3*maxOutput),
		"stderr=" + strconv.FormatInt(1<<62, 10),
	} {
		a := c.call("POST", "/exec/1?"+query, jsonOf(wire.ExecRequest{}))
		if a.status != http.StatusConflict {
			t.Errorf("%s: %+v", query, a)
		}
	}
	total := strconv.Itoa(ringKeep + 3*maxOutput)
	a := c.call("POST", "/exec/1?stdout="+total+"&stderr="+total, jsonOf(wire.ExecRequest{})).fine(t)
	if a.result.ExitCode != 7 || len(a.stdout)+len(a.stderr) != 0 {
		t.Errorf("the result again: %+v", a)
	}
	// Output of a command that is not known.
	a = c.call("POST", "/exec/2?stdout=1", jsonOf(wire.ExecRequest{
		Argv:   []wire.Text{"x"},
		Stdout: true,
	}))
	if a.end == nil || !errors.Is(a.end.Error.Err(), env.ErrUnknownOutcome) {
		t.Errorf("unknown command: %+v", a)
	}
	if started.Load() != 1 {
		t.Errorf("%d commands were started", started.Load())
	}
}

func TestExecLaterAnswerTakesOver(t *testing.T) {
	wiretest.NoLeaks(t)
	release := make(chan struct{})
	e := wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		_, _ = io.WriteString(cmd.Stdout, "one")
		<-release
		_, _ = io.WriteString(cmd.Stdout, "two")
		return env.Result{}, nil
	})
	c := startServer(t, e, nil).connect("c")
	response, err := c.send(t.Context(), "POST", "/exec/1", jsonOf(wire.ExecRequest{Stdout: true}))
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan *reading, 1)
	go func() { second <- c.run("1", wire.ExecRequest{}) }()
	first := read(response, nil)
	if first.err == nil || first.result != nil || string(first.stdout) != "one" {
		t.Errorf("the first answer: %+v", first)
	}
	close(release)
	if a := <-second; a.result == nil || string(a.stdout) != "onetwo" {
		t.Errorf("the second answer: %+v", a)
	}
}

// TestExecRandomOrder sends POSTs and DELETEs of one command in any number and order.
func TestExecRandomOrder(t *testing.T) {
	wiretest.NoLeaks(t)
	var started [100]atomic.Int32
	e := wiretest.Exec(func(ctx context.Context, cmd env.Command) (env.Result, error) {
		n, err := strconv.Atoi(cmd.Argv[0])
		if err != nil {
			return env.Result{}, err
		}
		started[n].Add(1)
		<-ctx.Done()
		return env.Result{}, context.Cause(ctx)
	})
	c := startServer(t, e, nil).connect("c")
	var all sync.WaitGroup
	for i := range started {
		id := strconv.Itoa(i)
		for range 1 + i%3 {
			all.Go(func() { c.run(id, wire.ExecRequest{Argv: []wire.Text{wire.Text(id)}}) })
			all.Go(func() { c.call("DELETE", "/exec/"+id, nil).fine(t) })
		}
	}
	wiretest.Within(t, "every command ends", all.Wait)
	for i := range started {
		id := strconv.Itoa(i)
		a := c.run(id, wire.ExecRequest{Argv: []wire.Text{wire.Text(id)}})
		if a.result == nil || !a.result.Cancelled {
			t.Errorf("command %d: %+v, %v", i, a, a.err)
			continue
		}
		var start *env.StartError
		never := errors.As(a.result.Error.Err(), &start)
		if n := started[i].Load(); n > 1 || (n == 1 && never) {
			t.Errorf("command %d was started %d times, never: %t", i, n, never)
		}
	}
}

func TestDeleteBeforePost(t *testing.T) {
	wiretest.NoLeaks(t)
	e, started := writer(1)
	c := startServer(t, e, nil).connect("c")
	c.call("DELETE", "/exec/1", nil).fine(t)
	a := c.run("1", wire.ExecRequest{Stdout: true, Stderr: true})
	var start *env.StartError
	if a.result == nil || !a.result.Cancelled || !errors.As(a.result.Error.Err(), &start) {
		t.Errorf("the answer is %+v", a)
	}
	if started.Load() != 0 {
		t.Error("it was started")
	}
}

func TestReplacedConnectionStartsNothing(t *testing.T) {
	wiretest.NoLeaks(t)
	s := startServer(t, &wiretest.Env{}, nil)
	p := &peer{s: s.Server, replaced: true}
	if _, _, err := s.commands.start(p, "1", &wire.ExecRequest{}, false); !errors.Is(err, errCutOff) {
		t.Errorf("a command: %v", err)
	}
	if _, _, err := s.changes.start(p, "1"); !errors.Is(err, errCutOff) {
		t.Errorf("a change: %v", err)
	}
	c := newCommand("1", &wire.ExecRequest{Stdout: true})
	if _, _, err := c.attach(p, c.outputs(), 0, 0); !errors.Is(err, errCutOff) {
		t.Errorf("an answer: %v", err)
	}
}

func TestCancel(t *testing.T) {
	other := errors.New("stdout: broken")
	for _, c := range []struct {
		name      string
		exec      func(ctx context.Context) error
		cancelled bool
		want      string // the text of the error; empty without one
	}{
		{"cancelled", func(ctx context.Context) error { return context.Cause(ctx) }, true, ""},
		{"both", func(ctx context.Context) error {
			return fmt.Errorf("exec x: %w: %w", ctx.Err(), context.Cause(ctx))
		}, true, ""},
		{"only the error of the context", func(ctx context.Context) error { return ctx.Err() }, true, ""},
		{"with another error", func(ctx context.Context) error {
			return fmt.Errorf("exec x: %w", errors.Join(other, fmt.Errorf("%w: %w", ctx.Err(),
				context.Cause(ctx))))
		}, true, "stdout: broken"},
		{"before the start", func(ctx context.Context) error {
			return &env.StartError{Argv: []string{"x"}, Err: context.Cause(ctx)}
		}, true, "start x: the client has cancelled the command: context canceled"},
		{"before the start, both", func(ctx context.Context) error {
			return &env.StartError{Argv: []string{"x"}, Err: fmt.Errorf("%w: %w", ctx.Err(),
				context.Cause(ctx))}
		}, true, "start x: context canceled: the client has cancelled the command: context canceled"},
		{"too late", func(context.Context) error { return nil }, false, ""},
		{
			"closed instead", func(context.Context) error { return fs.ErrClosed }, false,
			"file already closed",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			running := make(chan struct{})
			e := wiretest.Exec(func(ctx context.Context, cmd env.Command) (env.Result, error) {
				_, _ = io.WriteString(cmd.Stdout, "before")
				close(running)
				<-ctx.Done()
				_, _ = io.WriteString(cmd.Stdout, ", after")
				return env.Result{ExitCode: 143}, c.exec(ctx)
			})
			client := startServer(t, e, nil).connect("c")
			answered := make(chan *reading, 1)
			go func() {
				answered <- client.run("1", wire.ExecRequest{
					Argv:   []wire.Text{"x"},
					Stdout: true,
				})
			}()
			<-running
			client.call("DELETE", "/exec/1", nil).fine(t)
			a := <-answered
			if a.result == nil || string(a.stdout) != "before, after" || a.result.ExitCode != 143 {
				t.Fatalf("the answer is %+v", a)
			}
			got := ""
			if err := a.result.Error.Err(); err != nil {
				got = err.Error()
			}
			if got != c.want || a.result.Cancelled != c.cancelled {
				t.Errorf("cancelled %t, error %q", a.result.Cancelled, got)
			}
		})
	}
}

func TestResultsLost(t *testing.T) {
	wiretest.NoLeaks(t)
	e, started := writer(10)
	s := startServer(t, e, nil)
	c := s.connect("c")
	const count = maxFinished + 3
	for i := range count {
		c.run(strconv.Itoa(i), wire.ExecRequest{Stdout: true, Stderr: true}).fine(t)
	}
	for i := range 3 { // the oldest are lost, but do not run again
		a := c.run(strconv.Itoa(i), wire.ExecRequest{Stdout: true, Stderr: true})
		if a.end == nil || !errors.Is(a.end.Error.Err(), env.ErrUnknownOutcome) {
			t.Fatalf("command %d: %+v", i, a)
		}
	}
	if a := c.run("3", wire.ExecRequest{}).fine(t); len(a.stdout) != 10 {
		t.Errorf("the oldest that is kept: %+v", a)
	}
	if started.Load() != count {
		t.Errorf("%d commands were started", started.Load())
	}
	s.commands.mu.Lock()
	defer s.commands.mu.Unlock()
	if n := s.commands.finished.Len() + s.commands.lost.Len(); n != len(s.commands.byID) ||
		s.commands.running != 0 {
		t.Errorf("%d in the lists, %d in all, %d running", n, len(s.commands.byID), s.commands.running)
	}
}

func TestTooManyCommands(t *testing.T) {
	s := New(Config{})
	p := &peer{s: s}
	for i := range maxRunning {
		if _, fresh, err := s.commands.start(p, strconv.Itoa(i), &wire.ExecRequest{},
			false); err != nil || !fresh {
			t.Fatal(err)
		}
	}
	c, fresh, err := s.commands.start(p, "more", &wire.ExecRequest{Argv: []wire.Text{"x"}}, false)
	var start *env.StartError
	if err != nil || fresh || !c.ended() || !errors.As(c.result.Error.Err(), &start) {
		t.Errorf("one more: %v, %t, %+v", err, fresh, c)
	}
	if again, _ := s.commands.get("more"); again != nil {
		t.Error("it is remembered")
	}
}
