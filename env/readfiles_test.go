package env_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

// sizedFiles is a FileReader in which a file holds as many bytes as its name says, and its other
// methods panic.
type sizedFiles struct {
	env.FileReader
	// meet, if more than zero, is how many files must be read at the same time before one can be read.
	meet     int64
	met      chan struct{}
	now, max atomic.Int64
	fail     error
}

func (s *sizedFiles) Open(_ context.Context, name string) (fs.File, error) {
	n := s.now.Add(1)
	for old := s.max.Load(); n > old && !s.max.CompareAndSwap(old, n); old = s.max.Load() {
	}
	if s.meet > 0 {
		if n == s.meet {
			close(s.met)
		}
		select {
		case <-s.met:
		case <-time.After(3 * time.Minute):
			s.now.Add(-1)
			return nil, errors.New("nobody else reads")
		}
	}
	size, err := strconv.ParseInt(name, 10, 64)
	if s.fail != nil {
		err = s.fail
	}
	if err != nil {
		s.now.Add(-1)
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := &oneFile{content: bytes.NewReader(make([]byte, size)), size: size}
	return countedFile{oneOpenFile{file}, s}, nil
}

type countedFile struct {
	oneOpenFile
	files *sizedFiles
}

func (f countedFile) Close() error {
	f.files.now.Add(-1)
	return f.oneOpenFile.Close()
}

func TestReadFilesBound(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tt := range []struct {
		name  string
		limit int64
		sizes []int64
		// fits has a mark for each file that is read.
		fits string
	}{
		{"all fit", 0, []int64{1, 0, 5}, "111"},
		{"exactly the bound", env.MaxReadFiles, []int64{env.MaxReadFiles - 1, 1}, "11"},
		{"one byte too many", 0, []int64{env.MaxReadFiles, 1, 0}, "101"},
		{
			"what is too large takes no room", 0,
			[]int64{env.MaxReadFiles + 1, 5, env.MaxReadFiles - 5},
			"011",
		},
		{"smaller ones still fit", 30 * mib, []int64{30 * mib, 30 * mib, 30 * mib, 4 * mib, 1}, "11010"},
		{"the limit of each file", 10, []int64{10, 11, 9}, "101"},
		{"many at once", 8 * mib, []int64{
			8 * mib, 8 * mib, 8 * mib, 8 * mib, 8 * mib, 8 * mib, 8 * mib,
			8*mib - 1, 2, 1,
		}, "1111111101"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var names []string
			for _, size := range tt.sizes {
				names = append(names, fmt.Sprint(size))
			}
			contents, err := env.ReadFiles(t.Context(), &sizedFiles{}, names, tt.limit)
			if err != nil || len(contents) != len(names) {
				t.Fatalf("%d contents, %v", len(contents), err)
			}
			fits := ""
			for i, c := range contents {
				var pe *fs.PathError
				switch {
				case c.Err == nil && c.Name == names[i] && int64(len(c.Data)) == tt.sizes[i]:
					fits += "1"
				case errors.Is(c.Err, env.ErrTooLarge) && errors.As(c.Err, &pe) && pe.Path == names[i] &&
					c.Data == nil:
					fits += "0"
				default:
					t.Errorf("file %d is %q with %d bytes, %v", i, c.Name, len(c.Data), c.Err)
				}
			}
			if fits != tt.fits {
				t.Errorf("the files that fit are %s, want %s", fits, tt.fits)
			}
		})
	}
}

func TestReadFilesAtOnce(t *testing.T) {
	t.Parallel()
	names := strings.Fields(strings.Repeat("1 ", 24))
	files := &sizedFiles{meet: 8, met: make(chan struct{})}
	contents, err := env.ReadFiles(t.Context(), files, names, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range contents {
		if c.Err != nil {
			t.Errorf("file %d: %v", i, c.Err)
		}
	}
	if n := files.max.Load(); n != 8 {
		t.Errorf("%d files were read at the same time, want 8", n)
	}
	files = &sizedFiles{}
	if _, err := env.ReadFiles(t.Context(), files, names, 0); err != nil || files.max.Load() != 1 {
		t.Errorf("of files that may be large, %d were read at the same time, %v", files.max.Load(), err)
	}
}

func TestReadFilesEnds(t *testing.T) {
	t.Parallel()
	for _, fatal := range []error{fs.ErrClosed, env.ErrGone, env.ErrUnknownOutcome} {
		contents, err := env.ReadFiles(t.Context(), &sizedFiles{fail: fatal}, []string{"1"}, 0)
		if contents != nil || !errors.Is(err, fatal) {
			t.Errorf("ReadFiles gives %v, %v, want no contents and %v", contents, err, fatal)
		}
	}
	for _, single := range []error{fs.ErrNotExist, env.ErrNotRegular, errors.New("EIO")} {
		contents, err := env.ReadFiles(t.Context(), &sizedFiles{fail: single}, []string{"1"}, 0)
		if err != nil || len(contents) != 1 || !errors.Is(contents[0].Err, single) {
			t.Errorf("ReadFiles gives %v, %v, want one content with %v", contents, err, single)
		}
	}
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, names := range [][]string{nil, {"1"}} {
		if _, err := env.ReadFiles(ctx, &sizedFiles{}, names, 0); !errors.Is(err, context.Canceled) ||
			!errors.Is(err, cause) {
			t.Errorf("ReadFiles error is %v, want one that wraps %v and %v", err, context.Canceled, cause)
		}
	}
}

// multiFiles is a FileReader that has its own way to read several files.
type multiFiles struct {
	sizedFiles
	names []string
	limit int64
}

func (m *multiFiles) ReadFiles(
	_ context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	m.names, m.limit = names, limit
	return []env.FileContent{{Name: "own"}}, nil
}

func TestReadFilesUsesMultiReader(t *testing.T) {
	t.Parallel()
	m := &multiFiles{}
	contents, err := env.ReadFiles(t.Context(), m, []string{"a", "b"}, 7)
	if err != nil || m.limit != 7 || !cmp.Equal(m.names, []string{"a", "b"}) || len(contents) != 1 ||
		contents[0].Name != "own" {
		t.Errorf("ReadFiles(%q, %d) gives %v, %v", m.names, m.limit, contents, err)
	}
}
