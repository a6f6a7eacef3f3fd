package env_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
)

// oneFile is a FileReader with a single file, which may lie about its size.
type oneFile struct {
	env.FileReader
	content io.Reader
	size    int64
	closed  bool
}

func (o *oneFile) Open(context.Context, string) (fs.File, error) { return oneOpenFile{o}, nil }

type oneOpenFile struct{ *oneFile }

func (o oneOpenFile) Stat() (fs.FileInfo, error) { return sizeInfo{size: o.size}, nil }
func (o oneOpenFile) Read(p []byte) (int, error) { return o.content.Read(p) }
func (o oneOpenFile) Close() error               { o.closed = true; return nil }

type sizeInfo struct {
	fs.FileInfo
	size int64
}

func (i sizeInfo) Size() int64 { return i.size }

func TestReadFile(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	broken := errors.New("the line is cut")
	tests := []struct {
		name    string
		content io.Reader
		size    int64
		limit   int64
		want    []byte
		wantErr error
	}{
		{name: "empty", content: bytes.NewReader(nil), want: []byte{}},
		{name: "size is right", content: bytes.NewReader(big), size: int64(len(big)), want: big},
		{name: "size is not known", content: bytes.NewReader(big), want: big},
		{name: "size is too small", content: bytes.NewReader(big), size: 17, want: big},
		{name: "size is too large", content: bytes.NewReader(big[:5]), size: 1 << 20, want: big[:5]},
		{
			name: "size is absurd", content: bytes.NewReader(big[:5]), size: math.MaxInt64,
			limit: math.MaxInt64, want: big[:5],
		},
		{name: "size is negative", content: bytes.NewReader(big[:5]), size: math.MinInt64, want: big[:5]},
		{
			name: "one byte at a time", content: iotest.OneByteReader(bytes.NewReader(big[:2000])),
			want: big[:2000],
		},
		{
			name: "data with end of file", content: iotest.DataErrReader(bytes.NewReader(big[:2000])),
			want: big[:2000],
		},
		{
			name: "as large as the limit", content: bytes.NewReader(big[:10]), size: 10, limit: 10,
			want: big[:10],
		},
		{
			name: "larger than the limit", content: bytes.NewReader(big[:11]), size: 11, limit: 10,
			wantErr: env.ErrTooLarge,
		},
		{
			name: "secretly larger than the limit", content: bytes.NewReader(big[:11]), size: 3, limit: 10,
			wantErr: env.ErrTooLarge,
		},
		{
			name: "much larger than the limit", content: io.LimitReader(endlessContent{}, 8<<20),
			limit: 1 << 20, wantErr: env.ErrTooLarge,
		},
		{
			name: "larger than the default limit", size: env.DefaultReadLimit + 1,
			content: iotest.ErrReader(broken), wantErr: env.ErrTooLarge,
		},
		{
			name: "read error", content: io.MultiReader(bytes.NewReader(big[:10]), iotest.ErrReader(broken)),
			wantErr: broken,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := &oneFile{content: tt.content, size: tt.size}
			got, err := env.ReadFile(t.Context(), file, "dir/x", tt.limit)
			if !file.closed {
				t.Error("the file is still open")
			}
			if tt.wantErr == nil {
				if err != nil || !bytes.Equal(got, tt.want) {
					t.Errorf("ReadFile gives %d bytes, %v, want %d bytes, nil", len(got), err, len(tt.want))
				}
				return
			}
			var pe *fs.PathError
			if !errors.Is(err, tt.wantErr) || !errors.As(err, &pe) || pe.Path != "dir/x" {
				t.Errorf("ReadFile error is %v, want a *fs.PathError for dir/x that wraps %v", err, tt.wantErr)
			}
			if got != nil {
				t.Errorf("ReadFile gives %d bytes with an error, want none", len(got))
			}
		})
	}
}

type endlessContent struct{}

func (endlessContent) Read(p []byte) (int, error) { return len(p), nil }

func TestReadFileEndsWithContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	reads := 0
	file := &oneFile{content: readerFunc(func(p []byte) (int, error) {
		if reads++; reads == 3 {
			cancel(cause)
		}
		return copy(p, "x"), nil
	})}
	_, err := env.ReadFile(ctx, file, "x", 0)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("ReadFile error is %v, want one that wraps %v and %v", err, context.Canceled, cause)
	}
	if reads != 3 {
		t.Errorf("%d reads, want 3: none after the context ended", reads)
	}

	expired, cancelExpired := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelExpired()
	if _, err := env.ReadFile(expired, &oneFile{content: bytes.NewReader(nil)}, "x",
		0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ReadFile error is %v, want %v", err, context.DeadlineExceeded)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReadFileOpenErrors(t *testing.T) {
	t.Parallel()
	e := treefake.New(t, t.TempDir())
	for name, want := range map[string]error{".": env.ErrIsDir, "missing": fs.ErrNotExist} {
		if _, err := env.ReadFile(t.Context(), e, name, 0); !errors.Is(err, want) {
			t.Errorf("ReadFile(%q) error is %v, want %v", name, err, want)
		}
	}
}
