package portable_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// lossy is the standard input of a shell far away: what is written arrives a moment later, and Close drops up to 64 KiB
// of what has not arrived.
type lossy struct {
	w      io.WriteCloser
	mu     sync.Mutex
	more   *sync.Cond
	queue  []byte
	closed bool
	err    error
}

func newLossy(w io.WriteCloser) *lossy {
	l := &lossy{w: w}
	l.more = sync.NewCond(&l.mu)
	go l.run()
	return l
}

func (l *lossy) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.queue) == 0 && !l.closed {
			l.more.Wait()
		}
		if !l.closed {
			l.mu.Unlock()
			time.Sleep(3 * time.Millisecond) // the way
			l.mu.Lock()
		}
		data, closed := l.queue, l.closed
		if closed {
			data = data[:max(0, len(data)-64<<10)]
		}
		l.queue = nil
		l.mu.Unlock()
		_, err := l.w.Write(data)
		if closed {
			err = l.w.Close()
		}
		l.mu.Lock()
		l.err = errors.Join(l.err, err)
		l.more.Broadcast()
		if closed || err != nil {
			return
		}
	}
}

func (l *lossy) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 1<<20 && l.err == nil && !l.closed {
		l.more.Wait()
	}
	if l.closed {
		return 0, fs.ErrClosed
	}
	l.queue = append(l.queue, p...)
	l.more.Broadcast()
	return len(p), l.err
}

func (l *lossy) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.more.Broadcast()
	return nil
}

// far has every shell lose what is on its way when its input is closed.
func far(cfg *portable.Config) {
	start := cfg.Start
	cfg.Start = func(ctx context.Context) (portable.Shell, error) {
		s, err := start(ctx)
		if err == nil {
			in := newLossy(s.Stdin)
			s.Stdin = in
			end := s.Close
			s.Close = func() error { return errors.Join(in.Close(), end()) }
		}
		return s, err
	}
}

// unknown hides how long a reader is.
func unknown(r io.Reader) io.Reader { return struct{ io.Reader }{r} }

// noise returns bytes that are not text.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	return data
}

// TestInputWhole sends standard input of unknown length over connections that lose what is on its way when they are closed.
func TestInputWhole(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, far)
		lengths := []int{0, 1, 511, 4096, 64<<10 + 1, 256 << 10, 3<<20 + 7}
		for _, n := range lengths {
			data := noise(n)
			for what, r := range map[string]io.Reader{
				"at once":      bytes.NewReader(data),
				"unknown":      unknown(bytes.NewReader(data)),
				"byte by byte": iotest.OneByteReader(bytes.NewReader(data[:min(n, 1000)])),
				"with the end": iotest.DataErrReader(bytes.NewReader(data)),
			} {
				want := data
				if what == "byte by byte" {
					want = data[:min(n, 1000)]
				}
				var out bytes.Buffer
				res, err := e.Exec(t.Context(), env.Command{Argv: []string{"cat"}, Stdin: r, Stdout: &out})
				if err != nil || res.ExitCode != 0 || !bytes.Equal(out.Bytes(), want) {
					t.Errorf("%d bytes %s: %+v, error %v, %d bytes came", len(want), what, res, err, out.Len())
				}
			}
		}
	})
}

// TestCopyInWhole sends an archive over such connections.
func TestCopyInWhole(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, far)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		want := make(map[string][]byte)
		for i, n := range []int{0, 1, 511, 512, 100_000, 2 << 20, 33} {
			name := fmt.Sprint("file", i)
			want[name] = noise(n)
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(n)}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(want[name]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.CopyIn(t.Context(), "in", &b); err != nil {
			t.Fatal(err)
		}
		for name, data := range want {
			if got, err := env.ReadFile(t.Context(), e, "in/"+name, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: error %v, %d bytes of %d, sum %x", name, err, len(got), len(data), sha256.Sum256(got))
			}
		}
	})
}

// cut ends the input of a shell after so many bytes, whatever is written.
type cut struct {
	io.WriteCloser
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if _, err := c.WriteCloser.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		_ = c.Close() // a second time it is an error
	}
	return len(p), nil
}

// TestInputCut loses input on the way: that must never look like its end.
func TestInputCut(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		for _, extra := range []int{1, 9, 40 << 10, 300 << 10, 900 << 10} {
			arm := make(chan int, 1)
			e := k.open(t, func(cfg *portable.Config) {
				start := cfg.Start
				cfg.Start = func(ctx context.Context) (portable.Shell, error) {
					s, err := start(ctx)
					if err == nil {
						s.Stdin = &armed{WriteCloser: s.Stdin, arm: arm}
					}
					return s, err
				}
			})
			output(t, e, "true") // there is an idle shell now
			arm <- extra
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			res, err := e.Exec(ctx, env.Command{Argv: []string{"sh", "-c", "cat >file; mv file whole"}, Stdin: unknown(bytes.NewReader(noise(1 << 20)))})
			cancel()
			if !errors.Is(err, env.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cut after %d bytes: %+v, error %v, want ErrUnknownOutcome", extra, res, err)
			}
			if _, err := e.Stat(t.Context(), "whole"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("cut after %d bytes: the command took a part for all: %v", extra, err)
			}
		}
	})
}

