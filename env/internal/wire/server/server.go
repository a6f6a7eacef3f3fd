// Package server serves an environment over byte streams. What runs belongs to the server, not to a connection, and outlives
// the loss of one.
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

// Config describes what a Server serves. Open is required.
type Config struct {
	// Open returns the environment to serve. It is called for the first Hello that is accepted, with its Start. An error
	// is told to that client, whose connection ends, and the next Hello tries again. The server closes the environment.
	Open func(ctx context.Context, start json.RawMessage) (env.Environment, error)
	// Authorize decides who may connect; nil lets everybody. Whoever may not is told fs.ErrPermission and nothing else.
	Authorize func(wire.Hello) error
	// Connected, if set, is told how many authorised connections there are whenever that changes. It is called from one
	// goroutine at a time and must not call the server.
	Connected func(clients int)
	// MaxBlocking is how many file operations may be in system calls at once; 0 means any number. An operation that
	// waits for the network does not count.
	MaxBlocking int
	// HandshakeTime bounds each step of a handshake; 0 means 10 seconds.
	HandshakeTime time.Duration
	// PingEvery is after how long a silence the server checks that a client is still there, and how long that may take;
	// 0 means 10 seconds.
	PingEvery time.Duration
}

const (
	defaultHandshake = 10 * time.Second
	// lingerTime bounds how long connections last once the environment is closed, for answers that are on their way.
	lingerTimeout = 5 * time.Second
	// maxStreams is how many requests a connection may have in progress.
	maxStreams = 10_000
)

// Server serves one environment to any number of connections. It is made by NewServer.
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
	closed bool            // Close has begun
	peers  map[*peer]struct{}

	counting sync.Mutex // held while Connected is called
	clients  map[string]*peer
}

// New returns a server, which serves streams given to Serve.
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

// Done is closed once a client has closed the environment and has its answer, or Close has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close closes the environment and ends every connection. Its error is that of closing the environment. A second Close
// does nothing and returns nil.
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

// closeEnvironment closes the environment once, and returns what came of that to everyone.
func (s *Server) closeEnvironment() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		e := s.env
		s.mu.Unlock()
		if e == nil {
			return
		}
		// Commands whose output nobody takes could not end otherwise.
		s.commands.abandon()
		s.result = e.Close()
	})
	return s.result
}

// disconnect ends every connection.
func (s *Server) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		_ = p.conn.Close() // its end is what matters
	}
	select {
	case <-s.done:
	default:
		close(s.done)
	}
}

// linger ends every connection when the one whose client has closed the environment has ended.
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

// enter registers a request in progress; the caller calls p.work.Done. It reports false if there are to be no more.
func (p *peer) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.requests.Add(1)
	return true
}

// current tells whether the client has no later connection. What is started is started by the latest one only: by then
// its client has been told what had been started before.
func (p *peer) current() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.replaced
}

// replace ends a connection in favour of a later one.
func (p *peer) replace() {
	p.mu.Lock()
	p.replaced = true
	p.mu.Unlock()
	_ = p.conn.Close() // its end is what matters
}

// Serve serves one stream until it ends, ctx ends or the server is closed, and closes it. It returns when all requests of
// the connection have ended. The error says why there was no handshake; a connection that ends later is none.
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
	// A client that says nothing after the handshake is not even asked for a sign of life.
	silent := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	defer silent.Stop()
	closed := make(chan struct{})
	server := &http.Server{
		Handler:        p.routes(),
		Protocols:      &protocols,
		MaxHeaderBytes: 128 << 10,
		ErrorLog:       log.New(io.Discard, "", 0), /* not what clients do wrong */
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

// handshake answers the client's Hello. Without an error the connection is one of the client's, and leave takes it back.
func (s *Server) handshake(ctx context.Context, p *peer) error {
	hello, err := s.readHello(p)
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) {
			_ = s.sendWelcome(p, &wire.Welcome{Error: wire.ToError(refused.public)}) // err says more
		}
		return err
	}
	e, err := s.open(ctx, hello)
	if err != nil {
		_ = s.sendWelcome(p, &wire.Welcome{Session: s.session, Error: wire.ToError(err)}) // err says more
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

// refusal is why a client is refused, with what it is told.
type refusal struct{ public, err error }

func (r *refusal) Error() string { return "refused: " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// readHello reads the client's Hello. A *refusal is to be told.
func (s *Server) readHello(p *peer) (*wire.Hello, error) {
	silent := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	line, err := p.conn.ReadLine(wire.MaxHello)
	if !silent.Stop() {
		return nil, errors.New("no hello in time")
	}
	if errors.Is(err, wire.ErrLineTooLong) {
		return nil, &refusal{public: err, err: err}
	}
	if err != nil {
		return nil, err
	}
	var hello wire.Hello
	if err := json.Unmarshal(line, &hello); err != nil {
		return nil, &refusal{public: errors.New("the hello is malformed"), err: fmt.Errorf("malformed hello: %w", err)}
	}
	if hello.Version != wire.Version {
		err := fmt.Errorf("version %d of the protocol is not spoken here, version %d is", hello.Version, wire.Version)
		return nil, &refusal{public: err, err: err}
	}
	if s.cfg.Authorize != nil {
		if err := s.cfg.Authorize(hello); err != nil {
			return nil, &refusal{public: fs.ErrPermission, err: err}
		}
	}
	if !validID(hello.Client) {
		err := fmt.Errorf("the id of the client is malformed: %w", fs.ErrInvalid)
		return nil, &refusal{public: err, err: err}
	}
	if err := s.readStart(p, &hello); err != nil {
		return nil, err
	}
	return &hello, nil
}

// readStart reads what the client wants to be opened.
func (s *Server) readStart(p *peer, hello *wire.Hello) error {
	if hello.StartSize < 0 || hello.StartSize > wire.MaxStart {
		err := fmt.Errorf("what is to be opened has %d bytes: %w", hello.StartSize, env.ErrTooLarge)
		return &refusal{public: err, err: err}
	}
	silent := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	defer silent.Stop()
	start, err := io.ReadAll(io.LimitReader(p.conn, int64(hello.StartSize)))
	if err == nil && len(start) < hello.StartSize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("what is to be opened: %w", err)
	}
	hello.Start = start
	return nil
}

// welcome sends the answer to a Hello.
func (s *Server) sendWelcome(p *peer, w *wire.Welcome) error {
	w.Version = wire.Version
	line, err := json.Marshal(w)
	if err == nil && len(line) >= wire.MaxWelcome {
		err = fmt.Errorf("a welcome of %d bytes is too large", len(line))
	}
	if err != nil {
		return err
	}
	slow := time.AfterFunc(s.cfg.HandshakeTime, func() { _ = p.conn.Close() })
	defer slow.Stop()
	return p.conn.WriteLine(append(line, '\n'))
}

// open returns the environment, and opens it if it is not open yet.
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
		return nil, fmt.Errorf("%w: it has been closed", env.ErrGone)
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
		return nil, errors.Join(fmt.Errorf("%w: it has been closed", env.ErrGone), e.Close())
	}
	return e, nil
}

// join makes p the connection of its client, and ends the one before.
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

// leave takes the connection away from its client.
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

// killer is an environment that can kill what it has started and go on.
type killer interface{ Kill() error }

// validID tells whether id may be one that a client has chosen.
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
