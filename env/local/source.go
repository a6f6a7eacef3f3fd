package local

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// source reads a caller's reader, which may block: a read ends with the context. The blocked Read
// is then abandoned, together with its buffer.
type source struct {
	ctx       context.Context
	e         *Environment
	r         io.Reader
	buf       *[bufferSize]byte
	rest      []byte // read but not yet returned by Read
	err       error  // of the reader, sticky
	immediate bool   // r never blocks
	abandoned bool   // a read still uses buf
}

// sourceError is an error of the caller's reader or context, which is returned as it is.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

func newSource(ctx context.Context, e *Environment, r io.Reader) *source {
	s := &source{ctx: ctx, e: e, r: r, buf: e.buffer()}
	switch r.(type) {
	case *bytes.Buffer, *bytes.Reader, *strings.Reader:
		s.immediate = true
	}
	return s
}

// release gives the buffer back. The source is not used after it.
func (s *source) release() {
	if !s.abandoned {
		s.e.buffers.Put(s.buf)
	}
}

// next returns the next bytes, which are valid until the next call. Its error is io.EOF or a
// *sourceError.
func (s *source) next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if err := contextError(s.ctx); err != nil {
		s.err = &sourceError{err}
		return nil, s.err
	}
	type outcome struct {
		n   int
		err error
	}
	var got outcome
	if s.immediate {
		got.n, got.err = s.r.Read(s.buf[:])
	} else {
		done := make(chan outcome, 1)
		go func() {
			n, err := s.r.Read(s.buf[:])
			done <- outcome{n, err}
		}()
		select {
		case got = <-done:
		case <-s.ctx.Done():
			s.abandoned = true
			got.err = contextError(s.ctx)
		}
	}
	switch {
	case got.err == nil:
	case errors.Is(got.err, io.EOF):
		s.err = io.EOF
	default:
		s.err = &sourceError{got.err}
	}
	return s.buf[:got.n], nil
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		var err error
		if s.rest, err = s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// copyTo copies everything to w.
func (s *source) copyTo(w io.Writer) (int64, error) {
	var size int64
	for {
		data, err := s.next()
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return size, err
		}
		n, err := w.Write(data)
		size += int64(n)
		if err != nil {
			return size, err
		}
	}
}

// spool stores content: a little in memory, more in a temporary file.
type spool struct {
	head bytes.Buffer
	file *os.File
}

// spoolMemory is the most bytes that a spool keeps in memory.
const spoolMemory = 1 << 20

func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.head.Len()+len(p) <= spoolMemory {
		return s.head.Write(p)
	}
	if s.file == nil {
		f, err := createTemp(os.TempDir(), false)
		if err != nil {
			return 0, err
		}
		s.file = f
		if _, err := f.Write(s.head.Bytes()); err != nil {
			return 0, err
		}
	}
	return s.file.Write(p)
}

// content returns a reader of everything that was written.
func (s *spool) content() (io.Reader, error) {
	if s.file == nil {
		return &s.head, nil
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return s.file, err
}

func (s *spool) discard() error {
	if s.file == nil {
		return nil
	}
	return discard(s.file)
}
