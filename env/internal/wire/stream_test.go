package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

func TestConnDeadlines(t *testing.T) {
	bare, other := wiretest.NewPipe()
	defer func() { _ = other.Close() }()
	real1, real2 := net.Pipe()
	defer func() { _ = real2.Close() }()
	for _, c := range []struct {
		name   string
		stream io.ReadWriteCloser
		want   error
	}{
		{"a stream without deadlines", bare, os.ErrNoDeadline},
		{"a stream with deadlines", real1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := NewConn(c.stream)
			for what, set := range map[string]func(time.Time) error{
				"both": conn.SetDeadline, "read": conn.SetReadDeadline, "write": conn.SetWriteDeadline,
			} {
				if err := set(time.Now().Add(time.Hour)); !errors.Is(err, c.want) {
					t.Errorf("%s: %v", what, err)
				}
				if err := set(time.Time{}); err != nil {
					t.Errorf("%s is not cleared: %v", what, err)
				}
			}
			if conn.LocalAddr() == nil || conn.RemoteAddr().String() == "" {
				t.Error("no address")
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := conn.Close(); err != nil {
				t.Errorf("the second close: %v", err)
			}
			<-conn.Done
		})
	}
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 10000)
	for _, c := range []struct {
		name, input, want string
		limit             int
		err               error
		rest              string
	}{
		{"a line", "abc\ndef", "abc\n", 100, nil, "def"},
		{"a long line", long + "\nabc", long + "\n", 10001, nil, "abc"},
		{"too long by one", long + "\nabc", "", 10000, ErrLineTooLong, ""},
		{"no end", "abc", "abc", 100, io.ErrUnexpectedEOF, ""},
		{"nothing", "", "", 100, io.ErrUnexpectedEOF, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := NewConn(&wiretest.PipeEnd{Reader: strings.NewReader(c.input)})
			line, err := conn.ReadLine(c.limit)
			if !strings.HasPrefix(c.input, string(line)) || len(line) < len(c.want) || !errors.Is(err,
				c.err) {
				t.Fatalf("%.20q, %v", line, err)
			}
			if err == nil {
				if rest, err := io.ReadAll(conn); err != nil || string(rest) != c.rest {
					t.Errorf("what follows is %q, %v", rest, err)
				}
			}
		})
	}
}

func TestListener(t *testing.T) {
	c := NewConn(&wiretest.PipeEnd{OnClose: func() error { return nil }})
	l := NewListener(c)
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if got, err := l.Accept(); err != nil || got != net.Conn(c) {
		t.Errorf("the connection is not served: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if l.Addr() == nil {
		t.Error("no address")
	}
}
