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
	// maxConns bounds the connections to one host.
	maxConns = 32
	// maxTries bounds how often a channel is opened on new connections that end at once.
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

	mu sync.Mutex
	// conns are the live connections, the latest last.
	conns []*conn
	// holders counts the environments, and the Host itself until Close.
	holders int
	closed  bool
}

// conn is one connection.
type conn struct {
	client *gossh.Client
	// dead is closed when the connection has ended.
	dead chan struct{}
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
	if err := h.use(ctx, func(*conn) error { return nil }); err != nil {
		return nil, err
	}
	r.passphrase = nil // reconnecting prompts for none
	return h, nil
}

// String returns user@host:port.
func (h *Host) String() string { return h.route.String() }

// Route returns the host and its jump hosts, the last one first, each as user@host:port. It
// distinguishes hosts of the same address in different networks.
func (h *Host) Route() string {
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
		return fmt.Errorf("ssh: %s: %w", h, fs.ErrClosed)
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

// use calls open with each connection, the latest first, until the server does not refuse it: a
// server limits the sessions of a connection, and counts each until its last process has exited.
// If no connection is left, use makes one, which other calls share when open has succeeded on it.
func (h *Host) use(ctx context.Context, open func(*conn) error) error {
	refused := make(map[*conn]bool)
	existing := func() (done bool, err error) {
		for c := h.latest(refused); c != nil; c = h.latest(refused) {
			switch err := open(c); {
			case isRefused(err):
				refused[c] = true
			case errors.Is(err, errLost): // nothing was started on it
				h.drop(c)
			case err != nil:
				return true, fmt.Errorf("ssh: %s: %w", h, err)
			default:
				return true, nil
			}
		}
		return false, nil
	}
	if done, err := existing(); done {
		return err
	}
	select {
	case h.dialing <- struct{}{}:
		defer func() { <-h.dialing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if done, err := existing(); done { // on a connection that another call has made
		return err
	}
	for tries := 1; ; tries++ {
		c, err := h.dial(ctx)
		if err != nil {
			return err
		}
		if err = open(c); err == nil {
			return h.add(c)
		}
		_ = c.client.Close() // err explains more
		if errors.Is(err, errLost) && ctx.Err() == nil && tries < maxTries {
			continue
		}
		var refusal *gossh.OpenChannelError
		if errors.As(err, &refusal) {
			err = fmt.Errorf("the server refuses a session: %s", cleanText(refusal.Message))
		}
		return fmt.Errorf("ssh: %s: %w", h, err)
	}
}

// latest returns the latest connection that has not refused a channel, or nil.
func (h *Host) latest(refused map[*conn]bool) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range slices.Backward(h.conns) {
		if !refused[c] {
			return c
		}
	}
	return nil
}

// dial makes a connection.
func (h *Host) dial(ctx context.Context) (*conn, error) {
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
	c := &conn{client: client, dead: make(chan struct{})}
	go func() {
		_ = client.Wait() // only that it ended matters
		close(c.dead)
		h.drop(c)
	}()
	go h.keepAlive(c, received)
	return c, nil
}

// add lets other calls use a connection.
func (h *Host) add(c *conn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holders == 0 {
		_ = c.client.Close() // nothing depends on it
		return fs.ErrClosed
	}
	select {
	case <-c.dead:
	default:
		h.conns = append(h.conns, c)
	}
	return nil
}

// drop closes and removes a connection.
func (h *Host) drop(c *conn) {
	_ = c.client.Close() // it has failed
	h.mu.Lock()
	defer h.mu.Unlock()
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

// session opens a session.
func (h *Host) session(ctx context.Context) (s *gossh.Session, err error) {
	err = h.use(ctx, func(c *conn) (err error) {
		s, err = openChannel(ctx, c, c.client.NewSession, func(s *gossh.Session) { _ = s.Close() })
		return err
	})
	return s, err
}

// socket connects to a unix socket of the host. A server may refuse: *gossh.OpenChannelError.
func (h *Host) socket(ctx context.Context, name string) (n net.Conn, err error) {
	var refusal error
	err = h.use(ctx, func(c *conn) (err error) {
		dial := func() (net.Conn, error) { return c.client.Dial("unix", name) }
		n, err = openChannel(ctx, c, dial, func(n net.Conn) { _ = n.Close() })
		if isRefused(err) { // as it would be on any connection
			refusal, err = err, nil
		}
		return err
	})
	if err == nil {
		err = refusal
	}
	return n, err
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
