package envtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"reflect"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// spy is an environment that records the arguments of its methods and returns set results.
type spy struct {
	// err is the error of every method.
	err error
	// ran is called by Exec, if set.
	ran func(cmd env.Command)

	calls []string // the names of the methods called
	ctx   context.Context
	args  []any
	input string // the content of a reader among the arguments
	ioErr error  // the error of a reader or writer among the arguments

	file   *spyStream
	stream *spyStream
}

var (
	_ env.Environment = (*spy)(nil)
	_ search.Searcher = (*spy)(nil)
	_ env.MultiReader = (*spy)(nil)
)

// Results of a spy.
var (
	spyResult  = filled[env.Result]()
	spyWritten = filled[env.Written]()
	spyEntry   = filled[search.Entry]()
	spyMatch   = filled[search.GrepMatch]()
	spyStats   = filled[search.GrepStats]()
	spyFile    = filled[env.FileContent]()
	spyInfo    = filled[env.Info]()
	spyTarget  = filled[string]()
)

func (s *spy) call(ctx context.Context, name string, args ...any) {
	s.calls = append(s.calls, name)
	s.ctx, s.args = ctx, args
}

// consume reads r to its end.
func (s *spy) consume(r io.Reader) {
	data, err := io.ReadAll(r)
	s.input = string(data)
	s.ioErr = errors.Join(s.ioErr, err)
}

func (s *spy) Info() env.Info {
	s.calls, s.ctx, s.args = append(s.calls, "Info"), nil, nil
	return spyInfo
}

func (s *spy) Close() error {
	s.calls, s.ctx, s.args = append(s.calls, "Close"), nil, nil
	return s.err
}

func (s *spy) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	s.call(ctx, "Exec", cmd.Argv, cmd.Dir, cmd.Vars, cmd.Timeout, cmd.Stdin == nil, cmd.Stdout == nil,
		cmd.Stderr == nil, cmd.TTY, cmd.Interrupt, cmd.User, cmd.Confine,
		cmd.MaxProcesses)
	if s.ran != nil {
		s.ran(cmd)
	}
	if cmd.Stdin != nil {
		s.consume(cmd.Stdin)
	}
	for w, text := range map[io.Writer]string{cmd.Stdout: "out", cmd.Stderr: "err"} {
		if w != nil {
			_, err := io.WriteString(w, text)
			s.ioErr = errors.Join(s.ioErr, err)
		}
	}
	return spyResult, s.err
}

func (s *spy) Open(ctx context.Context, name string) (fs.File, error) {
	s.call(ctx, "Open", name)
	if s.err != nil {
		return nil, s.err
	}
	s.file = newSpyStream()
	return s.file, nil
}

func (s *spy) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	s.call(ctx, "Stat", name)
	return spyFileInfo{}, s.err
}

func (s *spy) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	s.call(ctx, "Lstat", name)
	return spyFileInfo{}, s.err
}

func (s *spy) ReadLink(ctx context.Context, name string) (string, error) {
	s.call(ctx, "ReadLink", name)
	return spyTarget, s.err
}

func (s *spy) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	s.call(ctx, "ReadDir", name)
	return []fs.DirEntry{fs.FileInfoToDirEntry(spyFileInfo{})}, s.err
}

func (s *spy) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	s.call(ctx, "WriteFile", name, opts)
	s.consume(r)
	return spyWritten, s.err
}

func (s *spy) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	s.call(ctx, "Remove", name, opts)
	return s.err
}

func (s *spy) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	s.call(ctx, "CopyIn", dir)
	s.consume(archive)
	return s.err
}

func (s *spy) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	s.call(ctx, "CopyOut", dir, names)
	if s.err != nil {
		return nil, s.err
	}
	s.stream = newSpyStream()
	return s.stream, nil
}

func (s *spy) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	s.call(ctx, "ReadFiles", names, limit)
	return []env.FileContent{spyFile}, s.err
}

func (s *spy) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	s.call(ctx, "Walk", root, opts)
	return errors.Join(fn(spyEntry), s.err)
}

func (s *spy) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	s.call(ctx, "Grep", opts)
	return spyStats, errors.Join(fn(spyMatch), s.err)
}

func (s *spy) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	s.call(ctx, "Glob", opts)
	return []search.Entry{spyEntry}, s.err
}

// spyContent is the content of a spy's files and streams, which then fail with errSpyRead.
const spyContent = "content"

var errSpyRead = errors.New("the spy's stream broke")

type spyStream struct {
	io.Reader
	closed bool
}

func newSpyStream() *spyStream {
	return &spyStream{Reader: io.MultiReader(bytes.NewReader([]byte(spyContent)),
		readerFunc(func([]byte) (int, error) { return 0, errSpyRead }))}
}

func (s *spyStream) Stat() (fs.FileInfo, error) { return spyFileInfo{}, nil }

func (s *spyStream) Close() error {
	s.closed = true
	return nil
}

type spyFileInfo struct{}

func (spyFileInfo) Name() string       { return "spy" }
func (spyFileInfo) Size() int64        { return 7 }
func (spyFileInfo) Mode() fs.FileMode  { return 0o640 }
func (spyFileInfo) ModTime() time.Time { return time.Unix(981173106, 0) }
func (spyFileInfo) IsDir() bool        { return false }
func (spyFileInfo) Sys() any           { return nil }

// filled returns a T whose fields all differ from zero, also those that a later version adds.
func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(981173106, 0)))
	case v.Type() == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(errSpyRead))
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}
