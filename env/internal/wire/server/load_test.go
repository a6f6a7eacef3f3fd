package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// TestStalledStreams: 16 answers that nobody reads, 16 standard inputs that no command reads, and
// all else goes on.
func TestStalledStreams(t *testing.T) {
	wiretest.NoLeaks(t)
	const stalled, upload = 16, 50 << 20
	content := bytes.Repeat(wiretest.Sequence(0, 1<<20), upload>>20)
	var ended sync.WaitGroup
	e := reader(fstest.MapFS{"small": {Data: []byte("x")}})
	e.OnExec = func(ctx context.Context, cmd env.Command) (env.Result, error) {
		if cmd.Argv[0] == "true" {
			return env.Result{}, nil
		}
		ended.Add(1)
		defer ended.Done()
		if cmd.Argv[0] == "sleep" {
			<-ctx.Done()
			return env.Result{}, context.Cause(ctx)
		}
		for {
			if _, err := cmd.Stdout.Write(content[:1<<20]); err != nil {
				return env.Result{}, err
			}
		}
	}
	e.OnWriteFile = func(
		_ context.Context, _ string, r io.Reader, _ env.WriteOptions,
	) (env.Written, error) {
		hash := sha256.New()
		n, err := io.Copy(hash, r)
		if got := [sha256.Size]byte(hash.Sum(nil)); got != sha256.Sum256(content) {
			return env.Written{}, errors.New("the content is not what was sent")
		}
		return env.Written{Size: n}, err
	}
	s := startServer(t, e, nil)
	c := s.connect("c")
	ctx, cancel := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	for i := range stalled {
		id := strconv.Itoa(i)
		response, err := c.send(ctx, "POST", "/exec/out"+id,
			jsonOf(wire.ExecRequest{Argv: []wire.Text{"yes"}, Stdout: true}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Close() }()
		requests.Go(func() {
			read(c.send(ctx, "POST", "/exec/in"+id, jsonOf(wire.ExecRequest{
				Argv:  []wire.Text{"sleep"},
				Stdin: true,
			})))
		})
		requests.Go(func() {
			read(c.send(ctx, "POST", "/exec/in"+id+"/stdin?offset=0",
				bytes.NewReader(content[:wire.Window])))
		})
	}
	full := func(c *command) bool {
		return c != nil && c.stdout != nil &&
			c.stdout.total() >= ringSize
	}
	for i := range stalled {
		wiretest.Eventually(t, "the output stalls", func() bool {
			c, _ := s.commands.get("out" + strconv.Itoa(i))
			return full(c)
		})
	}
	wiretest.Within(t, "everything else goes on", func() {
		a := c.call("PUT", "/file?name=x", bytes.NewReader(content), wire.ChangeHeader, "1").fine(t)
		if got := valueOf[env.Written](t, a); got.Size != upload {
			t.Errorf("%d bytes were uploaded", got.Size)
		}
		for i := range 20 {
			c.run("true"+strconv.Itoa(i), wire.ExecRequest{Argv: []wire.Text{"true"}}).fine(t)
			c.call("GET", "/file?name=small", nil).fine(t)
		}
	})
	for i := range stalled {
		running, _ := s.commands.get("out" + strconv.Itoa(i))
		if held := len(running.stdout.buf); held > ringSize {
			t.Errorf("a stalled command holds %d bytes", held)
		}
		c.call("DELETE", "/exec/in"+strconv.Itoa(i), nil).fine(t)
	}
	cancel()
	requests.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wiretest.Within(t, "commands with output that nobody takes end when the server closes", ended.Wait)
}

func TestManyCommandsAtOnce(t *testing.T) {
	wiretest.NoLeaks(t)
	const count = 200
	var running atomic.Int32
	all := make(chan struct{})
	e := wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		if running.Add(1) == count {
			close(all)
		}
		<-all // each of them runs before the first one ends
		data, err := io.ReadAll(cmd.Stdin)
		_, _ = fmt.Fprintf(cmd.Stdout, "%s %s", cmd.Argv[0], data)
		return env.Result{ExitCode: len(data)}, err
	})
	c := startServer(t, e, nil).connect("c")
	var group sync.WaitGroup
	for i := range count {
		id := strconv.Itoa(i)
		group.Go(func() {
			a := c.run(id, wire.ExecRequest{Argv: []wire.Text{wire.Text(id)}, Stdin: true, Stdout: true})
			if a.result == nil || string(a.stdout) != id+" in"+id || a.result.ExitCode != len("in"+id) {
				t.Errorf("command %s: %+v, %v", id, a, a.err)
			}
		})
		group.Go(func() {
			if a := c.call("POST", "/exec/"+id+"/stdin?end=1", strings.NewReader("in"+id)); a.end == nil {
				t.Errorf("standard input %s: %+v, %v", id, a, a.err)
			}
		})
	}
	wiretest.Within(t, "all commands end", group.Wait)
}

