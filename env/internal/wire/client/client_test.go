package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// pair is a client with its server.
type pair struct {
	*Client
	server *server.Server
	// streams are this side's ends of the connections so far; to close one is to lose it.
	mu      sync.Mutex
	streams []net.Conn
	hellos  []wire.Hello
}

// lose ends the latest connection.
func (p *pair) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.streams[len(p.streams)-1].Close() // a pipe's never fails
}

// connected returns a client of a server of e. Both are closed at the end of the test.
func connected(t testing.TB, e env.Environment, change func(*Config)) *pair {
	t.Helper()
	p := &pair{}
	p.server = server.New(server.Config{
		Open: func(context.Context, json.RawMessage) (env.Environment, error) { return e, nil },
		Authorize: func(h wire.Hello) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.hellos = append(p.hellos, h)
			return nil
		},
	})
	var served sync.WaitGroup
	cfg := Config{Redial: time.Minute, Dial: func(context.Context) (io.ReadWriteCloser, error) {
		near, far := net.Pipe()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.streams = append(p.streams, near)
		// a stream may end at any time
		served.Go(func() { _ = p.server.Serve(context.Background(), far) })
		return near, nil
	}}
	if change != nil {
		change(&cfg)
	}
	var err error
	if p.Client, err = Open(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close() // tests that want to know have called it
		if err := p.server.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
		served.Wait()
	})
	return p
}

// dialsWhile returns a change of a Config whose dialer fails while up returns false.
func dialsWhile(up func() bool) func(*Config) {
	return func(cfg *Config) {
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) {
			if !up() {
				return nil, errors.New("unreachable")
			}
			return dial(ctx)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStalledWriter has the writer of one output stall. The other output arrives meanwhile.
func TestStalledWriter(t *testing.T) {
	wiretest.NoLeaks(t)
	const size = 600_000 // of both together less than what is kept on the way
	c := connected(t, wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		_, err := cmd.Stdout.Write(make([]byte, size))
		if err == nil {
			_, err = cmd.Stderr.Write(make([]byte, size))
		}
		return env.Result{ExitCode: 3}, err
	}), nil)
	release := make(chan struct{})
	var stdout, stderr int
	result, err := c.Exec(t.Context(), env.Command{
		Argv: []string{"x"},
		Stdout: writerFunc(func(p []byte) (int, error) {
			<-release
			stdout += len(p)
			return len(p), nil
		}),
		Stderr: writerFunc(func(p []byte) (int, error) {
			if stderr += len(p); stderr == size {
				close(release)
			}
			return len(p), nil
		}),
	})
	if err != nil || result.ExitCode != 3 || stdout != size || stderr != size {
		t.Errorf("Exec: %+v, %v, %d and %d bytes", result, err, stdout, stderr)
	}
}

// TestClientExecErrors checks that errors of the caller's streams and of the environment served
// come as local ones do.
func TestClientExecErrors(t *testing.T) {
	wiretest.NoLeaks(t)
	broken, full := errors.New("the reader broke"), errors.New("the writer is full")
	c := connected(t, wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		if cmd.Argv[0] == "missing" {
			return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: fs.ErrNotExist}
		}
		input, _ := io.ReadAll(cmd.Stdin)
		_, err := cmd.Stdout.Write(input)
		return env.Result{
			ExitCode: len(input), Signal: "SIGX", TimedOut: true, OutOfMemory: true,
			Detached: true, Elapsed: time.Hour,
		}, err
	}), nil)
	result, err := c.Exec(t.Context(), env.Command{
		Argv:   []string{"prog", "arg"},
		Stdin:  io.MultiReader(strings.NewReader("12345"), iotest.ErrReader(broken)),
		Stdout: writerFunc(func([]byte) (int, error) { return 0, full }),
	})
	if !errors.Is(err, broken) || !errors.Is(err, full) || !strings.Contains(err.Error(),
		"exec prog: stdout: the writer is full\nstdin: the reader broke") {
		t.Errorf("error %q", err)
	}
	want := env.Result{
		ExitCode: 5, Signal: "SIGX", TimedOut: true, OutOfMemory: true, Detached: true,
		Elapsed: time.Hour,
	}
	if diff := cmp.Diff(want, result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	var start *env.StartError
	_, err = c.Exec(t.Context(), env.Command{Argv: []string{"missing", "arg"}})
	if !errors.As(err, &start) || !errors.Is(err, fs.ErrNotExist) || !slices.Equal(start.Argv,
		[]string{"missing", "arg"}) {
		t.Errorf("error %v, want a *StartError with all of Argv", err)
	}
	_, err = c.Exec(t.Context(), env.Command{Argv: []string{"x", strings.Repeat("x",
		wire.MaxRequest)}})
	if !errors.As(err, &start) || !errors.Is(err, env.ErrTooLarge) {
		t.Errorf("error %.200v, want a *StartError with ErrTooLarge", err)
	}
}

