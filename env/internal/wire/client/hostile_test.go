package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// hostile is a server with a valid welcome and the responses of a test.
type hostile struct {
	session string // another one with each connection if empty
	answer  http.HandlerFunc
	dials   int
	ended   chan struct{} // closed when a connection has ended
}

// dial makes a stream to it.
func (h *hostile) dial(context.Context) (io.ReadWriteCloser, error) {
	near, far := net.Pipe()
	c := wire.NewConn(far)
	ended := make(chan struct{})
	h.ended = ended
	h.dials++
	session := cmp.Or(h.session, strconv.Itoa(h.dials))
	go func() {
		defer close(ended)
		defer func() { _ = c.Close() }() // it may have ended already
		if _, err := c.ReadLine(wire.MaxHello); err != nil {
			return
		}
		if _, err := c.Write(goodWelcome(session)); err != nil {
			return
		}
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{
			Handler: h.answer, Protocols: &protocols, ErrorLog: log.New(io.Discard, "", 0),
			HTTP2: &http.HTTP2Config{
				MaxReceiveBufferPerStream:     wire.Window,
				MaxReceiveBufferPerConnection: wire.ReceiveBuffer,
			},
		}
		l := wire.NewListener(c)
		go func() {
			<-c.Done
			_ = l.Close()
		}()
		_ = server.Serve(l)
	}()
	return near, nil
}

// greets returns a dialer of servers that welcome a client and then do what speak does.
func greets(speak func(c *wire.Conn)) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		client, server := net.Pipe()
		go func() {
			c := wire.NewConn(server)
			if _, err := c.ReadLine(wire.MaxHello); err == nil {
				_, _ = c.Write(goodWelcome("s"))
				speak(c)
			}
		}()
		return client, nil
	}
}

func goodWelcome(session string) []byte {
	line, _ := json.Marshal(wire.Welcome{
		Version: wire.Version, Session: session,
		Info: &wire.Info{Backend: "hostile", OS: "linux", WorkDir: "/"},
	})
	return append(line, '\n')
}

// impatient returns a client of a hostile server, which waits for little and believes little.
func impatient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.limits = limits{
		response: 200 * time.Millisecond, close: time.Second, entries: 10_000,
		listing: 1 << 20,
	}
	t.Cleanup(func() { _ = c.Close() }) // what a hostile server makes of it does not matter
	return c
}

// body answers every request with some bytes.
func body(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
}

func frame(kind wire.FrameKind, payload string) []byte {
	return wire.AppendFrame(nil, kind, []byte(payload))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// endless answers with one frame again and again.
func endless(first []byte, again []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write(first); err != nil {
			return
		}
		again := bytes.Repeat(again, max(1, 32<<10/len(again)))
		for r.Context().Err() == nil {
			if _, err := w.Write(again); err != nil {
				return
			}
		}
	}
}

// calls are one call of each kind.
var calls = map[string]func(context.Context, *Client) error{
	"exec": func(ctx context.Context, c *Client) error {
		_, err := c.Exec(ctx, env.Command{
			Argv: []string{"x"}, Stdin: strings.NewReader("input"), Stdout: io.Discard,
			Stderr: new(bytes.Buffer),
		})
		return err
	},
	"bare": func(ctx context.Context, c *Client) error {
		_, err := c.Exec(ctx, env.Command{Argv: []string{"x"}})
		return err
	},
	"stat": func(ctx context.Context, c *Client) error {
		_, err := c.Stat(ctx, "f")
		return err
	},
	"open": func(ctx context.Context, c *Client) error {
		_, err := env.ReadFile(ctx, c, "f", 1<<20)
		return err
	},
	"readdir": func(ctx context.Context, c *Client) error {
		_, err := c.ReadDir(ctx, "d")
		return err
	},
	"write": func(ctx context.Context, c *Client) error {
		_, err := c.WriteFile(ctx, "f", strings.NewReader("content"), env.WriteOptions{})
		return err
	},
	"remove": func(ctx context.Context, c *Client) error {
		return c.Remove(ctx, "f", env.RemoveOptions{})
	},
	"copyin": func(ctx context.Context, c *Client) error {
		return c.CopyIn(ctx, "d", io.MultiReader(strings.NewReader("content")))
	},
	"copyout": func(ctx context.Context, c *Client) error {
		r, err := c.CopyOut(ctx, "d")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, io.LimitReader(r, 64<<20))
		return errors.Join(err, r.Close())
	},
	"walk": func(ctx context.Context, c *Client) error {
		return c.Walk(ctx, "d", search.WalkOptions{}, func(search.Entry) error { return nil })
	},
	"grep": func(ctx context.Context, c *Client) error {
		_, err := c.Grep(ctx, search.GrepOptions{Pattern: "x"},
			func(search.GrepMatch) error { return nil })
		return err
	},
	"glob": func(ctx context.Context, c *Client) error {
		_, err := c.Glob(ctx, search.GlobOptions{Pattern: "x"})
		return err
	},
	"kill": func(_ context.Context, c *Client) error { return c.Kill() },
}

