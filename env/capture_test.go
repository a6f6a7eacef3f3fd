package env_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestCapture(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		head, tail int
		writes     []string
		wantHead   string
		wantTail   string
	}{
		{"nothing", 3, 3, nil, "", ""},
		{"empty write", 3, 3, []string{""}, "", ""},
		{"within head", 3, 3, []string{"ab"}, "ab", ""},
		{"exactly head", 3, 3, []string{"abc"}, "abc", ""},
		{"within both", 3, 3, []string{"abcd"}, "abc", "d"},
		{"exactly both", 3, 3, []string{"abcdef"}, "abc", "def"},
		{"one more", 3, 3, []string{"abcdefg"}, "abc", "efg"},
		{"over several writes", 3, 3, []string{"a", "bc", "d", "efgh", "i"}, "abc", "ghi"},
		{"wraps twice", 1, 4, []string{"a", "bcd", "ef", "ghi", "jklm", "n"}, "a", "klmn"},
		{"one write over all", 2, 3, []string{"abcdefghijklm"}, "ab", "klm"},
		{"long write after short ones", 2, 3, []string{"abcd", "efghijk"}, "ab", "ijk"},
		{"short write after a long one", 2, 3, []string{"abcdefghijk", "l"}, "ab", "jkl"},
		{"only head", 3, -1, []string{"ab", "cd", "ef"}, "abc", ""},
		{"only tail", -1, 3, []string{"ab", "cd", "ef"}, "", "def"},
		{"neither", -1, -1, []string{"ab", "cd"}, "", ""},
		{"any bytes", 3, 3, []string{"\x00\xff\r\n", "\xc3", "\x28"}, "\x00\xff\r", "\n\xc3\x28"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var spool bytes.Buffer
			c := env.NewCapture(env.CaptureOptions{Head: tt.head, Tail: tt.tail, Spool: &spool})
			for _, w := range tt.writes {
				if n, err := io.WriteString(c, w); n != len(w) || err != nil {
					t.Fatalf("Write gives %d, %v, want %d, nil", n, err, len(w))
				}
			}
			all := strings.Join(tt.writes, "")
			if got := string(c.Head()); got != tt.wantHead {
				t.Errorf("Head is %q, want %q", got, tt.wantHead)
			}
			if got := string(c.Tail()); got != tt.wantTail {
				t.Errorf("Tail is %q, want %q", got, tt.wantTail)
			}
			if got := string(c.Bytes()); got != tt.wantHead+tt.wantTail {
				t.Errorf("Bytes is %q, want %q", got, tt.wantHead+tt.wantTail)
			}
			if got := c.Size(); got != int64(len(all)) {
				t.Errorf("Size is %d, want %d", got, len(all))
			}
			if got, want := c.Omitted(), int64(len(all)-len(tt.wantHead)-len(tt.wantTail)); got != want {
				t.Errorf("Omitted is %d, want %d", got, want)
			}
			if got, want := c.Sum(), hexSum([]byte(all)); got != want {
				t.Errorf("Sum is %s, want %s", got, want)
			}
			if got := spool.String(); got != all {
				t.Errorf("the spool has %q, want %q", got, all)
			}
		})
	}
}

func TestCaptureZeroValue(t *testing.T) {
	t.Parallel()
	var c env.Capture
	if got := c.Sum(); got != hexSum(nil) {
		t.Errorf("Sum is %s, want that of no bytes", got)
	}
	data := bytes.Repeat([]byte("0123456789"), 20_000)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.Head(), data[:env.DefaultCapture]) || !bytes.Equal(c.Tail(),
		data[len(data)-env.DefaultCapture:]) {
		t.Error("the zero value does not keep DefaultCapture bytes of both ends")
	}
}

