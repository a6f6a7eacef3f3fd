package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

const (
	// MaxReadFiles bounds the bytes of all files together that ReadFiles returns: 64 MiB.
	MaxReadFiles = 64 << 20
	// readAtOnce bounds the files that are read at the same time.
	readAtOnce = 8
)

// FileContent is the content of one file, or the error of reading it.
type FileContent struct {
	// Name is the name as ReadFiles received it.
	Name string
	// Data is the whole content; nil if Err is set.
	Data []byte
	// Err is the error of ReadFile.
	Err error
}

// MultiReader is an optional interface of environments that read several files faster than one by
// one. Callers use [ReadFiles], which returns the same for every environment.
type MultiReader interface {
	ReadFiles(ctx context.Context, names []string, limit int64) ([]FileContent, error)
}

// ReadFiles reads the files names and returns one FileContent for each, in the same order. A name
// may occur twice. It suits several small files, which a remote environment sends in one round
// trip.
//
// The limit of each file is that of ReadFile. All files together have at most MaxReadFiles bytes,
// which also bounds the memory: a file that does not fit beside those before it is an error that
// wraps ErrTooLarge, like a file larger than limit; later files that fit are read. The larger the
// limit, the fewer files are read at the same time.
//
// The error of one file is in its FileContent. ReadFiles itself returns an error, without contents,
// if ctx ends or the environment is closed or gone.
func ReadFiles(
	ctx context.Context, e FileReader, names []string, limit int64,
) ([]FileContent, error) {
	if m, ok := e.(MultiReader); ok {
		return m.ReadFiles(ctx, names, limit)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read files: %w", ContextError(ctx))
	}
	if limit <= 0 {
		limit = DefaultReadLimit
	}
	contents := make([]FileContent, len(names))
	left := int64(MaxReadFiles)
	for rest := contents; len(rest) > 0; {
		share := min(limit, left)
		batch := rest[:max(1, min(readAtOnce, int(left/max(share, 1)), len(rest)))]
		var wg sync.WaitGroup
		for i := range batch {
			name := names[len(contents)-len(rest)+i]
			wg.Go(func() { batch[i] = readContent(ctx, e, name, share, limit) })
		}
		wg.Wait()
		for _, c := range batch {
			if fatal := FatalError(ctx, c.Err); fatal != nil {
				return nil, fatal
			}
			left -= int64(len(c.Data))
		}
		rest = rest[len(batch):]
	}
	return contents, nil
}

// readContent reads one file of at most share bytes, which is below limit if other files took the
// rest.
func readContent(ctx context.Context, e FileReader, name string, share, limit int64) FileContent {
	data, err := readFile(ctx, e, name, share)
	if share < limit && errors.Is(err, ErrTooLarge) {
		err = &fs.PathError{
			Op: "read", Path: name,
			Err: fmt.Errorf("%w: more than %d bytes with the files before it", ErrTooLarge, MaxReadFiles),
		}
	}
	return FileContent{Name: name, Data: data, Err: err}
}
