package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// uploadBuffer is the size of the buffer for a caller's reader.
	uploadBuffer = 64 << 10
	// keepContent is how much content is kept, to send it again after a lost connection. Agents
	// hardly ever write more.
	keepContent = 256 << 10
)

// errContentClosed ends the body of a request that was given up.
var errContentClosed = errors.New("the request was given up")

// source reads a caller's reader once, for one request after another. It never calls Read
// concurrently, and a Read that blocks holds up neither a request nor its end.
type source struct {
	r         io.Reader
	ctx       context.Context // whose end ends the content
	immediate bool            // Read never blocks

	mu      sync.Mutex
	change  sync.Cond
	buf     []byte
	chunk   []byte // read last
	total   int64  // how many bytes have been read
	kept    []byte // all of them while they are few, or the current request needs them
	reading bool
	current *upload
	err     error // of the reader or the context, or io.EOF; sticky
}

func newSource(ctx context.Context, r io.Reader) *source {
	s := &source{r: r, ctx: ctx}
	s.change.L = &s.mu
	switch r.(type) {
	case *bytes.Buffer, *bytes.Reader, *strings.Reader:
		s.immediate = true
	}
	return s
}

// upload returns the content for the next request, from its start, and ends that of the request
// before. The error is errIncomplete if the start is gone. A Read left over from the request before
// takes no bytes from this one.
func (s *source) upload() (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		s.current.end()
	}
	if s.total != int64(len(s.kept)) {
		return nil, errIncomplete
	}
	s.current = &upload{s: s}
	return s.current, nil
}

// from returns the bytes from pos on, which have been read; nil if they are gone.
func (s *source) from(pos int64) []byte {
	if pos < int64(len(s.kept)) {
		return s.kept[pos:]
	}
	if left := s.total - pos; left <= int64(len(s.chunk)) {
		return s.chunk[int64(len(s.chunk))-left:]
	}
	return nil
}

// failure returns the error of the reader or of the context; nil at the end.
func (s *source) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// stop ends the content with the context's error.
func (s *source) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = env.ContextError(s.ctx)
	}
	s.change.Broadcast()
}

// fill reads more. The lock is held, but not during the Read.
func (s *source) fill() {
	s.reading = true
	if s.buf == nil {
		s.buf = make([]byte, min(uploadBuffer, max(s.length()+1, 512)))
	}
	if s.immediate {
		s.store(s.r.Read(s.buf))
		return
	}
	go func() {
		n, err := s.r.Read(s.buf)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.store(n, err)
	}()
}

// length returns the number of remaining bytes, or uploadBuffer if it is unknown.
func (s *source) length() int {
	if l, ok := s.r.(interface{ Len() int }); ok && s.immediate {
		return l.Len()
	}
	return uploadBuffer
}

func (s *source) store(n int, err error) {
	s.reading = false
	s.chunk = s.buf[:n]
	switch {
	case n == 0:
	case s.total == int64(len(s.kept)) && len(s.kept)+n <= keepContent:
		s.kept = append(s.kept, s.chunk...)
	case s.current.pos == s.total:
		s.kept = nil
	}
	s.total += int64(n)
	if err == nil && s.immediate && s.length() == 0 {
		err = io.EOF // so that the end goes with the data
	}
	if s.err == nil {
		s.err = err
	}
	s.change.Broadcast()
}

// upload is the body of one request.
type upload struct {
	s      *source
	pos    int64 // next byte; guarded by the source
	closed bool  // guarded by the source
}

// size returns the length of the content; -1 if it is unknown.
func (u *upload) size() int64 {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if !u.s.immediate || u.s.err != nil {
		return -1
	}
	return u.s.total + int64(u.s.length())
}

func (u *upload) failure() error { return u.s.failure() }

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.err == nil {
			s.err = env.ContextError(s.ctx)
		}
		switch {
		case u.closed:
			return 0, errContentClosed
		case s.err != nil && !errors.Is(s.err, io.EOF):
			return 0, s.err
		case u.pos < s.total:
			from := s.from(u.pos)
			if from == nil {
				s.err = errIncomplete
				return 0, s.err
			}
			n := copy(p, from)
			u.pos += int64(n)
			if u.pos == s.total && s.err != nil {
				return n, io.EOF
			}
			return n, nil
		case s.err != nil:
			return 0, io.EOF
		case s.reading:
			s.change.Wait()
		default:
			s.fill()
		}
	}
}

// Close ends a Read in progress.
func (u *upload) Close() error {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.end()
	return nil
}

func (u *upload) end() {
	u.closed = true
	u.s.change.Broadcast()
}
