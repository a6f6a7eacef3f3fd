package env_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// treeFake reads and copies files of one folder of the host. Relative names are relative to that folder.
type treeFake struct {
	dir string
	// copyOuts counts calls of CopyOut, readDirs those of ReadDir.
	copyOuts, readDirs atomic.Int32
	// beforeCopy, if set, is called with the names before they are packed, and may refuse.
	beforeCopy func(names []string) error
}

func newTreeFake(t testing.TB, dir string) *treeFake {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &treeFake{dir: filepath.ToSlash(dir)}
}

func (f *treeFake) Info() env.Info { return env.Info{WorkDir: f.dir} }

func (f *treeFake) host(name string) string {
	if !filepath.IsAbs(name) {
		name = path.Join(f.dir, name)
	}
	return filepath.FromSlash(name)
}

func (f *treeFake) Open(ctx context.Context, name string) (fs.File, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	file, err := os.Open(f.host(name))
	if err != nil {
		return nil, err
	}
	if fi, err := file.Stat(); err == nil && fi.IsDir() {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: name, Err: env.ErrIsDir}, file.Close())
	}
	return file, nil
}

func (f *treeFake) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return os.Stat(f.host(name))
}

func (f *treeFake) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	f.readDirs.Add(1)
	return os.ReadDir(f.host(name))
}

func (f *treeFake) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	if dir == "" {
		return fs.ErrInvalid
	}
	if err := os.MkdirAll(f.host(dir), 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.host(dir))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return tartree.Unpack(ctx, root, archive, tartree.UnpackOptions{})
}

func (f *treeFake) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	f.copyOuts.Add(1)
	if dir == "" {
		return nil, fs.ErrInvalid
	}
	if f.beforeCopy != nil {
		if err := f.beforeCopy(names); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(f.host(dir))
	if err != nil {
		return nil, err
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = root.Close() }()
		pw.CloseWithError(tartree.Pack(ctx, pw, root, tartree.PackOptions{Names: names}))
	}()
	return &treeFakeStream{pr, done}, nil
}

type treeFakeStream struct {
	*io.PipeReader
	done chan struct{}
}

func (s *treeFakeStream) Close() error {
	err := s.PipeReader.Close()
	<-s.done
	return err
}

// fakeFile is a file of a test's tree. A link has a target instead of content.
type fakeFile struct {
	Content, Target string
	Executable      bool
}

// writeTree makes files below dir; a name that ends in a slash is an empty folder.
func writeTree(t testing.TB, dir string, files map[string]fakeFile) {
	t.Helper()
	for name, f := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		var err error
		if f.Target != "" {
			err = os.Symlink(f.Target, p)
		} else {
			err = os.WriteFile(p, []byte(f.Content), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readTree returns the files and links below dir, but not what is in a folder .git.
func readTree(t testing.TB, dir string) map[string]fakeFile {
	t.Helper()
	files := map[string]fakeFile{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		var f fakeFile
		if d.Type()&fs.ModeSymlink != 0 {
			f.Target, err = os.Readlink(p)
		} else {
			var content []byte
			content, err = os.ReadFile(p)
			f.Content = string(content)
			if fi, err := d.Info(); err == nil {
				f.Executable = fi.Mode()&0o100 != 0
			}
		}
		rel, rerr := filepath.Rel(dir, p)
		files[filepath.ToSlash(rel)] = f
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
