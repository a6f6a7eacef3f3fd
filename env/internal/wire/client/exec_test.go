package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// TestCancelOutlivesCall cancels commands while nobody can be got, for longer than the calls wait.
// Once the client is back the commands are killed all the same.
func TestCancelOutlivesCall(t *testing.T) {
	wiretest.NoLeaks(t)
	const count = 5
	var started, killed atomic.Int32
	var down atomic.Bool
	c := connected(t, wiretest.Exec(func(ctx context.Context, _ env.Command) (env.Result, error) {
		started.Add(1)
		<-ctx.Done()
		killed.Add(1)
		return env.Result{ExitCode: 137}, ctx.Err()
	}), dialsWhile(func() bool { return !down.Load() }))
	c.limits.response = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	for range count {
		calls.Go(func() {
			_, err := c.Exec(ctx, env.Command{Argv: []string{"x"}})
			if !errors.Is(err, env.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
				t.Errorf("Exec gives %v, want ErrUnknownOutcome and the end of the context", err)
			}
		})
	}
	wiretest.Eventually(t, "the commands to start", func() bool { return started.Load() == count })
	down.Store(true)
	c.lose()
	cancel()
	wiretest.Within(t, "every call ends", calls.Wait)
	if n := killed.Load(); n > 0 {
		t.Fatalf("%d commands are dead before the client is back", n)
	}
	down.Store(false)
	wiretest.Eventually(t, "the commands to be killed", func() bool { return killed.Load() == count })
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestOrphansBounded has more commands to be killed than are remembered. The oldest are given up.
func TestOrphansBounded(t *testing.T) {
	o := &abandonedCommands{running: true}
	for i := range maxAbandoned + 10 {
		o.add(nil, fmt.Sprint(i))
	}
	var got []string
	for id, ok := o.next(); ok; id, ok = o.next() {
		got = append(got, id)
	}
	if len(got) != maxAbandoned || got[0] != "10" ||
		got[maxAbandoned-1] != fmt.Sprint(maxAbandoned+9) || o.running {
		t.Errorf("%d orphans, from %s to %s, busy %t", len(got), got[0], got[len(got)-1], o.running)
	}
	o.stop()
	if o.add(nil, "late"); len(o.ids) > 0 {
		t.Error("one more after the end")
	}
}

// TestCloseWhileDisconnected closes a client that has commands to be killed and no connection.
func TestCloseWhileDisconnected(t *testing.T) {
	wiretest.NoLeaks(t)
	h := &hostile{session: "s", answer: func(http.ResponseWriter, *http.Request) {}}
	var stream io.Closer
	c := impatient(t, Config{Redial: time.Minute, Dial: func(ctx context.Context) (io.ReadWriteCloser,
		error,
	) {
		if stream != nil {
			return nil, errors.New("no way")
		}
		s, err := h.dial(ctx)
		stream = s
		return s, err
	}})
	_ = stream.Close() // a pipe's never fails
	wiretest.Eventually(t, "the loss to be noticed", func() bool { return c.current() == nil })
	c.abandoned.add(c, "1")
	wiretest.Within(t, "Close", func() {
		if err := c.Close(); !errors.Is(err, env.ErrGone) {
			t.Errorf("Close gives %v, want ErrGone", err)
		}
	})
}

// TestStdinBeforeCommand has a server that does not have the command yet. The client sends the
// piece again.
func TestStdinBeforeCommand(t *testing.T) {
	wiretest.NoLeaks(t)
	input := string(wiretest.Sequence(0, 200_000))
	var pieces atomic.Int32
	var got []byte
	arrived := make(chan struct{})
	h := &hostile{session: "s", answer: func(w http.ResponseWriter, r *http.Request) {
		switch {
		case path.Base(r.URL.Path) != "stdin":
			select {
			case <-arrived:
			case <-r.Context().Done():
			}
			_, _ = w.Write(frame(wire.FrameResult, `{"exit_code":3}`))
		case pieces.Add(1) < 4:
			_, _ = w.Write(frame(wire.FrameEnd, `{"value":{"unknown":true}}`))
		default:
			data, _ := io.ReadAll(r.Body)
			offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
			got = append(got[:offset:offset], data...) // the pieces come one after the other
			_, _ = w.Write(frame(wire.FrameEnd, fmt.Sprintf(`{"value":{"taken":%d}}`, len(got))))
			if r.URL.Query().Get("end") == "1" {
				close(arrived)
			}
		}
	}}
	c := impatient(t, Config{Dial: h.dial})
	cmd := env.Command{Argv: []string{"cat"}, Stdin: iotest.DataErrReader(strings.NewReader(input))}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if result, err := c.Exec(ctx, cmd); err != nil || result.ExitCode != 3 || string(got) != input {
		t.Errorf("Exec: %+v, %v, %d bytes of input arrived", result, err, len(got))
	}
}

// TestInputReader has readers that break the rules of io.Reader, or are read no more.
func TestInputReader(t *testing.T) {
	t.Run("nothing again and again", func(t *testing.T) {
		wiretest.NoLeaks(t)
		c := connected(t, wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
			input, err := io.ReadAll(cmd.Stdin)
			return env.Result{ExitCode: len(input)}, err
		}), nil)
		reads := 0
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		result, err := c.Exec(ctx, env.Command{Argv: []string{"x"}, Stdin: readerFunc(func(p []byte) (int,
			error,
		) {
			if reads++; reads%60 == 0 && reads < 200 {
				return copy(p, "x"), nil
			}
			return 0, nil
		})})
		if !errors.Is(err, io.ErrNoProgress) || result.ExitCode != 3 {
			t.Errorf("Exec: %+v, %v, want 3 bytes and io.ErrNoProgress", result, err)
		}
	})
	t.Run("after the end", func(t *testing.T) {
		wiretest.NoLeaks(t)
		reading, release := make(chan struct{}), make(chan struct{})
		reads := 0
		in := &input{queue: newQueue()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			in.read(readerFunc(func([]byte) (int, error) {
				if reads++; reads == 1 {
					close(reading)
					<-release
				}
				return 0, nil
			}))
		}()
		<-reading
		if err := in.stop(); err != nil {
			t.Error(err)
		}
		close(release)
		wiretest.Within(t, "the reading ends", func() { <-ended })
		if reads != 1 {
			t.Errorf("%d reads, of which all but one began after the end", reads)
		}
	})
}

