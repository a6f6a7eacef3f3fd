package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// cutStream ends, in both directions, when a number of bytes have passed in one of them.
type cutStream struct {
	net.Conn
	sent, received atomic.Int64
	maxSent        int64 // negative: no limit
	maxReceived    int64
}

func (c *cutStream) Write(p []byte) (int, error) {
	if c.maxSent < 0 {
		n, err := c.Conn.Write(p)
		c.sent.Add(int64(n))
		return n, err
	}
	left := min(c.maxSent-c.sent.Load(), int64(len(p)))
	n, err := c.Conn.Write(p[:left])
	c.sent.Add(int64(n))
	if err == nil && n < len(p) {
		_ = c.Close()
		err = io.ErrClosedPipe
	}
	return n, err
}

func (c *cutStream) Read(p []byte) (int, error) {
	if c.maxReceived < 0 {
		n, err := c.Conn.Read(p)
		c.received.Add(int64(n))
		return n, err
	}
	left := c.maxReceived - c.received.Load()
	if left <= 0 {
		_ = c.Close()
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(left, int64(len(p)))])
	c.received.Add(int64(n))
	return n, err
}

// exchanged is what became of one exchange.
type exchanged struct {
	runs, writes   atomic.Int32
	sent, received int64
}

// small is an environment that runs one command, which copies its input to both outputs, and has
// one file.
func (x *exchanged) small() env.Environment {
	closed := make(chan struct{})
	return &wiretest.Env{
		OnClose: func() error { close(closed); return nil },
		OnExec: func(_ context.Context, cmd env.Command) (env.Result, error) {
			x.runs.Add(1)
			var input []byte
			var err error
			read := make(chan struct{})
			go func() {
				defer close(read)
				input, err = io.ReadAll(cmd.Stdin)
			}()
			select {
			case <-read:
			case <-closed:
				return env.Result{ExitCode: -1}, fs.ErrClosed
			}
			_, _ = cmd.Stdout.Write(input)
			_, _ = cmd.Stderr.Write(bytes.ToUpper(input))
			return env.Result{ExitCode: 7}, err
		},
		OnWriteFile: func(
			_ context.Context, name string, r io.Reader, _ env.WriteOptions,
		) (env.Written, error) {
			data, err := io.ReadAll(r)
			if err != nil {
				return env.Written{}, &fs.PathError{Op: "write", Path: name, Err: err}
			}
			x.writes.Add(1)
			return env.Written{Size: int64(len(data)), Created: true}, nil
		},
		OnOpen: func(context.Context, string) (fs.File, error) {
			return fstest.MapFS{"f": {Data: []byte("content")}}.Open("f")
		},
		OnStat: func(context.Context, string) (fs.FileInfo, error) {
			return fs.Stat(fstest.MapFS{"f": {Data: []byte("content")}}, "f")
		},
	}
}

// exchange is a handshake, a command with standard input, a write, a read, a stat and a close, over
// a stream of which the first is cut. It returns what is wrong.
func (x *exchanged) exchange(maxSent, maxReceived int64, redial time.Duration) error {
	s := server.New(server.Config{
		Open: func(context.Context, json.RawMessage) (env.Environment, error) { return x.small(), nil },
	})
	var served sync.WaitGroup
	defer served.Wait()
	defer func() { _ = s.Close() }() // the client has closed the environment, or cannot
	first := &cutStream{maxSent: maxSent, maxReceived: maxReceived}
	dials := 0
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := Open(ctx, Config{Redial: redial, Dial: func(context.Context) (io.ReadWriteCloser,
		error,
	) {
		near, far := net.Pipe()
		served.Go(func() { _ = s.Serve(context.Background(), far) })
		if dials++; dials > 1 {
			return near, nil
		}
		first.Conn = near
		return first, nil
	}})
	if err != nil {
		if dials > 1 {
			return fmt.Errorf("Open: %w", err)
		}
		return nil // no command before the end of the handshake
	}
	defer func() {
		_ = c.Close() // has been called where its error counts
		x.sent, x.received = first.sent.Load(), first.received.Load()
	}()
	var stdout, stderr strings.Builder
	result, err := c.Exec(ctx, env.Command{
		Argv: []string{"copy"}, Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr,
	})
	switch runs := x.runs.Load(); {
	case err != nil && (redial > 0 || !typed(err)):
		return fmt.Errorf("Exec: %w", err)
	case runs > 1, err == nil && runs != 1:
		return fmt.Errorf("the command ran %d times", runs)
	case err == nil && (stdout.String() != "input" || stderr.String() != "INPUT" ||
		result.ExitCode != 7):
		return fmt.Errorf("Exec: %+v, output %q and %q", result, stdout.String(), stderr.String())
	}
	written, err := c.WriteFile(ctx, "f", strings.NewReader("content"), env.WriteOptions{})
	switch writes := x.writes.Load(); {
	case err != nil && (redial > 0 || !typed(err)):
		return fmt.Errorf("WriteFile: %w", err)
	case writes > 1, err == nil && (writes != 1 || written != env.Written{Size: 7, Created: true}):
		return fmt.Errorf("the file was written %d times: %+v", writes, written)
	}
	data, err := env.ReadFile(ctx, c, "f", 100)
	if err != nil && (redial > 0 || !typed(err)) || err == nil && string(data) != "content" {
		return fmt.Errorf("ReadFile: %q, %w", data, err)
	}
	info, err := c.Stat(ctx, "f")
	if err != nil && (redial > 0 || !typed(err)) || err == nil && info.Size() != 7 {
		return fmt.Errorf("Stat: %v, %w", info, err)
	}
	if err := c.Close(); err != nil && !errors.Is(err, env.ErrGone) {
		return fmt.Errorf("Close: %w", err)
	}
	return nil
}

// typed reports whether an error wraps env.ErrGone.
func typed(err error) bool { return errors.Is(err, env.ErrGone) }

// TestCutAtEveryByte cuts an exchange at every byte of both directions, with another connection and
// without one.
func TestCutAtEveryByte(t *testing.T) {
	wiretest.NoLeaks(t)
	var whole exchanged
	if err := whole.exchange(-1, -1, 0); err != nil {
		t.Fatal(err)
	}
	if whole.runs.Load() != 1 || whole.writes.Load() != 1 || whole.sent == 0 || whole.received == 0 {
		t.Fatalf("%d runs, %d writes, %d bytes sent, %d received", whole.runs.Load(), whole.writes.Load(),
			whole.sent, whole.received)
	}
	type cut struct {
		sent, received int64
		redial         time.Duration
	}
	cuts := make(chan cut)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for c := range cuts {
				if err := new(exchanged).exchange(c.sent, c.received, c.redial); err != nil {
					t.Errorf("cut after %d bytes sent or %d received, redial %v: %v", c.sent, c.received, c.redial,
						err)
				}
			}
		})
	}
	step := int64(1)
	if testing.Short() {
		step = 3
	}
	runs := 0
	for _, redial := range []time.Duration{0, 10 * time.Second} {
		// The length differs from run to run, with the ids and with how HTTP/2 divides things up.
		for at := int64(0); at <= whole.sent+100; at += step {
			cuts <- cut{at, -1, redial}
			runs++
		}
		for at := int64(0); at <= whole.received+100; at += step {
			cuts <- cut{-1, at, redial}
			runs++
		}
	}
	close(cuts)
	workers.Wait()
	t.Logf("%d bytes sent and %d received, %d runs", whole.sent, whole.received, runs)
}
