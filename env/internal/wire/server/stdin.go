package server

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

var (
	// errGap refuses a piece of stdin before which one is missing.
	errGap = errors.New("a piece of stdin is missing")
	// errPieceTooLarge refuses a piece of more than one window.
	errPieceTooLarge = errors.New("the piece of stdin is too large")
)

// stdin is the stdin of a command: an io.Reader for the command, fed in pieces. It holds no data:
// unread bytes stay with the request that brings them.
type stdin struct {
	mu     sync.Mutex
	taken  int64         // how many bytes have been read
	piece  uint64        // the number of the piece that feeds
	data   []byte        // of that piece, and not read yet
	took   chan struct{} // wakes the piece that feeds
	ended  bool          // nothing comes after data
	closed bool          // the command reads no more
	more   chan struct{} // wakes the reader
}

func newStdin() *stdin {
	return &stdin{more: make(chan struct{}, 1), took: make(chan struct{}, 1)}
}

// Read implements io.Reader for one caller at a time.
func (s *stdin) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		if n := copy(p, s.data); n > 0 || len(p) == 0 {
			s.data = s.data[n:]
			s.taken += int64(n)
			if len(s.data) == 0 {
				signal(s.took)
			}
			s.mu.Unlock()
			return n, nil
		}
		over := s.ended || s.closed
		s.mu.Unlock()
		if over {
			return 0, io.EOF
		}
		<-s.more
	}
}

// close marks that the command takes no more.
func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.data = true, nil
	signal(s.took)
	signal(s.more)
}

func (s *stdin) state() wire.StdinState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.StdinState{Taken: s.taken, Closed: s.ended || s.closed}
}

// feed gives the command the piece at offset and waits until it is read. With end set nothing
// follows it. The piece takes over from one that is being fed.
func (s *stdin) feed(ctx context.Context, offset int64, body io.Reader, end bool,
	buf []byte,
) error {
	f, skip, err := s.nextPiece(offset)
	if err != nil {
		return err
	}
	for size := int64(0); ; {
		n, err := body.Read(buf)
		if size += int64(n); size > wire.Window {
			return errPieceTooLarge
		}
		data := buf[:n]
		passed := min(skip, int64(n))
		data, skip = data[passed:], skip-passed
		if len(data) > 0 {
			if over, err := f.offer(ctx, data); err != nil || over {
				return err
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case end:
			return f.end()
		default:
			return nil
		}
	}
}

// feeder is one piece.
type feeder struct {
	s     *stdin
	piece uint64
	took  chan struct{}
}

// nextPiece makes a new piece the one that feeds. The command has skip of its bytes already.
func (s *stdin) nextPiece(offset int64) (f *feeder, skip int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset > s.taken {
		return nil, 0, errGap
	}
	s.piece++
	s.data = nil
	signal(s.took) // the piece that is replaced
	s.took = make(chan struct{}, 1)
	return &feeder{s: s, piece: s.piece, took: s.took}, s.taken - offset, nil
}

// offer gives the command data and waits until it is read. It reports whether the command takes no
// more.
func (f *feeder) offer(ctx context.Context, data []byte) (over bool, err error) {
	s := f.s
	for given := false; ; given = true {
		s.mu.Lock()
		switch {
		case s.piece != f.piece:
			err = errReplaced
		case s.closed || (s.ended && !given):
			over = true
		case !given:
			s.data = data
			signal(s.more)
		case len(s.data) == 0:
			s.mu.Unlock()
			return false, nil
		}
		s.mu.Unlock()
		if over || err != nil {
			return over, err
		}
		select {
		case <-f.took:
		case <-ctx.Done():
			s.mu.Lock()
			if s.piece == f.piece {
				s.data = nil // the buffer belongs to the reader again
			}
			s.mu.Unlock()
			return false, context.Cause(ctx)
		}
	}
}

// end marks that nothing follows this piece.
func (f *feeder) end() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.piece != f.piece {
		return errReplaced
	}
	f.s.ended = true
	signal(f.s.more)
	return nil
}

// signal wakes the receiver of c, which has room for one signal.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