// TestClientResize passes the sizes of a terminal on, also after the connection was lost.
func TestClientResize(t *testing.T) {
	wiretest.NoLeaks(t)
	got := make(chan env.TTYSize)
	c := connected(t, wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		got <- cmd.TTY.Size
		for range 2 {
			got <- <-cmd.TTY.Resize
		}
		return env.Result{}, nil
	}), nil)
	sizes := make(chan env.TTYSize)
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), env.Command{
			Argv: []string{"x"}, TTY: &env.TTY{Size: env.TTYSize{Columns: 1, Rows: 2}, Resize: sizes},
		})
		done <- err
	}()
	want := env.TTYSize{Columns: 1, Rows: 2}
	for i := range uint16(3) {
		if size := <-got; size != want {
			t.Errorf("size %v, want %v", size, want)
		}
		if i == 2 {
			break
		}
		sizes <- env.TTYSize{} // is ignored
		if i == 1 {
			c.lose()
		}
		want = env.TTYSize{Columns: 10 + i, Rows: 20}
		sizes <- want
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestCancelWhileDisconnected cancels a command while nobody can be got. Once the client is back
// the command is killed.
func TestCancelWhileDisconnected(t *testing.T) {
	wiretest.NoLeaks(t)
	started, killed := make(chan struct{}), make(chan struct{})
	var down atomic.Bool
	c := connected(t, wiretest.Exec(func(ctx context.Context, _ env.Command) (env.Result, error) {
		close(started)
		<-ctx.Done()
		close(killed)
		return env.Result{ExitCode: 137}, ctx.Err()
	}), dialsWhile(func() bool { return !down.Load() }))
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-started
		down.Store(true)
		c.lose()
		cancel(cause)
		time.AfterFunc(50*time.Millisecond, func() { down.Store(false) })
	}()
	result, err := c.Exec(ctx, env.Command{Argv: []string{"x"}})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || errors.Is(err,
		env.ErrUnknownOutcome) || result.ExitCode != 137 {
		t.Errorf("Exec: %+v, %v", result, err)
	}
	select {
	case <-killed:
	default:
		t.Error("the command still runs")
	}
}

// TestGone has the connection lost for good.
func TestGone(t *testing.T) {
	wiretest.NoLeaks(t)
	for name, change := range map[string]func(*Config){
		"no redial": func(cfg *Config) { cfg.Redial = 0 },
		"a dialer that returns ErrGone": func(cfg *Config) {
			dial, first := cfg.Dial, true
			cfg.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) {
				if !first {
					return nil, env.ErrGone
				}
				first = false
				return dial(ctx)
			}
		},
		"a dialer that fails until the time is up": func(cfg *Config) {
			dials := 0
			dialsWhile(func() bool { dials++; return dials == 1 })(cfg)
			cfg.Redial = 200 * time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			started, closed := make(chan struct{}), make(chan struct{})
			c := connected(t, &wiretest.Env{
				OnExec: func(context.Context, env.Command) (env.Result, error) {
					close(started)
					<-closed
					return env.Result{}, fs.ErrClosed
				},
				OnClose: func() error { close(closed); return nil },
			}, change)
			go func() {
				<-started
				c.lose()
			}()
			_, err := c.Exec(t.Context(), env.Command{Argv: []string{"x"}})
			if !errors.Is(err, env.ErrUnknownOutcome) || !errors.Is(err, env.ErrGone) {
				t.Errorf("Exec gives %v, want ErrUnknownOutcome and ErrGone", err)
			}
			for name, call := range calls {
				err := call(t.Context(), c.Client)
				if !errors.Is(err, env.ErrGone) || errors.Is(err, env.ErrUnknownOutcome) {
					t.Errorf("%s gives %v, want ErrGone", name, err)
				}
			}
			if err := c.Close(); !errors.Is(err, env.ErrGone) {
				t.Errorf("Close gives %v, want ErrGone", err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("the second Close gives %v", err)
			}
		})
	}
}

