package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// dialCounted connects to the host over the jump hosts, and logs in. ctx bounds the dialing, not
// the connection. Closing the client closes the connections to the jump hosts too. The second
// result is the number of bytes that were received from the host.
func (r *route) dialCounted(ctx context.Context) (*gossh.Client, *atomic.Int64, error) {
	var last jump
	var received *atomic.Int64
	for _, h := range r.hops {
		received = new(atomic.Int64)
		client, err := r.dialHop(ctx, h, last, received)
		if err != nil {
			if last.client != nil {
				_ = last.client.Close() // err explains more
			}
			return nil, nil, err
		}
		last = jump{client, h}
	}
	return last.client, received, nil
}

// countedConn counts the bytes that it reads.
type countedConn struct {
	net.Conn
	received *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// jump is a connected jump host. The zero value is none.
type jump struct {
	client *gossh.Client
	hop    *hop
}

// dialHop connects to one host, over the jump host before it, and logs in.
func (r *route) dialHop(
	ctx context.Context, h *hop, over jump, received *atomic.Int64,
) (*gossh.Client, error) {
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clock := time.AfterFunc(h.timeout, func() { cancel(&timeoutError{after: h.timeout}) })
	defer clock.Stop()
	conn, err := reach(bound, h, over)
	if err != nil {
		return nil, connectError(ctx, bound, h, err)
	}
	check, err := r.newHostCheck(h)
	if err != nil {
		_ = conn.Close() // err explains more
		return nil, err
	}
	l := &login{route: r, hop: h, clock: clock, failed: -1}
	defer func() { l.agent.close() }()
	stop := context.AfterFunc(bound, func() { _ = conn.Close() }) // the handshake gets an error
	c, chans, reqs, err := gossh.NewClientConn(&countedConn{conn, received}, h.address(),
		l.config(bound, check))
	switch ended := !stop(); {
	case err == nil && !ended:
		return gossh.NewClient(c, chans, reqs), nil
	case err == nil: // the handshake and ctx ended at once
		_ = c.Close()
		err = context.Cause(bound)
	}
	_ = conn.Close()
	if failure := check.failure(); failure != nil {
		return nil, failure
	}
	if bound.Err() == nil {
		if failure := check.noCommonType(err); failure != nil {
			return nil, failure
		}
		if failure := l.explain(err); failure != nil {
			return nil, failure
		}
	}
	return nil, connectError(ctx, bound, h, err)
}

// reach opens a connection to a host.
func reach(ctx context.Context, h *hop, over jump) (net.Conn, error) {
	switch {
	case over.client == nil && h.proxyCommand != "":
		return dialProxy(h)
	case over.client == nil:
		var d net.Dialer
		return d.DialContext(ctx, "tcp", h.address())
	}
	conn, err := over.client.DialContext(ctx, "tcp", h.address())
	if err != nil {
		var refused *gossh.OpenChannelError
		if errors.As(err, &refused) && refused.Reason == gossh.Prohibited {
			err = fmt.Errorf("%w; the jump host has to allow forwarding to it (AllowTcpForwarding)", err)
		}
		return nil, fmt.Errorf("over the jump host %s: %w", over.hop, err)
	}
	return &linkedConn{Conn: conn, over: over.client}, nil
}

// connectError returns a *ConnectError, or the end of ctx, which is not the host's fault.
func connectError(ctx, bound context.Context, h *hop, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ssh: connect to %s: %w", h, context.Cause(ctx))
	}
	if bound.Err() != nil {
		err = context.Cause(bound)
	}
	return &ConnectError{Host: h.String(), Err: err}
}

// linkedConn is a connection over a jump host. Close closes that one too.
type linkedConn struct {
	net.Conn
	over *gossh.Client
}

// Close closes the jump host first: a silent one would delay the end of the connection over it.
func (c *linkedConn) Close() error {
	err := c.over.Close()
	_ = c.Conn.Close() // it ended with the other one
	return err
}
