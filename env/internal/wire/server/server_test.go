package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// serving is a server that serves pipes to a test.
type serving struct {
	*Server
	t     *testing.T
	serve sync.WaitGroup
}

// startServer serves e, and closes at the end of the test.
func startServer(t *testing.T, e env.Environment, change func(*Config)) *serving {
	t.Helper()
	cfg := Config{Open: func(context.Context, json.RawMessage) (env.Environment, error) {
		return e,
			nil
	}}
	if change != nil {
		change(&cfg)
	}
	s := &serving{Server: New(cfg), t: t}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		s.serve.Wait()
	})
	return s
}

// stream returns the client's end of a stream that is served, and where Serve's error goes.
func (s *serving) stream() (net.Conn, <-chan error) {
	near, far := net.Pipe()
	result := make(chan error, 1)
	s.serve.Add(1)
	go func() {
		defer s.serve.Done()
		result <- s.Serve(context.Background(), far)
	}()
	return near, result
}

// raw is a client of single requests.
type raw struct {
	t      *testing.T
	conn   *wire.Conn
	http   *http.ClientConn
	result <-chan error
}

// greet sends a Hello and returns the Welcome.
func (s *serving) greet(hello wire.Hello) (*wire.Conn, *wire.Welcome, <-chan error) {
	s.t.Helper()
	stream, result := s.stream()
	c := wire.NewConn(stream)
	sent, err := hello.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Write(sent); err != nil {
		s.t.Fatal(err)
	}
	line, err := c.ReadLine(wire.MaxWelcome)
	if err != nil {
		s.t.Fatal(err)
	}
	var welcome wire.Welcome
	if err := json.Unmarshal(line, &welcome); err != nil {
		s.t.Fatal(err)
	}
	return c, &welcome, result
}

// connect connects as the client of the given id.
func (s *serving) connect(id string) *raw {
	s.t.Helper()
	c, welcome, result := s.greet(wire.Hello{Version: wire.Version, Client: id})
	if welcome.Error != nil {
		s.t.Fatal(welcome.Error.Err())
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return c, nil },
		Protocols:          &protocols,
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize: wire.ReadFrame, MaxReceiveBufferPerStream: wire.Window,
			MaxReceiveBufferPerConnection: wire.ReceiveBuffer,
		},
	}
	client, err := transport.NewClientConn(s.t.Context(), "http", "server:80")
	if err != nil {
		s.t.Fatal(err)
	}
	r := &raw{t: s.t, conn: c, http: client, result: result}
	s.t.Cleanup(func() { _ = c.Close() })
	return r
}

// wait waits until the server has done with the connection.
func (r *raw) wait() {
	r.t.Helper()
	if err := <-r.result; err != nil {
		r.t.Error(err)
	}
}

// incoming is an answer that comes in. Its Close cuts it off.
type incoming struct {
	io.ReadCloser
	status int
}

// send sends a request and returns the start of the answer.
func (r *raw) send(
	ctx context.Context, method, path string, body io.Reader, header ...string,
) (*incoming, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://server"+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := r.http.RoundTrip(request) //nolint:bodyclose // incoming closes it
	if err != nil {
		return nil, err
	}
	return &incoming{response.Body, response.StatusCode}, nil
}

// reading is an answer that has been read.
type reading struct {
	status  int
	stdout  []byte
	stderr  []byte
	data    []byte
	records []json.RawMessage
	result  *wire.ExecResult
	end     *wire.EndRecord
	err     error // io.ErrUnexpectedEOF, or the connection's, if it was cut
}

// read reads an answer to its end.
func read(response *incoming, err error) *reading {
	a := &reading{}
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = response.Close() }()
	if a.status = response.status; a.status != http.StatusOK {
		return a
	}
	frames := &wire.FrameReader{R: response}
	for {
		kind, payload, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.err = err
			return a
		}
		switch kind {
		case wire.FrameStdout:
			a.stdout = append(a.stdout, payload...)
		case wire.FrameStderr:
			a.stderr = append(a.stderr, payload...)
		case wire.FrameData:
			a.data = append(a.data, payload...)
		case wire.FrameRecords:
			var list []json.RawMessage
			a.err = json.Unmarshal(payload, &list)
			a.records = append(a.records, list...)
		case wire.FrameResult:
			a.result = &wire.ExecResult{}
			a.err = json.Unmarshal(payload, a.result)
		case wire.FrameEnd:
			a.end = &wire.EndRecord{}
			a.err = json.Unmarshal(payload, a.end)
		}
		if a.err != nil {
			return a
		}
	}
}

