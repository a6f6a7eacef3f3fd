package portable

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"
)

const (
	// inputPart is about how much standard input of unknown length goes to a shell at once, and inputPiece how much of it
	// is read at once.
	inputPart, inputPiece = 256 << 10, 64 << 10
	// gatherTime is how long a part waits for more.
	gatherTime = 2 * time.Millisecond
	// maxLength is how long the line with the length of a part can be.
	maxLength = 16
	// maxEmpty is how often in a row a reader may give nothing without an error.
	maxEmpty = 100
)

// sendParts sends what r gives until it ends or fails, and then tells the end. A shell is never told the end by the end of
// its own input: what is on its way to a place may be lost when a connection is closed. Each part stands behind a line
// with its length, and a length of zero is the end. A failure of r goes to failed before the place can know of it. When w
// fails, a Read of r that blocks is left alone.
func sendParts(w io.Writer, r io.Reader, failed func(error)) error {
	pieces, stop := make(chan piece), make(chan struct{})
	defer close(stop)
	go readPieces(r, pieces, stop)
	buf := make([]byte, maxLength, maxLength+inputPart+inputPiece)
	for {
		data, err := gather(buf, pieces)
		if err != nil && !errors.Is(err, io.EOF) {
			failed(err)
		}
		if n := len(data) - maxLength; n > 0 {
			length := strconv.Itoa(n) + "\n"
			begin := maxLength - len(length)
			copy(data[begin:], length)
			if _, err := w.Write(data[begin:]); err != nil {
				return err
			}
		}
		if err != nil {
			_, err = io.WriteString(w, "0\n")
			return err
		}
	}
}

// gather appends a piece to data, and those that soon follow: a part costs a process in the place, and many readers give
// little at a time.
func gather(data []byte, pieces <-chan piece) ([]byte, error) {
	p := <-pieces
	data = append(data, p.data...)
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	for p.err == nil && len(data) < maxLength+inputPart {
		select {
		case p = <-pieces:
			data = append(data, p.data...)
		case <-timer.C:
			return data, nil
		}
	}
	return data, p.err
}

// piece is what one Read gave.
type piece struct {
	data []byte
	err  error
}

// readPieces reads r to its end, or until stop is closed. A piece is valid until the next one is received.
func readPieces(r io.Reader, pieces chan<- piece, stop <-chan struct{}) {
	var bufs [2][]byte
	for i := range bufs {
		bufs[i] = make([]byte, inputPiece)
	}
	for i, empty := 0, 0; ; i = 1 - i {
		n, err := r.Read(bufs[i])
		if empty++; n > 0 {
			empty = 0
		} else if empty == maxEmpty && err == nil {
			err = io.ErrNoProgress
		}
		select {
		case pieces <- piece{bufs[i][:n], err}:
		case <-stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// readFunc is a function that implements io.Reader.
type readFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// interruptible returns a reader of what r gives, which fails when ctx ends. A Read of r that blocks is then left alone, with a
// buffer of its own.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	type result struct {
		n   int
		err error
	}
	buf, results := make([]byte, inlineData), make(chan result, 1)
	var rest []byte
	var failure error
	return readFunc(func(p []byte) (int, error) {
		if len(rest) == 0 && failure == nil {
			if ctx.Err() != nil {
				failure = ended(ctx)
				return 0, failure
			}
			go func() {
				n, err := r.Read(buf)
				results <- result{n, err}
			}()
			select {
			case got := <-results:
				rest, failure = buf[:got.n], got.err
			case <-ctx.Done():
				failure = ended(ctx)
			}
		}
		if len(rest) == 0 {
			return 0, failure
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	})
}
