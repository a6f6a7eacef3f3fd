package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// ErrLineTooLong is the error for a line of a handshake that exceeds its limit.
var ErrLineTooLong = errors.New("the line is too long")

// Conn is a stream as a net.Conn. Close must end a Read in progress.
type Conn struct {
	stream io.ReadWriteCloser
	// reader buffers, since HTTP/2 reads the headers of frames one by one, and since a read of a
	// line may get more.
	reader *bufio.Reader
	writer *gatherer
	once   sync.Once
	Done   chan struct{} // closed when the stream is
	err    error         // of the closing
}

// NewConn returns a Conn over rwc.
func NewConn(stream io.ReadWriteCloser) *Conn {
	return &Conn{
		stream: stream, reader: bufio.NewReader(stream), writer: &gatherer{w: stream},
		Done: make(chan struct{}),
	}
}

func (c *Conn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// Write may return before p is written. An error of that is the error of the next call.
func (c *Conn) Write(p []byte) (int, error) { return c.writer.Write(p) }

// WriteLine writes a line of the handshake, and returns when the stream has taken it.
func (c *Conn) WriteLine(line []byte) error {
	_, err := c.stream.Write(line)
	return err
}

// Close closes the stream. Later calls return the same error.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.writer.linger()
		c.err = c.stream.Close()
		close(c.Done)
	})
	return c.err
}

// ReadLine reads a line of at most limit bytes, its end included. With an error it returns the
// bytes before it.
func (c *Conn) ReadLine(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := c.reader.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit {
			return line, ErrLineTooLong
		}
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return line, io.ErrUnexpectedEOF
		default:
			return line, fmt.Errorf("read a line: %w", err)
		}
	}
}

// streamAddr is the address of a stream without addresses.
type streamAddr struct{}

func (streamAddr) Network() string { return "stream" }
func (streamAddr) String() string  { return "stream" }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr {
	if s, ok := c.stream.(interface{ LocalAddr() net.Addr }); ok && s.LocalAddr() != nil {
		return s.LocalAddr()
	}
	return streamAddr{}
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr {
	if s, ok := c.stream.(interface{ RemoteAddr() net.Addr }); ok && s.RemoteAddr() != nil {
		return s.RemoteAddr()
	}
	return streamAddr{}
}

// Deadlines are the stream's, if it has any. One that has none never has one that would need to be
// cleared.

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if s, ok := c.stream.(interface{ SetDeadline(time.Time) error }); ok {
		return s.SetDeadline(t)
	}
	return noDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if s, ok := c.stream.(interface{ SetReadDeadline(time.Time) error }); ok {
		return s.SetReadDeadline(t)
	}
	return noDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if s, ok := c.stream.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return s.SetWriteDeadline(t)
	}
	return noDeadline(t)
}

func noDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return os.ErrNoDeadline
}

// listener is a net.Listener that accepts one connection.
type listener struct {
	conns  chan net.Conn
	addr   net.Addr
	once   sync.Once
	closed chan struct{}
}

// NewListener returns a listener that yields conn once.
func NewListener(c net.Conn) net.Listener {
	l := &listener{conns: make(chan net.Conn, 1), addr: c.LocalAddr(), closed: make(chan struct{})}
	l.conns <- c
	return l
}

// Accept returns the connection, also after Close.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	default:
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }
