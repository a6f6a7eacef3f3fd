package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// hostFolder is as much of an environment as it takes to record a folder of the host.
type hostFolder struct{ dir string }

var _ interface {
	env.FileReader
	env.Copier
} = hostFolder{}

func (h hostFolder) path(name string) string {
	name = filepath.FromSlash(name)
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(h.dir, name)
}

// Info tells where the folder is, so that the rules above it are found.
func (h hostFolder) Info() env.Info {
	return env.Info{Backend: "host", OS: runtime.GOOS, Arch: runtime.GOARCH, WorkDir: filepath.ToSlash(h.dir)}
}

// Open implements env.FileReader.
func (h hostFolder) Open(_ context.Context, name string) (fs.File, error) {
	fi, err := os.Stat(h.path(name)) // Opening a pipe would wait.
	if err != nil {
		return nil, err
	}
	switch {
	case fi.IsDir():
		return nil, &fs.PathError{Op: "open", Path: name, Err: env.ErrIsDir}
	case !fi.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: name, Err: env.ErrNotRegular}
	}
	return os.Open(h.path(name))
}

// Stat implements env.FileReader.
func (h hostFolder) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	return os.Stat(h.path(name))
}

// ReadDir implements env.FileReader.
func (h hostFolder) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	return os.ReadDir(h.path(name))
}

// CopyIn implements env.Copier by refusing.
func (h hostFolder) CopyIn(_ context.Context, dir string, _ io.Reader) error {
	return &fs.PathError{Op: "copyin", Path: dir, Err: env.ErrReadOnly}
}

// CopyOut implements env.Copier.
func (h hostFolder) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(h.path(dir))
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		err := tartree.Pack(ctx, w, root, tartree.PackOptions{Names: names})
		if errors.Is(err, syscall.ENOTDIR) {
			err = fmt.Errorf("%w: %w", env.ErrNotDir, err)
		}
		_ = root.Close()
		_ = w.CloseWithError(err) // io.EOF if nil
	}()
	return r, nil
}