// TestHostileAnswers has a server violate the protocol. The client reports it, drops the connection
// and sends nothing more.
func TestHostileAnswers(t *testing.T) {
	wiretest.NoLeaks(t)
	fine := frame(wire.FrameEnd, "{}")
	description := frame(wire.FrameRecords, `[{"name":"f","mode":420}]`)
	result := func(stdout int) []byte {
		return frame(wire.FrameResult, fmt.Sprintf(`{"exit_code":0,"stdout":%d}`, stdout))
	}
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		calls  string // all of them if empty
	}{
		{name: "garbage", answer: body([]byte("garbage garbage garbage"))},
		{name: "a huge frame", answer: body([]byte{byte(wire.FrameEnd), 0xff, 0xff, 0xff, 0xff})},
		{name: "a frame of kind 0", answer: body(frame(0, "{}"))},
		{name: "a frame of kind 7", answer: body(frame(7, "{}"))},
		{name: "malformed JSON at the end", answer: body(frame(wire.FrameEnd, "{"))},
		{name: "an end of another type", answer: body(frame(wire.FrameEnd, `["x"]`))},
		{name: "data behind the end", answer: body(join(frame(wire.FrameEnd, `{"error":{"text":"x"}}`),
			[]byte("x")))},
		{name: "a status", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}},
		{name: "a redirect", answer: http.RedirectHandler("http://example.com/",
			http.StatusFound).ServeHTTP},
		{
			name: "a result without a command", answer: body(result(0)),
			calls: "stat open readdir write copyout walk grep glob kill",
		},
		{name: "a command without a result", answer: body(fine), calls: "exec"},
		{
			name: "output without a writer", answer: body(join(frame(wire.FrameStdout, "x"), result(1))),
			calls: "bare",
		},
		{name: "output that did not come", answer: body(result(1)), calls: "exec"},
		{
			name: "more output than announced", answer: body(join(frame(wire.FrameStdout, "xx"), result(1))),
			calls: "exec",
		},
		{name: "records instead of output", answer: body(join(description, result(0))), calls: "exec"},
		{name: "data behind a result", answer: body(join(result(0), fine)), calls: "exec"},
		{
			name: "a result of another type", answer: body(frame(wire.FrameResult, `{"exit_code":"x"}`)),
			calls: "exec",
		},
		{name: "no value", answer: body(fine), calls: "stat write"},
		{
			name: "a value of another type", answer: body(frame(wire.FrameEnd, `{"value":"x"}`)),
			calls: "stat write",
		},
		{name: "a file without a description", answer: body(fine), calls: "open"},
		{name: "two descriptions of a file", answer: body(join(frame(wire.FrameRecords,
			`[{"name":"f"},{"name":"g"}]`), fine)), calls: "open"},
		{name: "content before a description", answer: body(join(frame(wire.FrameData, "x"), description,
			fine)), calls: "open"},
		{name: "a second description", answer: body(join(description, description, fine)), calls: "open"},
		{
			name: "records among content", answer: body(join(frame(wire.FrameData, "x"), description, fine)),
			calls: "copyout",
		},
		{
			name: "data in a list", answer: body(join(frame(wire.FrameData, "x"), fine)),
			calls: "readdir walk grep glob",
		},
		{
			name: "malformed records", answer: body(join(frame(wire.FrameRecords, "[{]"), fine)),
			calls: "readdir walk grep glob open",
		},
		{
			name: "an entry above", answer: body(join(frame(wire.FrameRecords, `[{"name":"../x"}]`), fine)),
			calls: "readdir",
		},
		{name: "an entry without a name", answer: body(join(frame(wire.FrameRecords, `[{"name":""}]`),
			fine)), calls: "readdir"},
		{name: "an entry with a NUL", answer: body(join(frame(wire.FrameRecords, `[{"name":"a\u0000b"}]`),
			fine)), calls: "readdir"},
		{
			name: "an endless list", answer: endless(nil, frame(wire.FrameRecords, `[{"name":"x"}]`)),
			calls: "readdir glob",
		},
		{name: "an endless list of long names", answer: endless(nil, frame(wire.FrameRecords,
			`[{"name":"`+strings.Repeat("x", 100_000)+`"}]`)), calls: "readdir glob"},
		{name: "a stat of grep", answer: body(frame(wire.FrameEnd, `{"value":[]}`)), calls: "grep"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for name, call := range calls {
				if tc.calls != "" && !strings.Contains(" "+tc.calls+" ", " "+name+" ") {
					continue
				}
				h := &hostile{session: "s", answer: tc.answer}
				c := impatient(t, Config{Dial: h.dial, Redial: time.Minute})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				err := call(ctx, c)
				if !errors.Is(err, env.ErrProtocol) {
					t.Errorf("%s: error %v, want ErrProtocol", name, err)
				}
				if name == "exec" && !errors.Is(err, env.ErrUnknownOutcome) {
					t.Errorf("%s: error %v, want ErrUnknownOutcome as well", name, err)
				}
				select {
				case <-h.ended:
				case <-ctx.Done():
					t.Errorf("%s: the connection is still open", name)
				}
				for again, call := range calls {
					if err := call(ctx, c); !errors.Is(err, env.ErrProtocol) {
						t.Errorf("%s after %s: error %v, want ErrProtocol", again, name, err)
					}
				}
				cancel()
				if err := c.Close(); !errors.Is(err, env.ErrProtocol) {
					t.Errorf("%s: Close gives %v, want ErrProtocol", name, err)
				}
				if _, err := c.Stat(t.Context(), "f"); !errors.Is(err, fs.ErrClosed) {
					t.Errorf("Stat after Close gives %v", err)
				}
			}
		})
	}
}

