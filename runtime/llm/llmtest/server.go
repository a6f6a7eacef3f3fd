package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxRequest bounds the body of a request in bytes.
const maxRequest = 256 << 20

// TB is the part of testing.TB that NewServer needs, so that this package does not import testing.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Server is a model server on the loopback interface.
type Server struct {
	url    string
	http   *http.Server
	client *http.Client
	served chan struct{}
	// quit ends hanging answers.
	quit   chan struct{}
	closed sync.Once
	active sync.WaitGroup

	// thinking is held during a call of brain.
	thinking sync.Mutex
	brain    Brain

	mu         sync.Mutex
	requests   []*Request
	violations []string
	// reasoning is the reasoning that must come back unchanged, by a name that the protocol defines.
	reasoning map[string]json.RawMessage
}

// Start starts a server, which the caller closes.
func Start(brain Brain) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("llmtest: listen: %w", err)
	}
	return Serve(l, brain), nil
}

// Serve starts a server that accepts connections from l, such as one of pipes in a bubble of
// testing/synctest. The caller closes the server, which closes l.
func Serve(l net.Listener, brain Brain) *Server {
	s := &Server{
		url: "http://" + l.Addr().String(), brain: brain, served: make(chan struct{}),
		quit:      make(chan struct{}),
		client:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		reasoning: make(map[string]json.RawMessage),
	}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.served)
		// Serve returns an error after Close.
		_ = s.http.Serve(l)
	}()
	return s
}

// NewServer starts a server, closes it at the end of the test, and fails the test for violations
// that it did not take.
func NewServer(t TB, brain Brain) *Server {
	t.Helper()
	s, err := Start(brain)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, v := range s.TakeViolations() {
			t.Errorf("llmtest: %s", v)
		}
	})
	return s
}

// URL returns the base URL of Responses and Chat Completions, which ends in /v1.
func (s *Server) URL() string { return s.url + "/v1" }

// Root returns the base URL of Messages and generateContent, which has no path.
func (s *Server) Root() string { return s.url }

// Key returns the only API key that the server accepts.
func (s *Server) Key() string { return "sk-llmtest-0123456789abcdef" }

// Client returns an HTTP client whose connections are closed by Close.
func (s *Server) Client() *http.Client { return s.client }

// Close ends all connections and waits until all goroutines of the server have ended. It is
// idempotent.
func (s *Server) Close() {
	s.closed.Do(func() {
		s.mu.Lock()
		close(s.quit)
		s.mu.Unlock()
		// The listener is closed in any case, and a connection that does not close has no remedy.
		_ = s.http.Close()
		<-s.served
		s.active.Wait()
		s.client.CloseIdleConnections()
	})
}

// enter registers a handler in active, unless Close was called.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.quit:
		return false
	default:
		s.active.Add(1)
		return true
	}
}

// Requests returns the requests so far, including those with violations.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// TakeViolations returns the violations since the last call.
func (s *Server) TakeViolations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.violations
	s.violations = nil
	return v
}

// violate records a violation and answers it.
func (s *Server) violate(w http.ResponseWriter, p protocol, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.violations = append(s.violations, text)
	s.mu.Unlock()
	writeError(w, p, http.StatusBadRequest, Fault{
		Code: "llmtest_violation", Type: "invalid_request_error", Message: text,
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.active.Done()
	p, ok := protocolOf(r.URL.Path)
	switch {
	case !ok:
		writeError(w, p, http.StatusNotFound, Fault{
			Type: "invalid_request_error", Message: "unknown address " + r.URL.Path,
		})
		return
	case r.Method != http.MethodPost:
		writeError(w, p, http.StatusMethodNotAllowed, Fault{
			Type: "invalid_request_error", Message: "only POST is allowed",
		})
		return
	case p.key(r) != s.Key():
		writeError(w, p, http.StatusUnauthorized, p.wrongKey)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		s.violate(w, p, "the body has more than %d bytes", tooLarge.Limit)
		return
	}
	if err != nil { // the client has gone, which it may
		return
	}
	req := &Request{
		API: p.api, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(), Body: body,
	}
	s.mu.Lock()
	req.Number = len(s.requests)
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	extras, err := s.decode(p, req)
	if err != nil {
		s.violate(w, p, "request %d: %v", req.Number, err)
		return
	}
	s.thinking.Lock()
	reply := s.brain(req)
	s.thinking.Unlock()
	if reply.Violation != "" {
		s.violate(w, p, "request %d: %s", req.Number, reply.Violation)
		return
	}
	s.answer(w, r, p, req, reply.filled(req), extras)
}

// decode decodes and validates a request.
func (s *Server) decode(p protocol, req *Request) (extras, error) {
	if ct := req.Header.Get("Content-Type"); ct != "application/json" {
		return extras{}, fmt.Errorf("the content type is %q, not application/json", ct)
	}
	s.mu.Lock()
	known := maps.Clone(s.reasoning)
	s.mu.Unlock()
	return p.decode(req, known)
}

// answer sends reply, with its faults.
func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, p protocol, req *Request, reply Reply, ex extras,
) {
	f := reply.Fault
	if !s.wait(r.Context(), f.Delay) {
		return
	}
	if f.Reset {
		hangUp(w)
		return
	}
	if f.Status != 0 {
		writeError(w, p, f.Status, f)
		return
	}
	events, opaque := p.events(req, reply, ex)
	s.remember(opaque)
	out := &stream{server: s, protocol: p, w: w, r: r, fault: f}
	out.send(events)
}

// remember records the reasoning of an answer, to compare it with later requests.
func (s *Server) remember(opaque map[string]json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.reasoning, opaque)
}

// wait waits for d. It returns false if the client disconnects or the server closes.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.quit:
	}
	return false
}

// hangUp closes the connection in the middle of an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	// An error means that it is closed.
	_ = conn.Close()
}

// writeError answers with an error in the form of p.
func writeError(w http.ResponseWriter, p protocol, status int, f Fault) {
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	body := []byte(f.Body)
	if f.Body == "" {
		w.Header().Set("Content-Type", "application/json")
		body = p.refusal(status, f)
	}
	w.WriteHeader(status)
	// The client may have disconnected.
	_, _ = w.Write(body)
}
