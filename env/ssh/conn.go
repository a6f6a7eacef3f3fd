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
	// maxSessions is how many sessions a connection is asked for at most. OpenSSH's MaxSessions is 10 by default.
	maxSessions = 8
	// maxConns bounds the connections to one host.
	maxConns = 32
	// maxTries is how often a session is asked for on connections that end at once.
	maxTries = 3
	// openTime bounds how long a server may take to answer for a session.
	openTime = 30 * time.Second
	// pingEvery is how often the server is asked whether it is there, and how long it may take to say so.
	pingEvery = 10 * time.Second
	// pingRequest is the name of a request that no server knows, and all therefore answer.
	pingRequest = "keepalive@openssh.com"
)

// errLost means that a connection ended.
var errLost = errors.New("the connection was lost")

// A Host is a host that one is logged in to. Its methods may be called concurrently. It is made by Connect.
type Host struct {
	route *route
	// dialing is held while a connection is made, so that those who wait for one can share it.
	dialing chan struct{}
	// patience is lookTime, but for tests.
	patience time.Duration

	mu    sync.Mutex
	conns []*conn
	// holders is how many environments there are, and one for the Host itself until Close.
	holders int
	closed  bool
}

// conn is one connection. Its fields are the Host's.
type conn struct {
	client *gossh.Client
	// dead is closed when the connection has ended.
	dead chan struct{}
	// room is how many sessions it takes, used how many there are.
	room, used int
	// users is how many there are who need it, for a session or something else.
	users int
	// opened says that there was a session.
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

// Connect logs in to a host. Errors are *ConfigError for what cannot be meant, *ConnectError, *HostKeyError, *AuthError, or
// the end of ctx, which is for Connect alone. The caller closes the Host; environments that are open then keep what they
// need.
func Connect(ctx context.Context, t Target) (*Host, error) {
	r, err := resolve(t)
	if err != nil {
		return nil, err
	}
	h := &Host{route: r, dialing: make(chan struct{}, 1), holders: 1, patience: lookTime}
	c, err := h.reserve(ctx, 0)
	if err != nil {
		return nil, err
	}
	h.giveBack(c, 0)
	r.ask = nil // nobody waits for a question when a connection is made anew
	return h, nil
}

// String returns the host with its user and port.
func (h *Host) String() string { return h.route.String() }

// Way returns the host with its user and port, and with the jump hosts, the last one first. It tells hosts of one address
// apart that are in different networks.
func (h *Host) Way() string {
	var way []string
	for _, hop := range h.route.hops {
		way = append(way, hop.String())
	}
	slices.Reverse(way)
	return strings.Join(way, " via ")
}

// Close gives the host up. The connections end with the last environment.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.release()
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
		_ = c.client.Close() // what it says is of no use
	}
	h.conns = nil
}

// reserve returns a living connection with room for n more sessions, which giveBack gives back. It makes one if there is
// none.
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
	if c := h.pick(n); c != nil { // somebody else has made it
		return c, nil
	}
	h.mu.Lock()
	count, over := len(h.conns), h.holders == 0
	h.mu.Unlock()
	switch {
	case over:
		return nil, fs.ErrClosed
	case count >= maxConns:
		return nil, fmt.Errorf("ssh: %s takes no more sessions on %d connections", h, count)
	}
	client, received, err := h.route.dialCounted(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{client: client, dead: make(chan struct{}), room: maxSessions, used: n, users: 1}
	go func() {
		_ = client.Wait() // that it ended is all there is to know
		close(c.dead)
		h.forget(c)
	}()
	go h.ping(c, received)
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
		_ = other.client.Close() // it had no room, or it would have been taken
		return true
	})
	h.conns = append(h.conns, c)
	return c, nil
}

// pick returns a connection that there is.
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

// giveBack gives n sessions back. A connection that nobody uses any more is closed, unless it is the only one.
func (h *Host) giveBack(c *conn, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.used -= n
	c.users--
	if c.users > 0 || len(h.conns) < 2 {
		return
	}
	h.drop(c)
	_ = c.client.Close() // what it says is of no use
}

// full notes that a connection has no room for the session that was reserved. A server counts sessions that are over for
// as long as something of them runs. It reports false for a connection that has never had any, which is no better.
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