// call sends a request and reads the answer.
func (r *raw) call(method, path string, body io.Reader, header ...string) *reading {
	return read(r.send(r.t.Context(), method, path, body, header...))
}

func jsonOf(v any) io.Reader {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return bytes.NewReader(data)
}

// run runs a command.
func (r *raw) run(id string, request wire.ExecRequest) *reading {
	return r.call("POST", "/exec/"+id, jsonOf(request))
}

// fine fails the test unless the answer has ended without an error. It returns it.
func (a *reading) fine(t *testing.T) *reading {
	t.Helper()
	switch {
	case a.err != nil:
		t.Fatal(a.err)
	case a.status != http.StatusOK:
		t.Fatalf("status %d", a.status)
	case a.end == nil && a.result == nil:
		t.Fatal("no last frame")
	case a.end != nil && a.end.Error != nil:
		t.Fatal(a.end.Error.Err())
	case a.result != nil && a.result.Error != nil:
		t.Fatal(a.result.Error.Err())
	}
	return a
}

func query1(name string) string { return "?name=" + url.QueryEscape(name) }

func TestHandshakeRefusals(t *testing.T) {
	token := func(c *Config) {
		c.Authorize = func(h wire.Hello) error {
			if h.Token != "secret" {
				return errors.New("the token is wrong: secret expected")
			}
			return nil
		}
	}
	hello := func(h wire.Hello) string {
		line, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return string(line) + "\n"
	}
	for _, c := range []struct {
		name, sends string
		is          error  // of the welcome
		text        string // in the welcome's error
	}{
		{name: "not JSON", sends: "GET / HTTP/1.1\n", text: "malformed"},
		{name: "another type", sends: "[]\n", text: "malformed"},
		{
			name: "another version", sends: hello(wire.Hello{Version: 99, Token: "secret", Client: "c"}),
			text: "version 99",
		},
		{
			name: "wrong token", sends: hello(wire.Hello{Version: wire.Version, Token: "x", Client: "c"}),
			is: fs.ErrPermission, text: "permission denied",
		},
		{
			name: "no token", sends: hello(wire.Hello{Version: wire.Version, Client: "c"}),
			is: fs.ErrPermission, text: "permission denied",
		},
		{
			name: "no client", sends: hello(wire.Hello{Version: wire.Version, Token: "secret"}),
			is: fs.ErrInvalid, text: "client id",
		},
		{
			name:  "too much to open",
			sends: `{"version":5,"token":"secret","client":"c","start_size":4194305}` + "\n",
			is:    env.ErrTooLarge, text: "4194305 bytes",
		},
		{
			name:  "less than nothing to open",
			sends: `{"version":5,"token":"secret","client":"c","start_size":-1}` + "\n",
			is:    env.ErrTooLarge, text: "-1 bytes",
		},
		{
			name:  "a start without a token",
			sends: `{"version":5,"token":"x","client":"c","start_size":1000}` + "\n",
			is:    fs.ErrPermission, text: "permission denied",
		},
		{name: "another session", sends: hello(wire.Hello{
			Version: wire.Version, Token: "secret",
			Client: "c", Session: "old",
		}), is: env.ErrGone, text: "another session"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			s := startServer(t, &wiretest.Env{}, token)
			stream, result := s.stream()
			if _, err := io.WriteString(stream, c.sends); err != nil {
				t.Fatal(err)
			}
			sent, err := io.ReadAll(stream)
			if err != nil {
				t.Fatal(err)
			}
			var welcome wire.Welcome
			if err := json.Unmarshal(sent, &welcome); err != nil {
				t.Fatalf("%q: %v", sent, err)
			}
			got := welcome.Error.Err()
			if got == nil || !strings.Contains(got.Error(), c.text) {
				t.Errorf("the error is %v, want %q in it", got, c.text)
			}
			if c.is != nil && !errors.Is(got, c.is) {
				t.Errorf("the error is %v, which is not %v", got, c.is)
			}
			if welcome.Info != nil || bytes.Contains(sent, []byte("secret")) {
				t.Errorf("the welcome holds too much: %s", sent)
			}
			if err := <-result; err == nil {
				t.Error("Serve gives no error")
			}
		})
	}
}