// TestTruncatedOutputWhileClosing has a server announce more output than it sends, without an
// error, while the client is being closed.
func TestTruncatedOutputWhileClosing(t *testing.T) {
	wiretest.NoLeaks(t)
	requested, closing := make(chan struct{}), make(chan struct{})
	h := &hostile{session: "s", answer: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/close" {
			close(requested)
			select {
			case <-closing:
			case <-r.Context().Done():
			}
			_, _ = w.Write(join(frame(wire.FrameStdout, "x"), frame(wire.FrameResult,
				`{"exit_code":0,"stdout":2}`)))
			return
		}
		close(closing)
		<-r.Context().Done()
	}}
	c := impatient(t, Config{Dial: h.dial})
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), env.Command{Argv: []string{"x"}, Stdout: io.Discard})
		done <- err
	}()
	<-requested
	_ = c.Close() // what a hostile server makes of it does not matter
	if err := <-done; !errors.Is(err, env.ErrProtocol) {
		t.Errorf("Exec gives %v, want ErrProtocol", err)
	}
}

// TestExitCodes has a server send possible and impossible exit codes.
func TestExitCodes(t *testing.T) {
	wiretest.NoLeaks(t)
	for _, tc := range []struct {
		os   string
		code int64
		lie  bool
	}{
		{os: "linux", code: 0},
		{os: "linux", code: 255},
		{os: "linux", code: -1},
		{os: "linux", code: 256, lie: true},
		{os: "linux", code: -2, lie: true},
		{os: "windows", code: 0x7fffffff},
		{os: "windows", code: -1073741819},
		{os: "windows", code: -1 << 40, lie: true},
		{os: "windows", code: 1 << 40, lie: true},
	} {
		t.Run(fmt.Sprint(tc.os, tc.code), func(t *testing.T) {
			h := &hostile{session: "s", answer: body(frame(wire.FrameResult, fmt.Sprintf(`{"exit_code":%d}`,
				tc.code)))}
			c := impatient(t, Config{Dial: h.dial})
			c.info.OS = tc.os
			result, err := c.Exec(t.Context(), env.Command{Argv: []string{"x"}})
			switch {
			case tc.lie && !errors.Is(err, env.ErrProtocol):
				t.Errorf("Exec: %+v, %v, want ErrProtocol", result, err)
			case !tc.lie && (err != nil || int64(result.ExitCode) != tc.code):
				t.Errorf("Exec: %+v, %v", result, err)
			}
		})
	}
}

// TestClosedElsewhere has the environment closed by another one than the client. The caller gets
// no fs.ErrClosed.
func TestClosedElsewhere(t *testing.T) {
	wiretest.NoLeaks(t)
	running, closed := make(chan struct{}), make(chan struct{})
	c := connected(t, &wiretest.Env{
		OnExec: func(_ context.Context, cmd env.Command) (env.Result, error) {
			if cmd.Argv[0] == "late" {
				return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: fs.ErrClosed}
			}
			_, _ = io.WriteString(cmd.Stdout, "before")
			close(running)
			<-closed
			return env.Result{ExitCode: 137}, fmt.Errorf("exec x: %w", fs.ErrClosed)
		},
	}, nil)
	var stdout strings.Builder
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), env.Command{Argv: []string{"x"}, Stdout: &stdout})
		done <- err
	}()
	<-running
	close(closed)
	err := <-done
	if !errors.Is(err, env.ErrUnknownOutcome) || !errors.Is(err, env.ErrGone) || errors.Is(err,
		fs.ErrClosed) || stdout.String() != "before" {
		t.Errorf("Exec: %v after %q, want ErrUnknownOutcome and ErrGone", err, stdout.String())
	}
	var start *env.StartError
	_, err = c.Exec(t.Context(), env.Command{Argv: []string{"late", "arg"}})
	if !errors.As(err, &start) || !slices.Equal(start.Argv, []string{"late", "arg"}) || !errors.Is(err,
		env.ErrGone) || errors.Is(err, fs.ErrClosed) {
		t.Errorf("Exec: %v, want a *StartError with ErrGone", err)
	}
	for _, tc := range []struct{ err, want error }{
		{&fs.PathError{Op: "stat", Path: "f", Err: fs.ErrClosed}, &fs.PathError{
			Op: "stat", Path: "f",
			Err: env.ErrGone,
		}},
		{fmt.Errorf("kill: %w", fs.ErrClosed), env.ErrGone},
	} {
		got := c.decodeError(wire.ToError(tc.err))
		var path *fs.PathError
		if !errors.Is(got, env.ErrGone) || errors.Is(got, fs.ErrClosed) || errors.As(got,
			&path) != errors.As(tc.want, &path) {
			t.Errorf("%v becomes %v", tc.err, got)
		}
	}
	if got := c.decodeError(wire.ToError(fs.ErrNotExist)); !errors.Is(got, fs.ErrNotExist) {
		t.Errorf("another error becomes %v", got)
	}
}
