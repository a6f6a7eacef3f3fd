// Package regular lets package search open files of a local environment in a faster way than
// everybody else does.
package regular

import (
	"context"
	"io"

	"github.com/sandboxagent/sandboxagent/env"
)

// Open opens a regular file that ReadDir has just reported, and returns its size in bytes, 0 or
// less if it is unknown. If the file is no longer regular it returns an error, and it does not
// block on a FIFO.
type Open func(ctx context.Context, name string) (file io.ReadCloser, size int64, err error)

// OpenOf returns the Open of a local environment, or of a type that embeds one, and nil for all
// others. Package local sets it where it has one.
var OpenOf = func(env.FileReader) Open { return nil }