func TestPanics(t *testing.T) {
	wiretest.NoLeaks(t)
	e := &wiretest.Env{
		OnExec:   func(context.Context, env.Command) (env.Result, error) { panic("exec") },
		OnStat:   func(context.Context, string) (fs.FileInfo, error) { panic("stat") },
		OnRemove: func(context.Context, string, env.RemoveOptions) error { panic("remove") },
		OnWalk: func(_ context.Context, _ string, _ search.WalkOptions,
			fn func(search.Entry) error,
		) error {
			if err := fn(search.Entry{Name: "a"}); err != nil {
				return err
			}
			panic("walk")
		},
	}
	s := startServer(t, e, func(cfg *Config) { cfg.MaxBlocking = 1 })
	c := s.connect("c")
	for range 2 {
		if a := c.run("1", wire.ExecRequest{Argv: []wire.Text{"x"}}); a.result == nil ||
			!strings.Contains(a.result.Error.Err().Error(), "exec") {
			t.Errorf("exec: %+v", a)
		}
		for what, a := range map[string]*reading{
			"stat": c.call("GET", "/stat?name=x", nil), "walk": c.call("POST", "/walk",
				jsonOf(wire.WalkRequest{})),
			"remove": c.call("DELETE", "/file?name=x", nil, wire.ChangeHeader, "1"),
		} {
			if a.end == nil || a.end.Error == nil || !strings.Contains(a.end.Error.Err().Error(), what) {
				t.Errorf("%s: %+v, %v", what, a, a.err)
			}
		}
	}
	if got := valueOf[wire.ChangeOutcome](t, c.call("GET", "/op/1", nil)); !got.Known ||
		got.Outcome.Error == nil {
		t.Errorf("the outcome is %+v", got)
	}
}

// closing is an environment whose calls end when it is closed.
func closing() *wiretest.Env {
	closed := make(chan struct{})
	var once sync.Once
	wait := func(op, name string) error {
		<-closed
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrClosed}
	}
	return &wiretest.Env{
		OnExec: func(_ context.Context, cmd env.Command) (env.Result, error) {
			for {
				if _, err := cmd.Stdout.Write(make([]byte, 64<<10)); err != nil {
					return env.Result{ExitCode: 143}, fs.ErrClosed
				}
			}
		},
		OnStat: func(_ context.Context, name string) (fs.FileInfo, error) {
			return nil, wait("stat", name)
		},
		OnRemove: func(_ context.Context, name string, _ env.RemoveOptions) error {
			return wait("remove", name)
		},
		OnClose: func() error {
			once.Do(func() { close(closed) })
			return nil
		},
	}
}