// atOnce calls f for all kinds of calls at the same time, for those that wait.
func atOnce(f func(name string, call func(context.Context, *Client) error)) {
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() { f(name, call) })
	}
	all.Wait()
}

// TestHostileEarlyEnds has a server end its answers early. A client may connect again, but not for
// ever.
func TestHostileEarlyEnds(t *testing.T) {
	wiretest.NoLeaks(t)
	for name, answer := range map[string]http.HandlerFunc{
		"nothing":     body(nil),
		"half a head": body([]byte{byte(wire.FrameEnd), 0}),
		"half a body": body(frame(wire.FrameEnd, "{}")[:6]),
		"a reset":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			atOnce(func(call string, f func(context.Context, *Client) error) {
				for redial, want := range map[time.Duration]error{
					0:           env.ErrGone,
					time.Minute: env.ErrProtocol,
				} {
					if call == "kill" && redial > 0 {
						continue // its timeout is shorter
					}
					h := &hostile{session: "s", answer: answer}
					c := impatient(t, Config{Dial: h.dial, Redial: redial})
					if err := f(t.Context(), c); !errors.Is(err, want) {
						t.Errorf("%s, redial %v: error %v, want %v", call, redial, err, want)
					}
				}
			})
		})
	}
}

// TestHostileSilence has a server that answers nothing. The context ends every call.
func TestHostileSilence(t *testing.T) {
	wiretest.NoLeaks(t)
	atOnce(func(name string, call func(context.Context, *Client) error) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		h := &hostile{session: "s", answer: func(_ http.ResponseWriter, r *http.Request) {
			// one that was not sent would have another outcome
			time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
			<-r.Context().Done()
		}}
		c := impatient(t, Config{Dial: h.dial, Redial: time.Minute})
		err := call(ctx, c)
		want := context.Canceled
		if name == "kill" { // which has its own timeout
			want = context.DeadlineExceeded
		}
		if !errors.Is(err, want) || name != "kill" && !errors.Is(err, cause) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
		if (name == "exec" || name == "bare") && !errors.Is(err, env.ErrUnknownOutcome) {
			t.Errorf("%s: error %v, want ErrUnknownOutcome as well", name, err)
		}
		if err := c.Close(); !errors.Is(err, env.ErrGone) {
			t.Errorf("%s: Close gives %v, want ErrGone", name, err)
		}
	})
}

