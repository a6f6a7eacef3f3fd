package clienttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// patience ends a wait that would not end, so that the case fails and the others run.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// pipes is a listener whose connections are pipes in memory, so that a case with long waits runs in
// the fake time of testing/synctest.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accept:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes.invalid", Net: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accept <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// inFakeTime runs a test of one reply in fake time. The client gets the configuration, and timeout
// as the limit of its HTTP client.
func (w Wire) inFakeTime(
	t *testing.T, reply llmtest.Reply, cfg Config, timeout time.Duration,
	test func(*testing.T, llm.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
		srv := llmtest.Serve(l, llmtest.Sequence(reply))
		transport := &http.Transport{DialContext: l.dial}
		defer transport.CloseIdleConnections()
		defer srv.Close()
		cfg.APIKey, cfg.BaseURL = srv.Key(), srv.Root()+w.Base
		cfg.HTTPClient = &http.Client{Transport: transport, Timeout: timeout}
		test(t, w.Client(t, cfg))
	})
}

// A client stops waiting for a silent server at every point of an answer.
func testIdle(t *testing.T, w Wire) {
	for name, tt := range map[string]struct {
		fault  llmtest.Fault
		status int
	}{
		"before the headers": {llmtest.Fault{Delay: time.Hour}, 0},
		"before the first":   {llmtest.Fault{Hang: llmtest.AtStart}, 200},
		"in a text":          {llmtest.Fault{Hang: llmtest.AtText}, 200},
		"in arguments":       {llmtest.Fault{Hang: llmtest.AtArguments}, 200},
		"before the end":     {llmtest.Fault{Hang: llmtest.AtEnd}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			reply := w.Reply()
			reply.Fault = tt.fault
			w.inFakeTime(t, reply, Config{IdleTimeout: time.Minute}, 0,
				func(t *testing.T, c llm.Client) {
					start := time.Now()
					_, err := llm.Complete(t.Context(), c, w.Request())
					w.checkError(t, err, llm.KindTimeout, tt.status, "1m0s")
					if waited := time.Since(start); waited != time.Minute {
						t.Errorf("the client waited %s, want the idle timeout", waited)
					}
				})
		})
	}
	t.Run("a slow receiver is not idleness", func(t *testing.T) {
		w.inFakeTime(t, llmtest.Text("some text of several pieces"), Config{IdleTimeout: time.Second}, 0,
			func(t *testing.T, c llm.Client) {
				for _, err := range c.Stream(t.Context(), w.Request()) {
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
				}
			})
	})
	t.Run("a limit of the HTTP client", func(t *testing.T) {
		w.inFakeTime(t, llmtest.Reply{Fault: llmtest.Fault{Delay: time.Hour}}, Config{}, time.Minute,
			func(t *testing.T, c llm.Client) {
				_, err := llm.Complete(t.Context(), c, w.Request())
				w.checkError(t, err, llm.KindTimeout, 0, "")
			})
	})
}

func testCancel(t *testing.T, w Wire) {
	cause := errors.New("enough")
	for name, fault := range map[string]llmtest.Fault{
		"before the headers": {Delay: time.Hour}, "before the first": {Hang: llmtest.AtStart},
		"in a text":      {Hang: llmtest.AtText},
		"before the end": {Hang: llmtest.AtEnd}, "while it is slow": {Pace: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			seen := make(chan struct{})
			_, c := w.Connect(t, func(*llmtest.Request) llmtest.Reply {
				close(seen)
				return llmtest.Reply{Text: "some text", Fault: fault}
			})
			go func() {
				<-seen
				cancel(cause)
			}()
			_, err := llm.Complete(ctx, llm.Retry(c, llm.RetryPolicy{}), w.Request())
			if llm.KindOf(err) != llm.KindCanceled || !errors.Is(err, cause) {
				t.Errorf("got %v, want kind %s around the cause", err, llm.KindCanceled)
			}
		})
	}
}

// Nothing is sent before the iteration, and each iteration sends once.
func testIteration(t *testing.T, w Wire) {
	srv, c := w.Connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("x") })
	stream := c.Stream(t.Context(), w.Request())
	if n := len(srv.Requests()); n != 0 {
		t.Errorf("%d requests before iteration", n)
	}
	for want := 1; want <= 2; want++ {
		for d, err := range stream {
			if err != nil {
				t.Fatalf("delta %+v, %v", d, err)
			}
		}
		if n := len(srv.Requests()); n != want {
			t.Errorf("%d requests after %d iterations", n, want)
		}
	}
}

