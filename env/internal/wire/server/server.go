// Package server serves an env.Environment to clients of the wire over byte streams. Commands
// belong to the server, not to a connection, and outlive the loss of one.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// Config configures a Server. Open is required.
type Config struct {
	// Open returns the environment to serve, from the Start of the first Hello that is accepted. An
	// error is sent to that client, and the next Hello tries again. The server closes the
	// environment.
	Open func(ctx context.Context, start json.RawMessage) (env.Environment, error)
	// Authorize decides whether a client may connect; nil allows all. One that may not gets
	// fs.ErrPermission and nothing else.
	Authorize func(wire.Hello) error
	// Connected, if set, is called with the number of authorised clients whenever it changes, from
	// one goroutine at a time. It must not call the server.
	Connected func(clients int)
	// MaxBlocking bounds how many file operations are in system calls; 0 means no bound. Operations
	// that wait for the network do not count.
	MaxBlocking int
	// HandshakeTime bounds each step of a handshake; 0 means 10 seconds.
	HandshakeTime time.Duration
	// PingEvery is the silence after which the server sends a ping, and the timeout of that ping; 0
	// means 10 seconds.
	PingEvery time.Duration
}

const (
	defaultHandshake = 10 * time.Second
	// lingerTimeout bounds how long connections last after the environment, for responses on their
	// way.
	lingerTimeout = 5 * time.Second
	// maxStreams bounds the requests in progress on a connection.
	maxStreams = 10_000
)

// Server serves one environment to any number of connections. New creates it.
type Server struct {
	cfg      Config
	session  string
	gate     gate
	commands commands
	changes  changes
	buffers  sync.Pool // *[]byte, of answerBuffer

	opening chan struct{} // holds a value while the environment is being opened
	done    chan struct{}
	ending  sync.Once
	closing sync.Once
	result  error // of closing the environment; valid after closing

	mu     sync.Mutex
	env    env.Environment // nil until it is opened
	closed bool            // Close was called
	peers  map[*peer]struct{}

	counting sync.Mutex // held while Connected is called
	clients  map[string]*peer
}

// New returns a server for the streams given to Serve.
func New(cfg Config) *Server {
	cfg.HandshakeTime = cmp.Or(cfg.HandshakeTime, defaultHandshake)
	cfg.PingEvery = cmp.Or(cfg.PingEvery, wire.DefaultPing)
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &Server{
		cfg:     cfg,
		session: hex.EncodeToString(id[:]),
		gate:    newGate(cfg.MaxBlocking),
		opening: make(chan struct{}, 1),
		done:    make(chan struct{}),
		peers:   make(map[*peer]struct{}),
		clients: make(map[string]*peer),
	}
	s.commands.init()
	s.changes.init()
	s.buffers.New = func() any {
		buf := make([]byte, 0, responseBuffer)
		return &buf
	}
	return s
}

// Done is closed when a client has closed the environment and has its response, or when Close has
// ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close closes the environment and all connections. It returns the error of closing the
// environment; a second Close does nothing and returns nil.
func (s *Server) Close() error {
	first := false
	s.ending.Do(func() { first = true })
	err := s.closeEnvironment()
	s.disconnect()
	if !first {
		return nil
	}
	return err
}

// closeEnvironment closes the environment once, and returns the error of that to all callers.
func (s *Server) closeEnvironment() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		e := s.env
		s.mu.Unlock()
		if e == nil {
			return
		}
		// Otherwise commands whose output no client reads could not end.
		s.commands.abandon()
		s.result = e.Close()
	})
	return s.result
}

// disconnect closes all connections.
func (s *Server) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		_ = p.conn.Close() // the error does not matter
	}
	select {
	case <-s.done:
	default:
		close(s.done)
	}
}

// disconnectLater closes all connections when that of the client that closed the environment has
// ended.
func (s *Server) disconnectLater(p *peer) {
	timer := time.NewTimer(lingerTimeout)
	defer timer.Stop()
	select {
	case <-p.conn.Done:
	case <-timer.C:
	case <-s.done:
	}
	s.disconnect()
}

