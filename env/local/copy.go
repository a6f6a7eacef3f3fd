package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// CopyIn implements env.Environment.
func (e *Environment) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	path, err := e.startOp(ctx, "copyin", dir)
	if err != nil {
		return err
	}
	defer e.work.Done()
	ctx, cancel := e.bind(ctx)
	defer cancel()
	if err := os.MkdirAll(path, 0o777); err != nil {
		return pathError("copyin", dir, err)
	}
	root, err := openDir(path)
	if err != nil {
		return pathError("copyin", dir, err)
	}
	source := newSource(ctx, e, archive)
	defer source.release()
	err = tartree.Unpack(ctx, root, source, tartree.UnpackOptions{})
	return copyError("copyin", dir, both(err, root.Close()))
}

// CopyOut implements env.Environment.
func (e *Environment) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	path, err := e.startOp(ctx, "copyout", dir)
	if err != nil {
		return nil, err
	}
	root, err := openDir(path)
	if err != nil {
		e.work.Done()
		return nil, pathError("copyout", dir, err)
	}
	ctx, cancel := e.bind(ctx)
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { // ends a write that is not read
		_ = w.CloseWithError(copyError("copyout", dir, contextError(ctx)))
	})
	go func() {
		defer e.work.Done()
		defer cancel()
		err := tartree.Pack(ctx, w, root, tartree.PackOptions{Names: names})
		err = copyError("copyout", dir, both(err, root.Close()))
		stop()
		_ = w.CloseWithError(err) // io.EOF if nil
	}()
	return r, nil
}

// openDir opens a directory as a root. It checks the type first and opens "/.", since opening a
// FIFO would block.
func openDir(path string) (*os.Root, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, env.ErrNotDir
	}
	return os.OpenRoot(path + "/.")
}

// copyError returns err as a *fs.PathError. Its text keeps the name of the entry.
func copyError(op, dir string, err error) error {
	if err == nil {
		return nil
	}
	var source *sourceError
	if errors.Is(err, errClosing) {
		err = fs.ErrClosed
	} else if errors.As(err, &source) {
		err = source.err
	} else if is := classify(err); is != nil {
		err = &condition{is: is, err: err}
	}
	return &fs.PathError{Op: op, Path: dir, Err: err}
}