// A client yields deltas immediately, and leaving the iteration ends the request: otherwise the
// Close of the server would wait forever.
func testBreak(t *testing.T, w Wire) {
	before, after, _ := strings.Cut(w.Stream("a text"), "a text")
	after, _, _ = strings.Cut(after, "\n\n")
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer close(gone)
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(rw, before, "a text", after, "\n\n")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c := w.Client(t, Config{BaseURL: srv.URL, HTTPClient: srv.Client()})
	ctx := patience(t)
	for _, err := range c.Stream(ctx, w.Request()) {
		if err != nil || ctx.Err() != nil {
			t.Errorf("nothing came while the stream went on: %v", err)
		}
		break
	}
	<-gone
}

func testReuse(t *testing.T, w Wire) {
	_, c := w.Connect(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("x") })
	opened := 0
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if !info.Reused {
				opened++
			}
		}})
	for range 5 {
		if _, err := llm.Complete(ctx, c, w.Request()); err != nil {
			t.Fatal(err)
		}
	}
	// A client gives up a connection if the end of its answer comes late, as on a slow machine.
	if opened > 3 {
		t.Errorf("%d connections were opened for 5 requests, want 1", opened)
	}
}

func testSessions(t *testing.T, w Wire) {
	_, c := w.Connect(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Number%3 == 0 {
			return llmtest.Reply{Fault: llmtest.Fault{Status: 503}}
		}
		return llmtest.Text(r.Messages[0].Text())
	})
	c = atOnce(c, 20)
	errs := make(chan error)
	for i := range 64 {
		go func() {
			req := w.Request()
			req.Messages = []llm.Message{llm.UserText(fmt.Sprint("session ", i))}
			resp, err := llm.Complete(t.Context(), c, req)
			if err == nil && resp.Message.Text() != req.Messages[0].Text() {
				err = fmt.Errorf("session %d got %q", i, resp.Message.Text())
			}
			errs <- err
		}()
	}
	for range 64 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The HTTP client alone selects the proxy.
func testProxy(t *testing.T, w Wire) {
	srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Text("x")))
	proxy, err := url.Parse(srv.Root())
	if err != nil {
		t.Fatal(err)
	}
	hc := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(proxy), DisableKeepAlives: true,
	}}
	c := w.Client(t, Config{
		APIKey: srv.Key(), BaseURL: "http://no-such-host.invalid" + w.Base, HTTPClient: hc,
	})
	if _, err := llm.Complete(patience(t), c, w.Request()); err != nil {
		t.Error(err)
	}
}

// A redirect is an error: what a client sends goes to the configured address only.
func testRedirect(t *testing.T, w Wire) {
	var stolen atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stolen.Add(1)
	}))
	defer other.Close()
	for name, hc := range map[string]*http.Client{
		"default": nil,
		"a client that follows": {
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return nil },
		},
	} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, tt := range []struct{ to, want string }{
				{other.URL + "/v2?k=" + Key, "redirects to " + other.URL + "/v2"},
				{strings.Replace(other.URL, "//", "//user:"+Key+"@", 1), "redirects to " + other.URL + ","},
				{"/elsewhere", "/elsewhere"},
			} {
				t.Run(fmt.Sprintf("%s, %d to %q", name, status, tt.want), func(t *testing.T) {
					var requests atomic.Int64
					srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
						requests.Add(1)
						rw.Header()["Location"] = []string{tt.to}
						rw.WriteHeader(status)
						_, _ = io.WriteString(rw, `{"error":{"code":"rate_limit_exceeded","message":"x"}}`)
					}))
					defer srv.Close()
					c := w.Client(t, Config{APIKey: Key, BaseURL: srv.URL, HTTPClient: hc})
					_, err := llm.Complete(patience(t), atOnce(c, 3), w.Request())
					w.checkError(t, err, llm.KindNotFound, status, tt.want)
					if !strings.Contains(err.Error(), "base URL only") || strings.Contains(err.Error(), Key) ||
						strings.Contains(err.Error(), "k=") {
						t.Errorf("the error is %v", err)
					}
					if requests.Load() != 1 || stolen.Load() != 0 {
						t.Errorf("%d requests, and %d to the other server", requests.Load(), stolen.Load())
					}
				})
			}
		}
	}
}