// TestHostileFloods has a server that never stops sending. Memory stays as it is, and the context
// ends the call.
func TestHostileFloods(t *testing.T) {
	description := frame(wire.FrameRecords, `[{"name":"f","mode":420}]`)
	for name, answer := range map[string]http.HandlerFunc{
		"exec":    endless(nil, frame(wire.FrameStdout, strings.Repeat("x", 30_000))),
		"bare":    endless(nil, frame(wire.FrameStdout, "")),
		"open":    endless(description, frame(wire.FrameData, strings.Repeat("x", 30_000))),
		"copyout": endless(nil, frame(wire.FrameData, strings.Repeat("x", 30_000))),
		"walk":    endless(nil, frame(wire.FrameRecords, `[{"name":"x"}]`)),
		"grep":    endless(nil, frame(wire.FrameRecords, `[{"name":"x","text":"x"}]`)),
		"stat":    endless(nil, frame(wire.FrameEnd, "{}")),
	} {
		t.Run(name, func(t *testing.T) {
			h := &hostile{session: "s", answer: answer}
			c := impatient(t, Config{Dial: h.dial})
			before := heapInUse()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := calls[name](ctx, c)
			if err == nil && name != "copyout" {
				t.Error("no error")
			}
			if after := heapInUse(); after > before+16<<20 {
				t.Errorf("the heap grew from %d to %d MiB", before>>20, after>>20)
			}
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestHostileWelcome has a server send something else than a welcome.
func TestHostileWelcome(t *testing.T) {
	wiretest.NoLeaks(t)
	good := string(goodWelcome("s"))
	for name, tc := range map[string]struct {
		sent string
		want error
	}{
		"nothing":        {"", io.ErrUnexpectedEOF},
		"half a welcome": {good[:20], io.ErrUnexpectedEOF},
		"text":           {"sh: sandboxd: not found\n", env.ErrProtocol},
		"no line":        {strings.Repeat("x", wire.MaxWelcome+10), env.ErrProtocol},
		"a huge one": {
			`{"version":5,"session":"` + strings.Repeat("x", wire.MaxWelcome) + "\"}\n",
			env.ErrProtocol,
		},
		"another version": {strings.Replace(good, `"version":5`, `"version":99`, 1), env.ErrProtocol},
		"no session":      {strings.Replace(good, `"session":"s"`, `"session":""`, 1), env.ErrProtocol},
		"a long session": {strings.Replace(good, `"session":"s"`, `"session":"`+strings.Repeat("s",
			wire.MaxID+1)+`"`, 1), env.ErrProtocol},
		"no info": {`{"version":5,"session":"s"}` + "\n", env.ErrProtocol},
		"a refusal": {
			`{"version":5,"error":{"text":"no","is":["permission"]}}` + "\n",
			fs.ErrPermission,
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			go func() {
				_, _ = io.WriteString(far, tc.sent)
				_ = far.Close()
			}()
			c, err := Open(t.Context(), Config{
				Redial: time.Minute,
				Dial:   func(context.Context) (io.ReadWriteCloser, error) { return near, nil },
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("Open gives %v, want %v", err, tc.want)
			}
			if c != nil {
				t.Error("Open gives a client")
			}
			if _, err := near.Write([]byte("x")); err == nil {
				t.Error("the stream is still open")
			}
		})
	}
}

// TestHostileHandshakeSilence has a server that sends nothing, or reads nothing.
func TestHostileHandshakeSilence(t *testing.T) {
	wiretest.NoLeaks(t)
	for name, server := range map[string]func(net.Conn){
		"nothing sent": func(net.Conn) {},
		"nothing read": func(c net.Conn) { _, _ = c.Write(goodWelcome("s")) },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = far.Close() }() // never fails
			go server(far)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := Open(ctx, Config{Dial: func(context.Context) (io.ReadWriteCloser, error) {
				return near, nil
			}})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Open gives %v, want the end of the context", err)
			}
		})
	}
}

// TestAnotherSession has another server replace the first.
func TestAnotherSession(t *testing.T) {
	wiretest.NoLeaks(t)
	h := &hostile{answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}
	c := impatient(t, Config{Dial: h.dial, Redial: time.Minute})
	err := calls["exec"](t.Context(), c)
	if !errors.Is(err, env.ErrUnknownOutcome) || !errors.Is(err, env.ErrGone) {
		t.Errorf("Exec gives %v, want ErrUnknownOutcome and ErrGone", err)
	}
	var start *env.StartError
	if err := calls["exec"](t.Context(), c); !errors.As(err, &start) || !errors.Is(err, env.ErrGone) {
		t.Errorf("the next Exec gives %v, want a *StartError with ErrGone", err)
	}
	if _, err := c.Stat(t.Context(), "f"); !errors.Is(err, env.ErrGone) {
		t.Errorf("Stat gives %v, want ErrGone", err)
	}
}

// TestHostileStandstill has a server that lets in and then takes nothing. The context ends every
// call.
func TestHostileStandstill(t *testing.T) {
	wiretest.NoLeaks(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	setting := func(id string) string {
		return "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00" + id + "\x00\x00\x00\x00"
	}
	for name, tc := range map[string]struct {
		settings string
		reads    int64
	}{
		"no streams": {setting("\x03"), math.MaxInt64}, // MAX_CONCURRENT_STREAMS is 0
		"no window":  {setting("\x04"), math.MaxInt64}, // INITIAL_WINDOW_SIZE is 0
		"no reading": {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", 200},
	} {
		wg.Go(func() {
			atOnce(func(call string, f func(context.Context, *Client) error) {
				c := impatient(t, Config{Dial: greets(func(c *wire.Conn) {
					go func() { _, _ = io.WriteString(c, tc.settings) }()
					_, _ = io.CopyN(io.Discard, c, tc.reads)
				})})
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if err := f(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %s: error %v, want the end of the context", name, call, err)
				}
				if err := c.Close(); !errors.Is(err, env.ErrGone) {
					t.Errorf("%s: %s: Close gives %v, want ErrGone", name, call, err)
				}
			})
		})
	}
}