// peer is a connection.
type peer struct {
	s    *Server
	conn *wire.Conn
	id   string // of the client

	mu       sync.Mutex
	closed   bool           // no more requests
	replaced bool           // by a later connection of the same client
	requests sync.WaitGroup // requests in progress
}

// enter registers a request; the caller calls p.requests.Done. It reports false if the connection
// is closed.
func (p *peer) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.requests.Add(1)
	return true
}

// current reports whether the client has no later connection. Only the latest one starts anything:
// the client has reported the outcomes of the requests of earlier ones.
func (p *peer) current() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.replaced
}

// replace closes a connection in favour of a later one.
func (p *peer) replace() {
	p.mu.Lock()
	p.replaced = true
	p.mu.Unlock()
	_ = p.conn.Close() // the error does not matter
}

// Serve serves one stream until it ends, ctx ends or the server is closed, and closes it. It
// returns when all requests of the connection have ended. Its error is that of the handshake; a
// connection that ends later has none.
func (s *Server) Serve(ctx context.Context, stream io.ReadWriteCloser) error {
	p := &peer{s: s, conn: wire.NewConn(stream)}
	defer func() { _ = p.conn.Close() }() // It has ended before.
	s.mu.Lock()
	s.peers[p] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.peers, p)
		s.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { _ = p.conn.Close() })
	defer stop()
	if err := s.handshake(ctx, p); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer s.unregister(p)
	s.serveHTTP(ctx, p)
	return nil
}

// serveHTTP serves HTTP/2 until the connection and its requests have ended.
func (s *Server) serveHTTP(ctx context.Context, p *peer) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	// net/http sends no ping to a client that is silent from the handshake on.
	silent := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	defer silent.Stop()
	closed := make(chan struct{})
	server := &http.Server{
		Handler:        p.routes(),
		Protocols:      &protocols,
		MaxHeaderBytes: 128 << 10,
		ErrorLog:       log.New(io.Discard, "", 0), /* it reports faults of clients */
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateIdle, http.StateActive:
				silent.Stop()
			case http.StateClosed:
				close(closed)
			}
		},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              wire.ReadFrame,
			MaxReceiveBufferPerStream:     wire.Window,
			MaxReceiveBufferPerConnection: wire.ReceiveBuffer,
			SendPingTimeout:               s.cfg.PingEvery,
			PingTimeout:                   s.cfg.PingEvery,
		},
	}
	l := wire.NewListener(p.conn)
	stopped := make(chan struct{})
	go func() {
		_ = server.Serve(l) // http.ErrServerClosed, or that of the listener
		close(stopped)
	}()
	<-p.conn.Done
	_ = l.Close() // never fails
	<-stopped
	<-closed
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.requests.Wait()
}

// handshake responds to the client's Hello. Without an error the connection is registered.
func (s *Server) handshake(ctx context.Context, p *peer) error {
	hello, err := s.readHello(p)
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) {
			// err has the details
			_ = s.sendWelcome(p, &wire.Welcome{Error: wire.ToError(refused.public)})
		}
		return err
	}
	e, err := s.open(ctx, hello)
	if err != nil {
		// err has the details
		_ = s.sendWelcome(p, &wire.Welcome{Session: s.session, Error: wire.ToError(err)})
		return err
	}
	p.id = hello.Client
	s.register(p)
	welcome := &wire.Welcome{Session: s.session, Info: wire.ToInfo(e.Info())}
	if err := s.sendWelcome(p, welcome); err != nil {
		s.unregister(p)
		return err
	}
	return nil
}

// refusal is why a client is refused, and the error that it gets.
type refusal struct{ public, err error }