func TestCloseEndsRequestsInProgress(t *testing.T) {
	wiretest.NoLeaks(t)
	e := closing()
	closeTwice := e.OnClose
	broken := errors.New("a process does not die")
	e.OnClose = func() error { return errors.Join(closeTwice(), broken) }
	s := New(Config{Open: func(context.Context, json.RawMessage) (env.Environment, error) {
		return e,
			nil
	}})
	serving := &serving{Server: s, t: t}
	c, other := serving.connect("c"), serving.connect("d")
	answers := make(chan *reading, 3)
	go func() { answers <- c.call("GET", "/stat?name=x", nil) }()
	go func() { answers <- c.call("DELETE", "/file?name=x", nil, wire.ChangeHeader, "1") }()
	go func() { answers <- other.call("GET", "/stat?name=x", nil) }()
	stalled, err := c.send(t.Context(), "POST", "/exec/1", jsonOf(wire.ExecRequest{Stdout: true}))
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Eventually(t, "the command waits for its reader", func() bool {
		running, _ := s.commands.get("1")
		return running != nil && running.stdout.total() >= ringSize
	})
	wiretest.Eventually(t, "the change has started", func() bool { return s.changes.get("1") != nil })
	a := c.call("POST", "/close", nil)
	if a.end == nil || a.end.Error.Err().Error() != broken.Error() {
		t.Errorf("close: %+v, %v", a, a.err)
	}
	for range 3 {
		a := <-answers
		if a.end == nil || !errors.Is(a.end.Error.Err(), fs.ErrClosed) {
			t.Errorf("a request in progress: %+v, %v", a, a.err)
		}
	}
	if a := read(stalled, nil); a.result == nil || !errors.Is(a.result.Error.Err(), fs.ErrClosed) ||
		int64(len(a.stdout)) != a.result.Stdout {
		t.Errorf("a command in progress: %v, %+v, %d bytes", a.err, a.result, len(a.stdout))
	}
	select {
	case <-s.Done():
		t.Error("the server is done while the client reads its answers")
	default:
	}
	_ = c.conn.Close()
	wiretest.Within(t, "the server is done when its client has gone", func() {
		<-s.Done()
		if err := <-other.result; err != nil {
			t.Error(err)
		}
		serving.serve.Wait()
	})
	_, welcome, _ := serving.greet(wire.Hello{Version: wire.Version, Client: "late"})
	if !errors.Is(welcome.Error.Err(), env.ErrGone) {
		t.Errorf("a late client gets %v", welcome.Error.Err())
	}
	if err := s.Close(); err == nil || !errors.Is(err, broken) {
		t.Errorf("close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
	serving.serve.Wait()
}

func TestCloseWhileOpening(t *testing.T) {
	wiretest.NoLeaks(t)
	opening, release := make(chan struct{}), make(chan struct{})
	var closed atomic.Int32
	s := &serving{t: t, Server: New(Config{Open: func(context.Context,
		json.RawMessage,
	) (env.Environment, error) {
		close(opening)
		<-release
		return &wiretest.Env{OnClose: func() error { closed.Add(1); return nil }}, nil
	}})}
	stream, result := s.stream()
	if _, err := io.WriteString(stream, `{"version":5,"client":"c"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	<-opening
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-result; !errors.Is(err, env.ErrGone) {
		t.Errorf("Serve: %v", err)
	}
	if closed.Load() != 1 {
		t.Errorf("the environment was closed %d times", closed.Load())
	}
}

func TestServeEnds(t *testing.T) {
	t.Run("with its context", func(t *testing.T) {
		wiretest.NoLeaks(t)
		s := startServer(t, closing(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		near, far := wiretest.NewPipe()
		result := make(chan error, 1)
		go func() { result <- s.Serve(ctx, far) }()
		if _, err := io.WriteString(near, `{"version":5,"client":"c"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.NewConn(near).ReadLine(wire.MaxWelcome); err != nil {
			t.Fatal(err)
		}
		cancel()
		wiretest.Within(t, "it ends", func() {
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("when the client is silent for too long", func(t *testing.T) {
		wiretest.NoLeaks(t)
		s := startServer(t, &wiretest.Env{}, func(cfg *Config) { cfg.PingEvery = 30 * time.Millisecond })
		c, welcome, result := s.greet(wire.Hello{Version: wire.Version, Client: "c"})
		if welcome.Error != nil {
			t.Fatal(welcome.Error.Err())
		}
		// The preface and empty settings, then nothing, as if the line were dead.
		preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		if _, err := io.WriteString(c, preface); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
		wiretest.Within(t, "it ends", func() {
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
		_ = c.Close()
	})
	t.Run("when the client speaks something else", func(t *testing.T) {
		wiretest.NoLeaks(t)
		s := startServer(t, &wiretest.Env{}, nil)
		c, _, result := s.greet(wire.Hello{Version: wire.Version, Client: "c"})
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		wiretest.Within(t, "it ends", func() {
			_, _ = io.Copy(io.Discard, c)
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	})
}

// killable is an environment that can kill.
type killable struct {
	*wiretest.Env
	killed int
}

func (k *killable) Kill() error {
	k.killed++
	return fs.ErrPermission
}

func TestKill(t *testing.T) {
	wiretest.NoLeaks(t)
	e := &killable{Env: &wiretest.Env{}}
	c := startServer(t, e, nil).connect("c")
	if a := c.call("POST", "/kill", nil); a.end == nil || !errors.Is(a.end.Error.Err(),
		fs.ErrPermission) || e.killed != 1 {
		t.Errorf("%+v", a)
	}
	c = startServer(t, &wiretest.Env{}, nil).connect("c")
	if a := c.call("POST", "/kill", nil); a.end == nil || !errors.Is(a.end.Error.Err(),
		errors.ErrUnsupported) {
		t.Errorf("an environment that cannot kill: %+v", a)
	}
}
