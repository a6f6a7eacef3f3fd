package tool

import (
	"context"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// OutputScheme is the prefix of the names of whole outputs of earlier calls.
const OutputScheme = "output://"

// readerFor returns the reader of name: the outputs of earlier calls or the environment.
func readerFor(call *Call, name string) env.FileReader {
	if strings.HasPrefix(name, OutputScheme) {
		return outputReader{call.Outputs}
	}
	return call.Env
}

// outputReader presents the outputs of earlier calls as files. It sanitizes them, because they may
// come from a terminal program.
type outputReader struct {
	outputs func(id string) (io.ReadCloser, error)
}

var _ env.FileReader = outputReader{}

// Open opens the output called name.
func (o outputReader) Open(_ context.Context, name string) (fs.File, error) {
	if o.outputs == nil {
		return nil, errorf(KindNotFound, "open %s: this session keeps no outputs", shown(name))
	}
	r, err := o.outputs(strings.TrimPrefix(name, OutputScheme))
	if err != nil {
		return nil, errorf(KindNotFound, "open %s: %w (only the mark of a shortened output gives "+
			"such a name)", shown(name), err)
	}
	return &outputFile{name: name, from: r, cleaner: cleaner{mode: cleanText}}, nil
}

// Stat describes the output, whose size is unknown.
func (o outputReader) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	f, err := o.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	_ = f.Close() // Nothing was read.
	return outputInfo(name), nil
}

// Lstat describes the output like Stat: an output is not a symlink.
func (o outputReader) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return o.Stat(ctx, name)
}

// ReadLink fails: an output is not a symlink.
func (o outputReader) ReadLink(_ context.Context, name string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
}

// ReadDir fails: an output is not a directory.
func (o outputReader) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "readdir", Path: name, Err: env.ErrNotDir}
}

// outputFile is an output, sanitized while it is read.
type outputFile struct {
	name    string
	from    io.ReadCloser
	cleaner cleaner
	raw     [32 << 10]byte
	// ready is sanitized and not yet read; done is the error after it.
	ready, buf []byte
	done       error
}

func (f *outputFile) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.done != nil {
			return 0, f.done
		}
		n, err := f.from.Read(f.raw[:])
		f.buf = f.cleaner.append(f.buf[:0], f.raw[:n])
		if err != nil {
			f.buf, f.done = f.cleaner.flush(f.buf), err
		}
		f.ready = f.buf
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

func (f *outputFile) Close() error { return f.from.Close() }

func (f *outputFile) Stat() (fs.FileInfo, error) { return outputInfo(f.name), nil }

type outputInfo string

func (i outputInfo) Name() string     { return string(i) }
func (outputInfo) Size() int64        { return 0 }
func (outputInfo) Mode() fs.FileMode  { return 0o444 }
func (outputInfo) ModTime() time.Time { return time.Time{} }
func (outputInfo) IsDir() bool        { return false }
func (outputInfo) Sys() any           { return nil }

// changedName returns the name of a file for event.FileChange: relative if it is below the working
// directory.
func changedName(e env.Environment, name string) string {
	name = path.Clean(name)
	if dir := e.Info().WorkDir; path.IsAbs(name) {
		if rel, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/"); ok {
			return rel
		}
	}
	return name
}
