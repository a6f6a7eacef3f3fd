package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// DefaultReadLimit is the default limit of ReadFile: 100 MiB.
const DefaultReadLimit = 100 << 20

// ErrTooLarge means that a file is larger than the caller's limit.
var ErrTooLarge = errors.New("file too large")

// ReadFile reads the whole file name and follows symlinks. A file of more than limit bytes is an
// error that wraps ErrTooLarge, without data; a limit of zero or less means DefaultReadLimit. The
// limit bounds the bytes read, whatever size the environment reports. Errors are *fs.PathError.
func ReadFile(ctx context.Context, e FileReader, name string, limit int64) ([]byte, error) {
	if limit <= 0 {
		limit = DefaultReadLimit
	}
	return readFile(ctx, e, name, limit)
}

// readFile is ReadFile with a limit that may be zero.
func readFile(ctx context.Context, e FileReader, name string, limit int64) ([]byte, error) {
	f, err := e.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // All data has been read, or an error is returned already.

	var size int64
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	if size > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: tooLarge(limit)}
	}
	// The size is a hint: it is 0 for generated files, and a remote one may be any number.
	data := make([]byte, 0, max(0, min(size, DefaultReadLimit))+512)
	for {
		if ctx.Err() != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: ContextError(ctx)}
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if int64(len(data)) > limit {
			return nil, &fs.PathError{Op: "read", Path: name, Err: tooLarge(limit)}
		}
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, PathError("read", name, err)
		}
	}
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
}
