// Package treefake provides an environment for tests: a directory of the host, with counters and
// hooks, which runs no commands.
package treefake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// Tree reads and copies files of the directory Dir of the host.
type Tree struct {
	Dir string
	// OS is the operating system that Info reports.
	OS string
	// CopyOuts counts calls of CopyOut, ReadDirs those of ReadDir.
	CopyOuts, ReadDirs atomic.Int32
	// BeforeCopy, if set, is called with the names before CopyOut, and may return an error.
	BeforeCopy func(names []string) error
}

// New returns a Tree of dir.
func New(t testing.TB, dir string) *Tree {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &Tree{Dir: filepath.ToSlash(dir)}
}

// Info implements env.Environment.
func (f *Tree) Info() env.Info { return env.Info{OS: f.OS, WorkDir: f.Dir} }

func (f *Tree) host(name string) string {
	if !filepath.IsAbs(name) {
		name = path.Join(f.Dir, name)
	}
	return filepath.FromSlash(name)
}

// Open implements env.Environment.
func (f *Tree) Open(ctx context.Context, name string) (fs.File, error) {
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

// Stat implements env.Environment.
func (f *Tree) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return os.Stat(f.host(name))
}

// Lstat implements env.Environment.
func (f *Tree) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return os.Lstat(f.host(name))
}

// ReadLink implements env.Environment.
func (f *Tree) ReadLink(ctx context.Context, name string) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return os.Readlink(f.host(name))
}

// ReadDir implements env.Environment.
func (f *Tree) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	f.ReadDirs.Add(1)
	return os.ReadDir(f.host(name))
}

// CopyIn implements env.Environment.
func (f *Tree) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
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

// CopyOut implements env.Environment.
func (f *Tree) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	f.CopyOuts.Add(1)
	if dir == "" {
		return nil, fs.ErrInvalid
	}
	if f.BeforeCopy != nil {
		if err := f.BeforeCopy(names); err != nil {
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
	return &stream{pr, done}, nil
}

type stream struct {
	*io.PipeReader
	done chan struct{}
}

func (s *stream) Close() error {
	err := s.PipeReader.Close()
	<-s.done
	return err
}

// File is a file in a tree. A symlink has a target instead of content.
type File struct {
	Content, Target string
	Executable      bool
}

// Write makes files below dir; a name with a trailing slash is an empty directory.
func Write(t testing.TB, dir string, files map[string]File) {
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

// Read returns the files and symlinks below dir, without directories named .git.
func Read(t testing.TB, dir string) map[string]File {
	t.Helper()
	files := map[string]File{}
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
		var f File
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

// Tar returns an archive of files by name.
func Tar(files map[string]string) []byte {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644}
		if err := tw.WriteHeader(h); err != nil {
			panic(err)
		}
		_, _ = io.WriteString(tw, files[name])
	}
	_ = tw.Close()
	return buf.Bytes()
}
