// Package client implements env.Environment over one byte stream to a server of the wire. It
// connects, reconnects and resumes: a command runs at most once, whatever happens to the stream.
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
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Config configures how a Client reaches its server.
type Config struct {
	// Dial returns a stream to the server. It is called for the first connection and again after
	// each loss, never twice at once. The client closes the stream, and a Close must end calls of
	// Read and Write. An error that wraps env.ErrGone ends the client.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Token is the secret that opens the server.
	Token string
	// Start is the server's configuration of the environment. Only the first connection sends it.
	Start json.RawMessage
	// Redial is how long the client tries to reconnect; 0 means not at all.
	Redial time.Duration
	// PingEvery is the silence after which the client sends a ping, and the timeout of that ping; 0
	// means 10 seconds.
	PingEvery time.Duration
}

const (
	// connectTimeout bounds one attempt to reconnect.
	connectTimeout = 15 * time.Second
	// closeTimeout bounds the wait for the server to close the environment.
	closeTimeout = 30 * time.Second
	// callsTimeout bounds the wait for calls in progress once the environment is closed.
	callsTimeout = 5 * time.Second
	// responseTimeout bounds the silence of a server that has to end something.
	responseTimeout = 15 * time.Second

	// maxEntries and maxListing bound a list, in entries and in bytes.
	maxEntries = 1 << 22
	maxListing = 256 << 20
)

// Client is the environment of a server. Open creates it. Methods may be called concurrently.
type Client struct {
	cfg       Config
	id        string
	info      env.Info
	session   string
	limits    limits
	buffers   sync.Pool // *bufio.Reader
	ids       atomic.Uint64
	earlyEnds atomic.Int32 // responses in a row that ended early on a live connection
	abandoned abandonedCommands

	closing      sync.Once
	stop         context.CancelFunc // ends the attempts to connect
	disconnected chan struct{}      // closed when no connection follows the last one
	calls        sync.WaitGroup     // calls in progress

	mu      sync.Mutex
	closed  bool          // Close was called
	link    *link         // the connection; nil without one
	err     error         // the reason of the end of the client
	changed chan struct{} // closed when link or err changes
}

// limits are constants except in tests.
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

// Open connects to a server and returns its environment. The end of ctx ends the connecting only. A
// server that violates the protocol is env.ErrProtocol; the error of one that refuses is wrapped.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.PingEvery <= 0 {
		cfg.PingEvery = wire.DefaultPing
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	c := &Client{
		cfg: cfg,
		id:  hex.EncodeToString(id[:]),
		limits: limits{
			response: responseTimeout, close: closeTimeout, entries: maxEntries,
			listing: maxListing,
		},
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
func (c *Client) Info() env.Info { return c.info.Clone() }

// newID returns an id for a command or a change that no other client uses.
func (c *Client) newID() string { return c.id + "-" + strconv.FormatUint(c.ids.Add(1), 36) }

// enter registers a call. Without an error the caller calls c.calls.Done at its end.
func (c *Client) enter(ctx context.Context) error {
	if err := env.ContextError(ctx); err != nil {
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

// isClosed reports whether Close or Leave was called.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// connection returns the connection, or waits for the next one. Its error is
// the context's or the one that ended the client.
func (c *Client) connection(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, err, changed := c.link, c.err, c.changed
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if l != nil && l.conn.Err() == nil && !l.isClosed() {
			return l, env.ContextError(ctx)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, env.ContextError(ctx)
		}
	}
}

// setLink sets the connection, nil for none. It reports false if the client has ended.
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

// endedWith returns the error that ended the client, and err if it has not ended.
func (c *Client) endedWith(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return err
}

// notify wakes the calls that wait for a connection. The lock is held.
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

// violation ends the client because the server violated the protocol.
func (c *Client) violation(err error) error {
	c.fail(err)
	return err
}

// decodeError returns an error of the server. If the server's environment is closed and this client
// has not closed it, the error is env.ErrGone instead of fs.ErrClosed.
func (c *Client) decodeError(w *wire.Error) error {
	err := w.Err()
	if !errors.Is(err, fs.ErrClosed) || c.isClosed() {
		return err
	}
	gone := fmt.Errorf("%w: the server has closed the environment", env.ErrGone)
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

// Close implements env.Environment. It closes the environment of the server as well. If the server
// cannot be reached, the error wraps env.ErrGone.
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
		err = fmt.Errorf("%w: no response within %v", env.ErrGone, c.limits.close)
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

// Leave closes the connection and keeps the environment of the server for other clients, as long as
// its lease allows. Calls in progress end as after a final loss. Close does nothing afterwards.
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

// waitForCalls waits for calls in progress, whose last frames may still be on their way. Readers
// and writers of callers may block, so it is bounded.
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

// Kill kills all processes that the environment has started. The environment stays open.
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
