package tartree

import (
	"context"
	"errors"
	"io"

	"github.com/sandboxagent/sandboxagent/env"
)

// Send copies the archive that pack writes into the directory dir of an environment, in bounded
// memory. A failure to pack is the cause of the error of CopyIn, and returned alone.
func Send(
	ctx context.Context, e env.Copier, dir string, pack func(context.Context, io.Writer) error,
) (packErr, copyErr error) {
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, pw)
		pw.CloseWithError(err)
		packed <- err
	}()
	copyErr = e.CopyIn(ctx, dir, pr)
	pr.CloseWithError(errReaderDone)
	if packErr = <-packed; packErr != nil && !errors.Is(packErr, errReaderDone) {
		return packErr, nil
	}
	return nil, copyErr
}

// errReaderDone ends packing when the environment stops reading.
var errReaderDone = errors.New("the environment stopped reading")
