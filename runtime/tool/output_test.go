package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// dirSpool keeps outputs in a directory. Its files take max bytes, or all if max is 0.
type dirSpool struct {
	dir string
	max int
}

func (s dirSpool) Create(id string) (SpoolFile, error) {
	f, err := os.Create(filepath.Join(s.dir, id))
	return &spoolFile{File: f, max: s.max}, err
}

type spoolFile struct {
	*os.File
	max, written int
}

func (f *spoolFile) Write(p []byte) (int, error) {
	if f.written += len(p); f.max > 0 && f.written > f.max {
		return 0, errors.New("disk full")
	}
	return f.File.Write(p)
}

func (f *spoolFile) Open() (io.ReadCloser, error) { return os.Open(f.Name()) }

type brokenSpool struct{}

func (brokenSpool) Create(string) (SpoolFile, error) { return nil, errors.New("no space") }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func TestRecorder(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcde\n"), event.InlineLimit/16+1)
	for _, tt := range []struct {
		name   string
		spool  Spool
		data   []byte
		inline bool
		kept   bool
		where  string
	}{
		{"small", nil, []byte("hello\n"), true, true, ""},
		{"empty", nil, nil, true, true, ""},
		{
			"as large as fits",
			dirSpool{dir: t.TempDir()},
			big[:event.InlineLimit], true, true, "The full output is output://id1",
		},
		{"as large as fits, no spool", nil, big[:event.InlineLimit], true, true, "Run a narrower call"},
		{
			"as large as fits, no file",
			brokenSpool{},
			big[:event.InlineLimit], true, true, "The full output was not kept",
		},
		{"spooled", dirSpool{dir: t.TempDir()}, big, false, true, "The full output is output://id1"},
		{"no spool", nil, big, false, false, "The full output was not kept"},
		{"no file", brokenSpool{}, big, false, false, "The full output was not kept"},
		{
			"file full at once",
			dirSpool{dir: t.TempDir(), max: 10},
			big, false, false, "The full output was not kept",
		},
		{
			"file full later",
			dirSpool{dir: t.TempDir(), max: event.InlineLimit + 10},
			big, false, false, "The full output was not kept",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRecorder("id1", Limit{Chars: 1000}, cleanFile, tt.spool, nil, nil)
			for piece := range bytes.Lines(tt.data) {
				if n, err := r.Write(piece); n != len(piece) || err != nil {
					t.Fatalf("wrote %d, %v", n, err)
				}
			}
			out, text, _ := r.finish("", true)
			if out.Size != int64(len(tt.data)) || out.SHA256 != sum(tt.data) {
				t.Errorf("size %d, digest %s", out.Size, out.SHA256)
			}
			if got := out.File == "" && int64(len(out.Inline)) == out.Size; got != tt.inline {
				t.Errorf("inline: %v, file %q", got, out.File)
			}
			f, err := out.Open()
			if !tt.kept {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("open: %v", err)
				}
			} else {
				got, rerr := io.ReadAll(f)
				if err := errors.Join(err, rerr, f.Close()); err != nil || !bytes.Equal(got, tt.data) {
					t.Errorf("read %d of %d bytes: %v", len(got), len(tt.data), err)
				}
			}
			if !strings.Contains(text, tt.where) {
				t.Errorf("%q is missing in %q", tt.where, text)
			}
			if spool, ok := tt.spool.(dirSpool); ok && strings.Contains(text, "output://") {
				if got, err := os.ReadFile(filepath.Join(spool.dir, "id1")); err != nil ||
					!bytes.Equal(got, tt.data) {
					t.Errorf("the spool has %d of %d bytes: %v", len(got), len(tt.data), err)
				}
			}
			if _, err := r.Write([]byte("late")); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("a late write gave %v", err)
			}
		})
	}
}