// forget takes a connection that has ended out of those that there are.
func (h *Host) forget(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(c)
}

// drop is forget with the lock held.
func (h *Host) drop(c *conn) {
	h.conns = slices.DeleteFunc(h.conns, func(other *conn) bool { return other == c })
}

// ping asks the server again and again whether it is there, and ends the connection when it does not answer. Whatever
// arrives is an answer.
func (h *Host) ping(c *conn, received *atomic.Int64) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	answered <- struct{}{}
	last := received.Load()
	for {
		select {
		case <-c.dead:
			return
		case <-tick.C:
		}
		now := received.Load()
		select {
		case <-answered:
			go func() {
				if _, _, err := c.client.SendRequest(pingRequest, true, nil); err == nil {
					answered <- struct{}{}
				}
			}()
		default:
			if now == last {
				_ = c.client.Close() // nobody is there to hear of it
				return
			}
		}
		last = now
	}
}

// session is a session on a connection.
type session struct {
	*gossh.Session
	conn *conn
	give func()
}

// lost reports whether the connection has ended, or does so within a time, before the session was given up: then it may end
// because nobody uses it any more.
func (s *session) lost(within time.Duration, givenUp <-chan struct{}) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-s.conn.dead:
	case <-givenUp:
		return false
	case <-timer.C:
		return false
	}
	select {
	case <-givenUp:
		return false
	default:
		return true
	}
}

// Close ends the session.
func (s *session) Close() error {
	err := s.Session.Close()
	s.give()
	return err
}

// session opens a session. Where the server takes no more of them on a connection, it is opened on another one.
func (h *Host) session(ctx context.Context) (*session, error) {
	for tries := 1; ; tries++ {
		c, err := h.reserve(ctx, 1)
		if err != nil {
			return nil, err
		}
		s, err := openSession(ctx, c)
		var refused *gossh.OpenChannelError
		switch {
		case err == nil:
			h.mark(c)
			return &session{Session: s, conn: c, give: sync.OnceFunc(func() { h.giveBack(c, 1) })}, nil
		case errors.As(err, &refused) && h.full(c):
			continue
		case errors.Is(err, errLost) && ctx.Err() == nil && tries < maxTries: // nothing was asked for yet
			h.forget(c)
			_ = c.client.Close()
			h.giveBack(c, 1)
			continue
		}
		h.giveBack(c, 1)
		if refused != nil {
			err = fmt.Errorf("the server lets no session in: %s", cleanText(refused.Message))
		}
		return nil, fmt.Errorf("ssh: %s: %w", h, err)
	}
}

// mark notes that a connection has had a session.
func (h *Host) mark(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.opened = true
}

// openSession opens a session on a connection. One that comes too late is closed.
func openSession(ctx context.Context, c *conn) (*gossh.Session, error) {
	return inTime(ctx, c, c.client.NewSession, func(s *gossh.Session) { _ = s.Close() })
}

// socket connects to a unix socket of the host. Servers may refuse it: *gossh.OpenChannelError.
func (h *Host) socket(ctx context.Context, name string) (*channel, error) {
	c, err := h.reserve(ctx, 0)
	if err != nil {
		return nil, err
	}
	dial := func() (net.Conn, error) { return c.client.Dial("unix", name) }
	n, err := inTime(ctx, c, dial, func(n net.Conn) { _ = n.Close() })
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

// inTime calls open, and waits for it until ctx or the connection ends, or the server has taken too long. What comes later
// is dropped.
func inTime[T any](ctx context.Context, c *conn, open func() (T, error), drop func(T)) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := open()
		done <- result{got, err}
	}()
	timer := time.NewTimer(openTime)
	defer timer.Stop()
	var err error
	select {
	case r := <-done:
		if r.err != nil && !isRefused(r.err) {
			r.err = fmt.Errorf("%w: %w", errLost, r.err)
		}
		return r.got, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.dead:
		err = errLost
	case <-timer.C:
		err = fmt.Errorf("the server has not answered for %v", openTime)
	}
	go func() {
		if r := <-done; r.err == nil {
			drop(r.got)
		}
	}()
	var none T
	return none, err
}