// TestStartIsSentOnce reads the Hello of each connection of a client.
func TestStartIsSentOnce(t *testing.T) {
	wiretest.NoLeaks(t)
	c := connected(t, &wiretest.Env{
		OnStat: func(context.Context, string) (fs.FileInfo, error) { return nil, fs.ErrNotExist },
	}, func(cfg *Config) { cfg.Start = json.RawMessage(`{"dir":"/x"}`) })
	c.lose()
	if _, err := c.Stat(t.Context(), "f"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hellos[1]; h.Session != c.session || h.StartSize != 0 || c.hellos[0].StartSize == 0 {
		t.Errorf("the second connection has session %q and %d bytes to start", h.Session,
			h.StartSize)
	}
}

// TestWriteOverLoss loses the connection while a write is under way.
func TestWriteOverLoss(t *testing.T) {
	wiretest.NoLeaks(t)
	for _, tc := range []struct {
		name   string
		size   int
		loseAt int // bytes given to the request
		want   error
		writes int32
	}{
		{name: "before anything", size: 1000, loseAt: 0, writes: 1},
		{name: "small, in the middle", size: 200_000, loseAt: 100_000, writes: 1},
		{name: "large, in the middle", size: 5 << 20, loseAt: 1 << 20, want: errIncomplete},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var writes atomic.Int32
			content := bytes.Repeat([]byte("content!"), tc.size/8)
			c := connected(t, &wiretest.Env{OnWriteFile: func(_ context.Context, _ string, r io.Reader,
				_ env.WriteOptions,
			) (env.Written, error) {
				data, err := io.ReadAll(r)
				if err != nil {
					return env.Written{}, err
				}
				if !bytes.Equal(data, content) {
					t.Errorf("%d bytes arrived, not those that were sent", len(data))
				}
				writes.Add(1)
				return env.Written{Size: int64(len(data))}, nil
			}}, nil)
			given, lost := 0, false
			source := bytes.NewReader(content)
			written, err := c.WriteFile(t.Context(), "f", readerFunc(func(p []byte) (int, error) {
				if !lost && given >= tc.loseAt {
					lost = true
					c.lose()
				}
				n, err := source.Read(p)
				given += n
				return n, err
			}), env.WriteOptions{})
			if !errors.Is(err, tc.want) || err == nil && written.Size != int64(len(content)) {
				t.Errorf("WriteFile: %+v, %v", written, err)
			}
			if got := writes.Load(); got != tc.writes {
				t.Errorf("%d writes, want %d", got, tc.writes)
			}
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestChangeOnce loses the connection when a change has happened and its answer has not come.
func TestChangeOnce(t *testing.T) {
	wiretest.NoLeaks(t)
	var c *pair
	var removes, writes atomic.Int32
	c = connected(t, &wiretest.Env{
		OnRemove: func(context.Context, string, env.RemoveOptions) error {
			removes.Add(1)
			c.lose()
			return nil
		},
		OnWriteFile: func(
			_ context.Context, name string, r io.Reader, _ env.WriteOptions,
		) (env.Written, error) {
			data, err := io.ReadAll(r)
			if writes.Add(1); writes.Load() == 1 {
				c.lose()
			}
			if name == "bad" {
				err = &fs.PathError{Op: "write", Path: name, Err: env.ErrNoSpace}
			}
			return env.Written{Size: int64(len(data)), Created: true}, err
		},
	}, nil)
	if err := c.Remove(t.Context(), "f", env.RemoveOptions{}); err != nil || removes.Load() != 1 {
		t.Errorf("Remove: %v, done %d times", err, removes.Load())
	}
	written, err := c.WriteFile(t.Context(), "f", strings.NewReader("12345"), env.WriteOptions{})
	if err != nil || written != (env.Written{Size: 5, Created: true}) || writes.Load() != 1 {
		t.Errorf("WriteFile: %+v, %v, done %d times", written, err, writes.Load())
	}
	writes.Store(0)
	if _, err := c.WriteFile(t.Context(), "bad", strings.NewReader("x"),
		env.WriteOptions{}); !errors.Is(err, env.ErrNoSpace) || writes.Load() != 1 {
		t.Errorf("WriteFile: %v, done %d times", err, writes.Load())
	}
}
