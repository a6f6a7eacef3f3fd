package tartree

import (
	"archive/tar"
	"context"
	"fmt"
	"io"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	blockSize = 512
	// maxTrailer bounds the data after the end mark of an archive: tar programs pad their last record.
	maxTrailer = 1 << 20
)

// Reader reads a tar stream like a tar.Reader, but reports a stream that was cut between two
// entries.
type Reader struct {
	tr  *tar.Reader
	src *countingReader
}

// NewReader returns a Reader of r. After the end of ctx its methods fail when the current Read of r
// returns.
func NewReader(ctx context.Context, r io.Reader) *Reader {
	src := &countingReader{r: contextReader{func() error { return env.ContextError(ctx) }, r}}
	return &Reader{tr: tar.NewReader(src), src: src}
}

// Next skips the rest of the current entry and returns the header of the next one. At the end of
// the archive it reads r to its end, so that the sender can finish and report an error, and returns
// io.EOF. A stream without end mark is io.ErrUnexpectedEOF. An error of the sender may wrap io.EOF,
// so callers compare with ==.
func (r *Reader) Next() (*tar.Header, error) {
	if _, err := io.Copy(io.Discard, r.tr); err != nil {
		return nil, err
	}
	// The tar.Reader now skips the padding of the content. If it reads no block after that, the stream
	// has no end mark.
	boundary := (r.src.n + blockSize - 1) / blockSize * blockSize
	h, err := r.tr.Next()
	if err != io.EOF { //nolint:errorlint // An error that wraps io.EOF is not the end.
		return h, err
	}
	if r.src.n < boundary+blockSize {
		return nil, fmt.Errorf("the archive has no end mark: %w", io.ErrUnexpectedEOF)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(r.src, maxTrailer+1))
	if err == nil && n > maxTrailer {
		err = env.ErrTreeTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("after the end of the archive: %w", err)
	}
	return nil, io.EOF
}

// Read reads the content of the current entry.
func (r *Reader) Read(p []byte) (int, error) { return r.tr.Read(p) }

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// contextReader fails once check does. It cannot interrupt a blocked Read.
type contextReader struct {
	check func() error
	r     io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