func TestHandshakeTooLong(t *testing.T) {
	wiretest.NoLeaks(t)
	s := startServer(t, &wiretest.Env{}, nil)
	stream, result := s.stream()
	go func() {
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := stream.Write(chunk); err != nil {
				return // the server has hung up
			}
		}
	}()
	line, err := wire.NewConn(stream).ReadLine(wire.MaxWelcome)
	if err != nil || !bytes.Contains(line, []byte("too long")) {
		t.Errorf("the welcome is %q, %v", line, err)
	}
	if err := <-result; !errors.Is(err, wire.ErrLineTooLong) {
		t.Errorf("Serve: %v", err)
	}
}

func TestHandshakeSilence(t *testing.T) {
	for _, c := range []struct {
		name, sends string
		wait        time.Duration
	}{
		{"nothing", "", 50 * time.Millisecond},
		{"half a line", `{"version":5`, 50 * time.Millisecond},
		{
			"half of what to open", `{"version":5,"client":"c","start_size":3}` + "\n{}",
			50 * time.Millisecond,
		},
		// the hello has to come in time
		{"nothing after the hello", `{"version":5,"client":"c"}` + "\n", 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			counts := make(chan int, 10)
			s := startServer(t, &wiretest.Env{}, func(cfg *Config) {
				cfg.HandshakeTime = c.wait
				cfg.Connected = func(n int) { counts <- n }
			})
			stream, result := s.stream()
			go func() { _, _ = io.WriteString(stream, c.sends) }()
			wiretest.Within(t, "the server hangs up", func() {
				_, _ = io.ReadAll(stream)
				if err := <-result; (err == nil) != strings.HasSuffix(c.sends, "}\n") {
					t.Errorf("Serve: %v", err)
				}
			})
			if len(counts) > 0 && (<-counts != 1 || <-counts != 0) {
				t.Error("the count of clients is wrong")
			}
		})
	}
}

func TestOpenFailsThenWorks(t *testing.T) {
	wiretest.NoLeaks(t)
	tries := 0
	s := startServer(t, nil, func(c *Config) {
		c.Open = func(_ context.Context, start json.RawMessage) (env.Environment, error) {
			if tries++; tries == 1 {
				return nil, &fs.PathError{Op: "stat", Path: "/nowhere", Err: fs.ErrNotExist}
			}
			if string(start) != `{"dir":"x"}` {
				return nil, fmt.Errorf("start is %s", start)
			}
			return &wiretest.Env{}, nil
		}
	})
	_, welcome, _ := s.greet(wire.Hello{
		Version: wire.Version, Client: "c",
		Start: json.RawMessage(`{"dir":"y"}`),
	})
	var path *fs.PathError
	if err := welcome.Error.Err(); !errors.As(err, &path) || path.Path != "/nowhere" || !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("the first error is %v", err)
	}
	for range 2 {
		c, welcome, _ := s.greet(wire.Hello{
			Version: wire.Version, Client: "c",
			Start: json.RawMessage(`{"dir":"x"}`),
		})
		if welcome.Error != nil || welcome.Session == "" || string(welcome.Info.Backend) != "fake" {
			t.Errorf("welcome is %+v", welcome)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if tries != 2 {
		t.Errorf("opened %d times", tries)
	}
}

func TestConnectedAndReplacement(t *testing.T) {
	wiretest.NoLeaks(t)
	var mu sync.Mutex
	var counts []int
	s := startServer(t, &wiretest.Env{}, func(c *Config) {
		c.Connected = func(n int) {
			mu.Lock()
			defer mu.Unlock()
			counts = append(counts, n)
		}
	})
	first := s.connect("a")
	first.call("GET", "/stat?name=x", nil)
	other := s.connect("b")
	second := s.connect("a")
	wiretest.Within(t, "the first connection ends", first.wait)
	if got := second.call("GET", "/stat?name=x", nil); got.end == nil {
		t.Errorf("the second connection does not answer: %+v", got)
	}
	if got := other.call("GET", "/stat?name=x", nil); got.end == nil {
		t.Errorf("another client was cut: %+v", got)
	}
	_ = second.conn.Close()
	_ = other.conn.Close()
	second.wait()
	other.wait()
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(counts) != "[1 2 1 0]" {
		t.Errorf("counts are %v", counts)
	}
}
