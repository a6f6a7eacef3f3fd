package workspace

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// hostDir is a directory of the host as an environment, with the methods that a snapshot needs.
type hostDir struct {
	dir string
	// modes maps files to whether they are executable, overriding their permissions.
	modes map[string]bool
}

var _ interface {
	env.FileReader
	env.Copier
} = hostDir{}

func (h hostDir) path(name string) string {
	name = filepath.FromSlash(name)
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(h.dir, name)
}

// Info returns the path of the directory, for the ignore rules above it.
func (h hostDir) Info() env.Info {
	return env.Info{
		Backend: "host", OS: runtime.GOOS, Arch: runtime.GOARCH,
		WorkDir: filepath.ToSlash(h.dir),
	}
}

// Open implements env.FileReader.
func (h hostDir) Open(_ context.Context, name string) (fs.File, error) {
	fi, err := os.Stat(h.path(name)) // Opening a FIFO would wait.
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
func (h hostDir) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	return os.Stat(h.path(name))
}

// Lstat implements env.FileReader.
func (h hostDir) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	return os.Lstat(h.path(name))
}

// ReadLink implements env.FileReader.
func (h hostDir) ReadLink(_ context.Context, name string) (string, error) {
	return os.Readlink(h.path(name))
}

// ReadDir implements env.FileReader.
func (h hostDir) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	return os.ReadDir(h.path(name))
}

// CopyIn implements env.Copier by refusing.
func (h hostDir) CopyIn(_ context.Context, dir string, _ io.Reader) error {
	return &fs.PathError{Op: "copyin", Path: dir, Err: env.ErrReadOnly}
}

// CopyOut implements env.Copier.
func (h hostDir) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	root, err := os.OpenRoot(h.path(dir))
	if err != nil {
		return nil, err
	}
	packed := pipe(func(w io.Writer) error {
		defer func() { _ = root.Close() }()
		err := tartree.Pack(ctx, w, root, tartree.PackOptions{Names: names})
		if errors.Is(err, syscall.ENOTDIR) {
			err = fmt.Errorf("%w: %w", env.ErrNotDir, err)
		}
		return err
	})
	if len(h.modes) == 0 {
		return packed, nil
	}
	return pipe(func(w io.Writer) error {
		defer func() { _ = packed.Close() }()
		return setModes(w, packed, h.modes)
	}), nil
}

// pipe returns a reader of the function's output, which ends with its error.
func pipe(write func(io.Writer) error) *io.PipeReader {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(write(w)) }() // io.EOF if nil
	return r
}

// setModes copies a tar stream and sets or clears the executable bits of the files in modes.
func setModes(to io.Writer, from io.Reader, modes map[string]bool) error {
	r, w := tar.NewReader(from), tar.NewWriter(to)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return w.Close()
		}
		if err != nil {
			return err
		}
		if executable, ok := modes[path.Clean(h.Name)]; ok && h.Typeflag == tar.TypeReg {
			h.Mode &^= 0o111
			if executable {
				h.Mode |= 0o111
			}
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
}
