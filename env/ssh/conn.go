package ssh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

const (
	// maxSessions bounds the sessions of a connection. OpenSSH's MaxSessions is 10 by default.
	maxSessions = 8
	// maxConns bounds the connections to one host.
	maxConns = 32
	// maxTries bounds how often a session is opened on connections that end at once.
	maxTries = 3
	// openTime bounds how long a server may take to open a channel.
	openTime = 30 * time.Second
	// aliveRequest is the name of a request that no server implements and every server answers.
	aliveRequest = "keepalive@openssh.com"
)

// errLost means that a connection ended.
var errLost = errors.New("the connection was lost")

// Host is a host that Connect logged in to. Its methods may be called concurrently.
type Host struct {
	route *route
	// dialing is held while a connection is made, so that waiting calls can share it.
	dialing chan struct{}
	// scriptTimeout is scriptTime, except in tests.
	scriptTimeout time.Duration

	mu    sync.Mutex
	conns []*conn
	// holders counts the environments, and the Host itself until Close.
	holders int
	closed  bool
}

// conn is one connection. Its fields are guarded by the Host's mutex.
type conn struct {
	client *gossh.Client
	// dead is closed when the connection has ended.
	dead chan struct{}
	// room is how many sessions the connection can have, used how many it has.
	room, used int
	// users counts its sessions and other channels.
	users int
	// opened means that it has had a session.
	opened bool
}

func (c *conn) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// Connect logs in to a host. Errors are *ConfigError for an invalid target, *ConnectError,
// *HostKeyError, *AuthError, or the end of ctx, which bounds Connect alone. The caller closes the
// Host; open environments keep their connections.
func Connect(ctx context.Context, t Target) (*Host, error) {
	r, err := resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	h := &Host{route: r, dialing: make(chan struct{}, 1), holders: 1, scriptTimeout: scriptTime}
	c, err := h.reserve(ctx, 0)
	if err != nil {
		return nil, err
	}
	h.giveBack(c, 0)
	r.passphrase = nil // reconnecting prompts for none
	return h, nil
}

// String returns user@host:port.
func (h *Host) String() string { return h.route.String() }

// Way returns the host and its jump hosts, the last one first, each as user@host:port. It
// distinguishes hosts of the same address in different networks.
func (h *Host) Way() string {
	var way []string
	for _, hop := range h.route.hops {
		way = append(way, hop.String())
	}
	slices.Reverse(way)
	return strings.Join(way, " via ")
}

// Close releases the host. Its connections end with the last environment.
func (h *Host) Close() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if !closed {
		h.release()
	}
	return nil
}

// hold keeps the connections open until release.
func (h *Host) hold() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fs.ErrClosed
	}
	h.holders++
	return nil
}

func (h *Host) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holders--; h.holders > 0 {
		return
	}
	for _, c := range h.conns {
		_ = c.client.Close() // nothing depends on it
	}
	h.conns = nil
}