func TestRecorderTrailer(t *testing.T) {
	for _, tt := range []struct{ name, body, trailer, text, all string }{
		{"alone", "", "done", "done", "done"},
		{"on its own line", "out", "done", "out\ndone", "out\ndone"},
		{"after a line break", "out\n", "done", "out\ndone", "out\ndone"},
		{"colours before it", "out\n\x1b[0m", "done", "out\ndone", "out\n\x1b[0mdone"},
		{"never cut", strings.Repeat("x", 100), "done", strings.Repeat("x", 8) +
			"\n\n[Output shortened: 85 characters are left out here. Run a narrower call to see more.]\n\n" +
			strings.Repeat("x", 7) + "\ndone", strings.Repeat("x", 100) + "\ndone"},
		{"cut if it is the output", "", strings.Repeat("y", 40), strings.Repeat("y", 10) +
			"\n\n[Output shortened: 20 characters are left out here. Run a narrower call to see more.]\n\n" +
			strings.Repeat("y", 10), strings.Repeat("y", 40)},
		{"cut if it is long", "x\n", strings.Repeat("y", 38), "x\n" + strings.Repeat("y", 8) +
			"\n\n[Output shortened: 20 characters are left out here. Run a narrower call to see more.]\n\n" +
			strings.Repeat("y", 10), "x\n" + strings.Repeat("y", 38)},
		{"cleaned", "", "a\x00b\xff", "a␀b\uFFFD", "a␀b\uFFFD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRecorder("", Limit{Chars: 20}, cleanText, nil, nil, nil)
			_, _ = r.Write([]byte(tt.body))
			out, text, _ := r.finish(tt.trailer, false)
			if diff := cmp.Diff(tt.text, text); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.all, string(out.Inline)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRecorderName(t *testing.T) {
	for _, tt := range []struct {
		id       string
		readable bool
		want     string
	}{
		{"call_1", true, "output://call_1:"},
		{"call_1", false, "Run a narrower call"},
		{"", true, "Run a narrower call"},
		{"a b", true, "Run a narrower call"},
		{"../../etc/passwd", true, "Run a narrower call"},
	} {
		r := newRecorder(tt.id, Limit{Chars: 4}, cleanFile, dirSpool{dir: t.TempDir()}, nil, nil)
		_, _ = r.Write([]byte("0123456789"))
		if _, text, _ := r.finish("", tt.readable); !strings.Contains(text, tt.want) {
			t.Errorf("id %q: %q", tt.id, text)
		}
	}
}

func TestRecorderConcurrent(t *testing.T) {
	var heard []byte
	r := newRecorder("id", Limit{Chars: 100}, cleanText, dirSpool{dir: t.TempDir()}, nil,
		func(p []byte) { heard = append(heard, p...) })
	var wg sync.WaitGroup
	for _, c := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 100 {
				_, _ = r.Write(bytes.Repeat([]byte(c), 4<<10))
			}
		})
	}
	wg.Wait()
	out, _, _ := r.finish("", false)
	f, err := out.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(all, heard) || out.SHA256 != sum(all) {
		t.Errorf("kept %d bytes, heard %d, digest %s, %v", len(all), len(heard), out.SHA256, err)
	}
}

// A character split between two writes, invalid bytes and NUL reach the model as valid text; all
// bytes are kept.
func TestRecorderF15(t *testing.T) {
	r := newRecorder("id", Limit{Chars: 100}, cleanFile, nil, nil, nil)
	data := []byte("a\x00€\xff\xfeü\x1b[1m")
	for i := range data {
		_, _ = r.Write(data[i : i+1])
	}
	out, text, _ := r.finish("", false)
	if want := "a␀€\uFFFD\uFFFDü\x1b[1m"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if !bytes.Equal(out.Inline, data) {
		t.Errorf("kept %q", out.Inline)
	}
}

// The memory that an endless output takes is bounded.
func TestRecorderMemory(t *testing.T) {
	r := newRecorder("id", Limit{Chars: 30_000, Lines: 256}, cleanText, nil, nil, nil)
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for range 64 {
		_, _ = r.Write(piece)
	}
	if r.memory != nil {
		t.Error("bytes that are lost are still in memory")
	}
	if got := cap(r.cutter.head) + cap(r.cutter.tail) + cap(r.cleaned) +
		cap(r.cleaner.line); got > 8<<20 {
		t.Errorf("%d bytes are held", got)
	}
	if allocs := testing.AllocsPerRun(10, func() { _, _ = r.Write(piece[:32<<10]) }); allocs > 5 {
		t.Errorf("%v allocations for one write", allocs)
	}
}
