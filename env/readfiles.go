package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

const (
	// MaxReadFiles is how many bytes of all files together ReadFiles returns: 64 MiB.
	MaxReadFiles = 64 << 20
	// readAtOnce is how many files are read at the same time.
	readAtOnce = 8
)

// FileContent is one file that ReadFiles has read.
type FileContent struct {
	// Name is the name that was asked for.
	Name string
	// Data is the whole content; nil if Err is set.
	Data []byte
	// Err is why the file could not be read, as ReadFile tells it.
	Err error
}

// MultiReader is implemented by environments that can read several files faster than one by one.
// Callers use [ReadFiles], which means the same for every environment.
type MultiReader interface {
	ReadFiles(ctx context.Context, names []string, limit int64) ([]FileContent, error)
}

// ReadFiles reads the files called names, and returns one FileContent for each of them, in the same
// order. A name may come twice. It is meant for several small files, which a remote environment
// gives in one round trip.
//
// The limit of each file is that of ReadFile. Of all files together no more than MaxReadFiles bytes
// are returned, nor are many more in memory meanwhile: a file for which those before it leave too
// little is an error that wraps ErrTooLarge, as is one that is larger than limit; the files after
// it are read as long as they fit. The larger the limit, the fewer files are read at the same time.
//
// That a file cannot be read is told in its FileContent. ReadFiles itself returns an error, and no
// contents, if ctx ends and if the environment is closed or gone.
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
			if IsFatal(ctx, c.Err) {
				return nil, c.Err
			}
			left -= int64(len(c.Data))
		}
		rest = rest[len(batch):]
	}
	return contents, nil
}

// readContent reads one file of at most share bytes, which is less than limit where other files
// have taken the rest.
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