// reserve returns a live connection with room for n more sessions, until giveBack. It connects if
// necessary.
func (h *Host) reserve(ctx context.Context, n int) (*conn, error) {
	if c := h.pick(n); c != nil {
		return c, nil
	}
	select {
	case h.dialing <- struct{}{}:
		defer func() { <-h.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c := h.pick(n); c != nil { // another call has made it
		return c, nil
	}
	h.mu.Lock()
	count, closed := len(h.conns), h.holders == 0
	h.mu.Unlock()
	switch {
	case closed:
		return nil, fs.ErrClosed
	case count >= maxConns:
		return nil, fmt.Errorf("ssh: %s accepts no more sessions on %d connections", h, count)
	}
	client, received, err := h.route.dialCounted(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{client: client, dead: make(chan struct{}), room: maxSessions, used: n, users: 1}
	go func() {
		_ = client.Wait() // only that it ended matters
		close(c.dead)
		h.forget(c)
	}()
	go h.keepAlive(c, received)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holders == 0 {
		_ = client.Close()
		return nil, fs.ErrClosed
	}
	h.conns = slices.DeleteFunc(h.conns, func(other *conn) bool {
		if other.users > 0 {
			return false
		}
		_ = other.client.Close() // it has no room, or pick had returned it
		return true
	})
	h.conns = append(h.conns, c)
	return c, nil
}

// pick reserves an existing connection.
func (h *Host) pick(n int) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		if !c.isDead() && c.used+n <= c.room {
			c.used += n
			c.users++
			return c
		}
	}
	return nil
}

// giveBack releases n sessions. An unused connection is closed, unless it is the only one.
func (h *Host) giveBack(c *conn, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.used -= n
	c.users--
	if c.users > 0 || len(h.conns) < 2 {
		return
	}
	h.drop(c)
	_ = c.client.Close() // nothing depends on it
}

// full records that a connection has no room for the reserved session. A server counts a session
// until its last process has exited. It reports false for a connection that has never had one:
// another would be no better.
func (h *Host) full(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !c.opened && c.used < 2 {
		return false
	}
	c.used--
	c.users--
	c.room = c.used
	return true
}

// forget removes a connection that has ended.
func (h *Host) forget(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(c)
}

// drop is forget with the lock held.
func (h *Host) drop(c *conn) {
	h.conns = slices.DeleteFunc(h.conns, func(other *conn) bool { return other == c })
}

// keepAlive closes a connection whose server answers no request and sends nothing else for
// aliveCount times aliveInterval.
func (h *Host) keepAlive(c *conn, received *atomic.Int64) {
	hop := h.route.hops[len(h.route.hops)-1]
	tick := time.NewTicker(hop.aliveInterval)
	defer tick.Stop()
	idle := make(chan struct{}, 1) // holds a value while no request is pending
	idle <- struct{}{}
	last, silent := received.Load(), 0
	for {
		select {
		case <-c.dead:
			return
		case <-tick.C:
		}
		select {
		case <-idle:
			silent = 0
			go func() {
				if _, _, err := c.client.SendRequest(aliveRequest, true, nil); err == nil {
					idle <- struct{}{}
				}
			}()
		default:
			if silent++; received.Load() != last {
				silent = 0
			}
			if silent >= hop.aliveCount {
				_ = c.client.Close() // the other end does not hear of it
				return
			}
		}
		last = received.Load()
	}
}

// session is a session on a connection.
type session struct {
	*gossh.Session
	give func()
}

// Close ends the session.
func (s *session) Close() error {
	err := s.Session.Close()
	s.give()
	return err
}

// session opens a session, on another connection if the server refuses one more.
func (h *Host) session(ctx context.Context) (*session, error) {
	for tries := 1; ; tries++ {
		c, err := h.reserve(ctx, 1)
		if err != nil {
			return nil, err
		}
		s, err := openChannel(ctx, c, c.client.NewSession, func(s *gossh.Session) { _ = s.Close() })
		var refused *gossh.OpenChannelError
		switch {
		case err == nil:
			h.mu.Lock()
			c.opened = true
			h.mu.Unlock()
			return &session{Session: s, give: sync.OnceFunc(func() { h.giveBack(c, 1) })}, nil
		case errors.As(err, &refused) && h.full(c):
			continue
		case errors.Is(err, errLost) && ctx.Err() == nil && tries < maxTries: // nothing was started yet
			h.forget(c)
			_ = c.client.Close()
			h.giveBack(c, 1)
			continue
		}
		h.giveBack(c, 1)
		if refused != nil {
			err = fmt.Errorf("the server refuses a session: %s", cleanText(refused.Message))
		}
		return nil, fmt.Errorf("ssh: %s: %w", h, err)
	}
}

// socket connects to a unix socket of the host. A server may refuse: *gossh.OpenChannelError.
func (h *Host) socket(ctx context.Context, name string) (*channel, error) {
	c, err := h.reserve(ctx, 0)
	if err != nil {
		return nil, err
	}
	dial := func() (net.Conn, error) { return c.client.Dial("unix", name) }
	n, err := openChannel(ctx, c, dial, func(n net.Conn) { _ = n.Close() })
	if err != nil {
		h.giveBack(c, 0)
		return nil, err
	}
	return &channel{Conn: n, give: sync.OnceFunc(func() { h.giveBack(c, 0) })}, nil
}

// channel is a connection to a socket of the host.
type channel struct {
	net.Conn
	give func()
}

// Close ends the connection.
func (c *channel) Close() error {
	err := c.Conn.Close()
	c.give()
	return err
}

// isRefused reports whether a server refused to open a channel.
func isRefused(err error) bool {
	var refused *gossh.OpenChannelError
	return errors.As(err, &refused)
}

// openChannel calls open, and waits for it until ctx or the connection ends, or openTime. An error
// that is not a refusal is errLost.
func openChannel[T any](
	ctx context.Context, c *conn, open func() (T, error), drop func(T),
) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTime,
		fmt.Errorf("no answer of the server within %v", openTime))
	defer cancel()
	got, err := await(ctx, c.dead, open, drop)
	if err != nil && ctx.Err() == nil && !isRefused(err) && !errors.Is(err, errLost) {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return got, err
}

// await calls open and waits for it until ctx ends or dead is closed. A later result is dropped.
func await[T any](
	ctx context.Context, dead <-chan struct{}, open func() (T, error), drop func(T),
) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := open()
		done <- result{got, err}
	}()
	var err error
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-dead:
		err = errLost
	}
	go func() {
		if r := <-done; r.err == nil {
			drop(r.got)
		}
	}()
	var none T
	return none, err
}