func (r *refusal) Error() string { return "refused: " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// readHello reads the client's Hello. A *refusal is sent to the client.
func (s *Server) readHello(p *peer) (*wire.Hello, error) {
	silent := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	line, err := p.conn.ReadLine(wire.MaxHello)
	if !silent.Stop() {
		return nil, errors.New("timeout: no hello")
	}
	if errors.Is(err, wire.ErrLineTooLong) {
		return nil, &refusal{public: err, err: err}
	}
	if err != nil {
		return nil, err
	}
	var hello wire.Hello
	if err := json.Unmarshal(line, &hello); err != nil {
		return nil, &refusal{
			public: errors.New("malformed hello"),
			err:    fmt.Errorf("malformed hello: %w", err),
		}
	}
	if hello.Version != wire.Version {
		err := fmt.Errorf("protocol version %d of the client differs from version %d of "+
			"the server (use the same release on both sides)", hello.Version, wire.Version)
		return nil, &refusal{public: err, err: err}
	}
	if s.cfg.Authorize != nil {
		if err := s.cfg.Authorize(hello); err != nil {
			return nil, &refusal{public: fs.ErrPermission, err: err}
		}
	}
	if !validID(hello.Client) {
		err := fmt.Errorf("malformed client id: %w", fs.ErrInvalid)
		return nil, &refusal{public: err, err: err}
	}
	if err := s.readStart(p, &hello); err != nil {
		return nil, err
	}
	return &hello, nil
}

// readStart reads the Start behind a Hello.
func (s *Server) readStart(p *peer, hello *wire.Hello) error {
	if hello.StartSize < 0 || hello.StartSize > wire.MaxStart {
		err := fmt.Errorf("start configuration of %d bytes: %w", hello.StartSize, env.ErrTooLarge)
		return &refusal{public: err, err: err}
	}
	silent := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	defer silent.Stop()
	start, err := io.ReadAll(io.LimitReader(p.conn, int64(hello.StartSize)))
	if err == nil && len(start) < hello.StartSize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read start configuration: %w", err)
	}
	hello.Start = start
	return nil
}

// sendWelcome sends the response to a Hello.
func (s *Server) sendWelcome(p *peer, w *wire.Welcome) error {
	w.Version = wire.Version
	line, err := json.Marshal(w)
	if err == nil && len(line) >= wire.MaxWelcome {
		err = fmt.Errorf("welcome of %d bytes exceeds %d", len(line), wire.MaxWelcome)
	}
	if err != nil {
		return err
	}
	slow := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	defer slow.Stop()
	return p.conn.WriteLine(append(line, '\n'))
}

// open returns the environment, and opens it the first time.
func (s *Server) open(ctx context.Context, hello *wire.Hello) (env.Environment, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	e, closed := s.env, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("%w: the environment has been closed", env.ErrGone)
	case hello.Session != "" && (e == nil || hello.Session != s.session):
		return nil, fmt.Errorf("%w: this is another session", env.ErrGone)
	case e != nil:
		return e, nil
	}
	e, err := s.cfg.Open(ctx, hello.Start)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed = s.closed
	if !closed {
		s.env = e
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(fmt.Errorf("%w: the environment has been closed", env.ErrGone), e.Close())
	}
	return e, nil
}

// register makes p the connection of its client, and closes the one before.
func (s *Server) register(p *peer) {
	s.counting.Lock()
	defer s.counting.Unlock()
	before := len(s.clients)
	if old := s.clients[p.id]; old != nil {
		old.replace()
	}
	s.clients[p.id] = p
	s.notifyConnected(before)
}

// unregister removes the connection of a client.
func (s *Server) unregister(p *peer) {
	s.counting.Lock()
	defer s.counting.Unlock()
	before := len(s.clients)
	if s.clients[p.id] == p {
		delete(s.clients, p.id)
	}
	s.notifyConnected(before)
}

func (s *Server) notifyConnected(before int) {
	if s.cfg.Connected != nil && len(s.clients) != before {
		s.cfg.Connected(len(s.clients))
	}
}

// killer is an environment that can kill its processes and go on.
type killer interface{ Kill() error }

// validID reports whether id is valid for a client, a command or a change.
func validID(id string) bool {
	if id == "" || len(id) > wire.MaxID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
