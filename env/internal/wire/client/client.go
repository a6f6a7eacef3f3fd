// Package client is an environment over one byte stream. It connects, reconnects and resumes: a command runs at most once,
// whatever the stream does.
package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Config describes how a Client reaches its server.
type Config struct {
	// Dial returns a stream to the server. It is called for the first connection and again after each loss, never twice
	// at once. The client closes the stream, and a Close must end calls of Read and Write. An error that wraps
	// env.ErrGone ends the client.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Token is the secret that opens the server.
	Token string
	// Start is what the server opens its environment with.
	Start json.RawMessage
	// Redial is how long after a loss the client tries to connect again. With zero a lost connection is the end.
	Redial time.Duration
	// PingEvery is after how long a silence the client checks that the server is still there, and how long that may
	// take; 0 means 10 seconds.
	PingEvery time.Duration
}

const (
	// connectTime bounds one attempt to connect, once there has been a connection.
	connectTimeout = 15 * time.Second
	// closeTime bounds the wait for the environment to be closed.
	closeTimeout = 30 * time.Second
	// settleTime bounds the wait for calls in progress once the environment is closed.
	callsTimeout = 5 * time.Second
	// patience is how long a server may be silent about something that it was told to end.
	responseTimeout = 15 * time.Second

	// maxEntries and maxListing bound what a list is believed to hold, in entries and in bytes.
	maxEntries = 1 << 22
	maxListing = 256 << 20
)

// Client is an environment at the other end of a stream. It is made by Open.
type Client struct {
	cfg       Config
	id        string
	info      env.Info
	session   string
	limits    limits
	buffers   sync.Pool // *bufio.Reader
	ids       atomic.Uint64
	earlyEnds atomic.Int32 // answers in a row that ended early on a connection that was there
	abandoned abandonedCommands

	closing      sync.Once
	stop         context.CancelFunc // ends the attempts to connect
	disconnected chan struct{}      // closed when the last connection has ended for good
	calls        sync.WaitGroup     // calls in progress

	mu      sync.Mutex
	closed  bool          // Close has begun
	link    *link         // the connection; nil while there is none
	err     error         // why there will be none any more
	changed chan struct{} // closed when link or err changes
}

// limits are constants but for tests.
type limits struct {
	response time.Duration
	close    time.Duration
	entries  int
	listing  int
}

var (
	_ env.Environment = (*Client)(nil)
	_ search.Searcher = (*Client)(nil)
	_ env.MultiReader = (*Client)(nil)
)

// Open connects to a server and returns its environment. The end of ctx ends the connecting only. A server that does not
// keep to the protocol is env.ErrProtocol; the error with which it refuses is wrapped.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.PingEvery <= 0 {
		cfg.PingEvery = wire.DefaultPing
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	c := &Client{
		cfg:          cfg,
		id:           hex.EncodeToString(id[:]),
		limits:       limits{response: responseTimeout, close: closeTimeout, entries: maxEntries, listing: maxListing},
		disconnected: make(chan struct{}),
		changed:      make(chan struct{}),
	}
	c.buffers.New = func() any { return bufio.NewReaderSize(nil, callBuffer) }
	l, welcome, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.session, c.info = welcome.Session, welcome.Info.Env()
	c.link = l
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	go c.reconnectLoop(life, l)
	return c, nil
}

// Info implements env.Environment.
func (c *Client) Info() env.Info {
	info := c.info
	info.Shell = slices.Clone(info.Shell)
	info.Guarantees = slices.Clone(info.Guarantees)
	return info
}

// newID returns an id for a command or a change, which no other client uses.
func (c *Client) newID() string { return c.id + "-" + strconv.FormatUint(c.ids.Add(1), 36) }

// begin registers a call. On success the caller calls c.work.Done when it has ended.
func (c *Client) enter(ctx context.Context) error {
	if err := contextError(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return fs.ErrClosed
	case c.err != nil:
		return c.err
	}
	c.calls.Add(1)
	return nil
}

// isClosed tells whether Close has begun.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// live returns the connection. While there is none it waits for the next one. Its errors are the context's, and what
// the client has ended with.
func (c *Client) connection(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, err, changed := c.link, c.err, c.changed
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if l != nil && l.conn.Err() == nil && !l.isClosed() {
			return l, contextError(ctx)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, contextError(ctx)
		}
	}
}

// set notes the connection, nil if there is none, and tells those who wait. It reports false if the client has ended.
func (c *Client) setLink(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.link = l
	c.notify()
	return true
}

// ending returns why the client has ended, and err if it has not.
func (c *Client) endedWith(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return err
}

// announce wakes those who wait for a change. The lock is held.
func (c *Client) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// fail ends the client with err, unless it has ended before.
func (c *Client) fail(err error) {
	c.mu.Lock()
	l := c.link
	if c.err == nil {
		c.err, c.link = err, nil
		c.notify()
	}
	c.mu.Unlock()
	c.stop()
	if l != nil {
		l.close()
	}
}

// violate ends the client because the server broke the protocol.
func (c *Client) violation(err error) error {
	c.fail(err)
	return err
}

// told returns an error that the server tells. That its environment is closed means, unless this side has closed it, that
// the place is gone: fs.ErrClosed is for those who have closed it themselves.
func (c *Client) decodeError(w *wire.Error) error {
	err := w.Err()
	if !errors.Is(err, fs.ErrClosed) || c.isClosed() {
		return err
	}
	gone := fmt.Errorf("%w: the other side has closed it", env.ErrGone)
	var start *env.StartError
	var path *fs.PathError
	switch {
	case errors.As(err, &start):
		return &env.StartError{Argv: start.Argv, Err: gone}
	case errors.As(err, &path):
		return &fs.PathError{Op: path.Op, Path: path.Path, Err: gone}
	default:
		return gone
	}
}

// Close implements env.Environment. It closes the environment of the server, too. If that cannot be reached, the error
// wraps env.ErrGone, since nobody knows what is left there.
func (c *Client) Close() error {
	var err error
	c.closing.Do(func() { err = c.close() })
	return err
}

func (c *Client) close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.limits.close)
	defer cancel()
	err := c.command(ctx, request{method: "POST", path: "/close"})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer for %v", env.ErrGone, c.limits.close)
	}
	c.waitForCalls()
	c.fail(fs.ErrClosed)
	c.mu.Lock()
	c.err = fs.ErrClosed // whatever it was before
	c.mu.Unlock()
	<-c.disconnected
	c.abandoned.stop()
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// Leave ends the connection and keeps the environment of the server, for other clients or until the server has waited
// long enough for one. Calls in progress end as if the connection had been lost for good. Close does nothing after it.
func (c *Client) Leave() {
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.fail(fs.ErrClosed)
		<-c.disconnected
		c.abandoned.stop()
	})
}

// settle waits for calls in progress, whose last answers may still be on their way. One that does not end is held up by
// a reader or a writer of its caller, or by a server that says nothing.
func (c *Client) waitForCalls() {
	quiet := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(quiet)
	}()
	timer := time.NewTimer(callsTimeout)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
	case <-c.disconnected: // without a connection every call ends by itself
	}
}

// Kill kills every process that the environment has started, and keeps the environment.
func (c *Client) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.limits.close)
	defer cancel()
	err := c.enter(ctx)
	if err == nil {
		defer c.calls.Done()
		err = c.command(ctx, request{method: "POST", path: "/kill"})
	}
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	return nil
}

// contextError returns nil while ctx lives, and then an error that wraps both ctx.Err and context.Cause.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