// TestWriteCut loses a part of a file on the way: the write must fail and leave the file as it was.
func TestWriteCut(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		arm := make(chan int, 1)
		e := k.open(t, func(cfg *portable.Config) {
			start := cfg.Start
			cfg.Start = func(ctx context.Context) (portable.Shell, error) {
				s, err := start(ctx)
				if err == nil {
					s.Stdin = &armed{WriteCloser: s.Stdin, arm: arm}
				}
				return s, err
			}
		})
		if _, err := e.WriteFile(t.Context(), "kept", strings.NewReader("old"), env.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		arm <- 100 << 10
		// When the part has been sent, the reader looks at something, which finds out that the shell is lost: the write
		// goes on in another one.
		content := io.MultiReader(strings.NewReader(strings.Repeat("1", 1<<20)), readerFunc(func([]byte) (int, error) {
			if _, err := e.Stat(t.Context(), "kept"); err == nil {
				t.Error("the shell lives")
			}
			return 0, io.EOF
		}))
		_, err := e.WriteFile(t.Context(), "kept", content, env.WriteOptions{})
		if err == nil {
			t.Error("a write of which a part was lost gives no error")
		}
		if got, err := env.ReadFile(t.Context(), e, "kept", 0); err != nil || string(got) != "old" {
			t.Errorf("the file holds %d bytes, error %v", len(got), err)
		}
		if entries, err := e.ReadDir(t.Context(), "."); err != nil || len(entries) != 1 {
			t.Errorf("the folder holds %v, error %v", entries, err)
		}
	})
}

// armed is cut from the first part of standard input on, once armed.
type armed struct {
	io.WriteCloser
	arm chan int
	cut *cut
}

func (a *armed) Write(p []byte) (int, error) {
	if a.cut == nil && p[0] >= '0' && p[0] <= '9' { // a length, which no script begins with
		select {
		case n := <-a.arm:
			a.cut = &cut{a.WriteCloser, n}
		default:
		}
	}
	if a.cut != nil {
		return a.cut.Write(p)
	}
	return a.WriteCloser.Write(p)
}

// TestInputFails has the reader of standard input fail: the command sees its end, and the caller the error.
func TestInputFails(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e, broken := k.open(t, nil), errors.New("broken")
		var out bytes.Buffer
		in := io.MultiReader(strings.NewReader("begun"), iotest.ErrReader(broken))
		res, err := e.Exec(t.Context(), env.Command{Argv: []string{"cat"}, Stdin: in, Stdout: &out})
		if !errors.Is(err, broken) || res.ExitCode != 0 || out.String() != "begun" {
			t.Errorf("%+v, error %v, output %q", res, err, out.String())
		}
	})
}

// TestInputNotWanted runs commands that leave their input: it must not be taken for commands, and nothing may hang.
func TestInputNotWanted(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		canary := filepath.Join(t.TempDir(), "canary")
		line := ": >" + canary + "\n"
		for _, script := range []string{"exit 3", "read -r line; exit 3", "exec <&-; exit 3"} {
			in := unknown(strings.NewReader(strings.Repeat(line, 3<<20/len(line))))
			res, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", script}, Stdin: in})
			if err != nil || res.ExitCode != 3 {
				t.Errorf("%s: %+v, error %v", script, res, err)
			}
		}
		if _, err := os.Stat(canary); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the input was run: %v", err)
		}
	})
}

// TestCloseLeavesReaders closes an environment while calls wait for their callers' readers.
func TestCloseLeavesReaders(t *testing.T) {
	k := kinds()[0]
	for name, call := range map[string]func(e *portable.Environment, r io.Reader) error{
		"WriteFile": func(e *portable.Environment, r io.Reader) error {
			_, err := e.WriteFile(context.Background(), "file", r, env.WriteOptions{})
			return err
		},
		"CopyIn": func(e *portable.Environment, r io.Reader) error {
			return e.CopyIn(context.Background(), "dir", r)
		},
		"Exec": func(e *portable.Environment, r io.Reader) error {
			_, err := e.Exec(context.Background(), env.Command{Argv: []string{"cat"}, Stdin: r})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := k.open(t, nil)
			reading, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			result := make(chan error, 1)
			go func() {
				result <- call(e, readerFunc(func([]byte) (int, error) {
					once.Do(func() { close(reading) })
					<-release
					return 0, io.EOF
				}))
			}()
			<-reading
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			// The reader still blocks.
			select {
			case err := <-result:
				if !errors.Is(err, fs.ErrClosed) {
					t.Errorf("error %v, want fs.ErrClosed", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the call waits for its reader after Close")
			}
			close(release)
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (r readerFunc) Read(p []byte) (int, error) { return r(p) }