func TestCaptureCopies(t *testing.T) {
	t.Parallel()
	c := env.NewCapture(env.CaptureOptions{Head: 2, Tail: 2})
	p := []byte("abcd")
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{p, c.Head(), c.Tail(), c.Bytes()} {
		clear(b)
	}
	if got := string(c.Bytes()); got != "abcd" {
		t.Errorf("Bytes is %q after changes to slices outside, want %q", got, "abcd")
	}
}

// TestCaptureMemory proves that memory follows the output and stops at the limits.
func TestCaptureMemory(t *testing.T) {
	chunk := make([]byte, 32<<10)
	captures := make([]env.Capture, 100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range captures {
		if _, err := captures[i].Write(chunk[:10]); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / uint64(len(captures)); got > 2<<10 {
		t.Errorf("10 bytes of output take %d bytes of memory, want 2 KiB at most", got)
	}
	c := env.NewCapture(env.CaptureOptions{})
	for range 16 {
		if _, err := c.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := c.Write(chunk); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("a write to a full capture allocates %v times, want 0", got)
	}
}

// TestCaptureModel compares with the simplest implementation.
func TestCaptureModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		head, tail := 1+r.IntN(20), 1+r.IntN(20)
		c := env.NewCapture(env.CaptureOptions{Head: head, Tail: tail})
		var all []byte
		for range r.IntN(20) {
			p := make([]byte, r.IntN(30))
			for i := range p {
				p[i] = byte(r.IntN(256))
			}
			all = append(all, p...)
			if _, err := c.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		wantHead := all[:min(head, len(all))]
		rest := all[len(wantHead):]
		wantTail := rest[max(0, len(rest)-tail):]
		if !bytes.Equal(c.Head(), wantHead) || !bytes.Equal(c.Tail(), wantTail) {
			t.Fatalf("with limits %d and %d, of %q are kept %q and %q, want %q and %q",
				head, tail, all, c.Head(), c.Tail(), wantHead, wantTail)
		}
	}
}

// limitedWriter takes n bytes and then fails, with or without saying so.
type limitedWriter struct {
	n     int
	err   error
	got   bytes.Buffer
	calls int
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	w.calls++
	n, _ := w.got.Write(p[:min(w.n, len(p))])
	w.n -= n
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

func TestCaptureSpoolError(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	for name, tt := range map[string]struct{ err, want error }{
		"says so":     {full, full},
		"short write": {nil, io.ErrShortWrite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spool := &limitedWriter{n: 5, err: tt.err}
			c := env.NewCapture(env.CaptureOptions{Spool: spool})
			for i, want := range []struct {
				n   int
				err error
			}{{3, nil}, {2, tt.want}, {0, tt.want}} {
				n, err := c.Write([]byte("abc"))
				if n != want.n || !errors.Is(err, want.err) {
					t.Errorf("Write %d gives %d, %v, want %d, %v", i, n, err, want.n, want.err)
				}
			}
			if spool.calls != 2 {
				t.Errorf("the spool was written to %d times, want 2: not after its error", spool.calls)
			}
			if got, want := string(c.Bytes()), spool.got.String(); got != want || c.Size() != 5 ||
				c.Sum() != hexSum([]byte(want)) {
				t.Errorf("the capture has %q (%d bytes, %s), want what the spool has, %q", got, c.Size(),
					c.Sum(), want)
			}
		})
	}
}

func TestCaptureConcurrently(t *testing.T) {
	t.Parallel()
	var spool bytes.Buffer
	c := env.NewCapture(env.CaptureOptions{Head: 10, Tail: 10, Spool: &spool})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if _, err := c.Write([]byte("0123456789")); err != nil {
					t.Error(err)
				}
				_, _, _, _, _, _ = c.Head(), c.Tail(), c.Bytes(), c.Size(), c.Omitted(), c.Sum()
			}
		})
	}
	wg.Wait()
	if c.Size() != 4000 || spool.Len() != 4000 || c.Sum() != hexSum(spool.Bytes()) {
		t.Errorf("%d bytes are counted and %d in the spool, want 4000 with the same sum", c.Size(),
			spool.Len())
	}
}
