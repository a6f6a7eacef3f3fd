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
	// maxTrailer bounds what may follow the end mark of an archive; tar programs fill up their last
	// record.
	maxTrailer = 1 << 20
)

// Reader reads a tar stream like a tar.Reader, but does not take a stream that was cut between two
// entries for whole.
type Reader struct {
	tr  *tar.Reader
	src *countingReader
}

// NewReader returns a Reader of r. Once ctx has ended its methods fail, at the latest when a Read
// of r returns.
func NewReader(ctx context.Context, r io.Reader) *Reader {
	src := &countingReader{r: contextReader{func() error { return env.ContextError(ctx) }, r}}
	return &Reader{tr: tar.NewReader(src), src: src}
}

// Next goes on to the next entry, past what is left of the content of the present one. At the end
// of the archive it reads r to its end, so that the sender can finish and its last error is seen,
// and returns io.EOF. A stream without end mark is io.ErrUnexpectedEOF. A failure of the sender may
// wrap io.EOF, so callers compare with ==.
func (r *Reader) Next() (*tar.Header, error) {
	if _, err := io.Copy(io.Discard, r.tr); err != nil {
		return nil, err
	}
	// The tar.Reader now skips what is left of the content's last block. If it reads nothing beyond,
	// there was no end mark.
	boundary := (r.src.n + blockSize - 1) / blockSize * blockSize
	h, err := r.tr.Next()
	if err != io.EOF { //nolint:errorlint // A failure that wraps io.EOF is no end.
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

// Read reads the content of the present entry.
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

// contextReader fails once check does. It cannot interrupt a Read that blocks.
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
