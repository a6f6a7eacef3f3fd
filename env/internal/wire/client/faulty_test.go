package client_test

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
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// brittle is a stream that breaks when a number of bytes have passed, counted over both directions.
type brittle struct {
	net.Conn
	left *atomic.Int64
	hole *atomic.Bool // if set, what has broken is silent instead of closed
	once sync.Once
	gone chan struct{}
}

func newBrittle(c net.Conn, left int64) *brittle {
	b := &brittle{Conn: c, left: new(atomic.Int64), gone: make(chan struct{})}
	b.left.Store(left)
	return b
}

// pass reports how many of n bytes may pass.
func (b *brittle) pass(n int) int {
	left := b.left.Add(int64(-n))
	if left < 0 {
		return max(0, n+int(left))
	}
	return n
}

func (b *brittle) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p[:min(len(p), 4096)])
	if passed := b.pass(n); passed < n {
		return passed, b.snap()
	}
	return n, err
}

func (b *brittle) Write(p []byte) (int, error) {
	passed := b.pass(len(p))
	n, err := b.Conn.Write(p[:passed])
	if err == nil && n < len(p) {
		err = b.snap()
	}
	return n, err
}

// snap breaks the stream.
func (b *brittle) snap() error {
	if b.hole != nil && b.hole.Load() {
		<-b.gone
	}
	_ = b.Close()
	return io.ErrClosedPipe
}

func (b *brittle) Close() error {
	b.once.Do(func() { close(b.gone) })
	return b.Conn.Close()
}

// random returns n bytes, the same for the same seed.
func random(seed uint64, n int) []byte {
	data := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(data) // never fails
	return data
}

// allowed reports whether an error may be the outcome of a call over a stream that breaks.
func allowed(err error) bool {
	var path *fs.PathError
	return errors.Is(err, env.ErrUnknownOutcome) || errors.Is(err, env.ErrGone) || errors.As(err,
		&path)
}

// scenario is a run over a stream that breaks again and again: every call gives what it would give
// over a good one, or an error.
type scenario struct {
	t    *testing.T
	ctx  context.Context
	c    *client.Client
	dir  string
	seed uint64
	fine int // calls without an error
	lost int // and with one that is allowed
}

// ok reports whether a call worked, and fails the test if its error is none that may be.
func (s *scenario) ok(what string, err error) bool {
	s.t.Helper()
	switch {
	case err == nil:
		s.fine++
		return true
	case s.ctx.Err() != nil:
		s.t.Fatalf("%s hangs: %v", what, err)
	case !allowed(err):
		s.t.Errorf("%s: %v (%T)", what, err, err)
	}
	s.lost++
	s.t.Logf("%s: %v", what, err)
	return false
}

func (s *scenario) equal(what string, got, want []byte) {
	s.t.Helper()
	if !bytes.Equal(got, want) {
		s.t.Errorf("%s: %d bytes with hash %x, want %d with %x", what, len(got), sha256.Sum256(got),
			len(want), sha256.Sum256(want))
	}
}

func (s *scenario) exec(i int) {
	input := random(s.seed+uint64(i), 200_000)
	counter := filepath.Join(s.dir, fmt.Sprintf("count-%d", i))
	var stdout, stderr bytes.Buffer
	result, err := s.c.Exec(s.ctx, env.Command{
		Argv: []string{
			"sh", "-c", `echo run >>"$1"; cat; head -c 50000 /dev/zero >&2; exit 7`, "sh",
			counter,
		},
		Stdin:  bytes.NewReader(input),
		Stdout: &stdout, Stderr: &stderr,
	})
	runs, readErr := os.ReadFile(counter)
	if s.ok("Exec", err) {
		s.equal("stdout", stdout.Bytes(), input)
		s.equal("stderr", stderr.Bytes(), make([]byte, 50000))
		if string(runs) != "run\n" || result.ExitCode != 7 {
			s.t.Errorf("the command ran %q times, error %v: %+v", runs, readErr, result)
		}
		return
	}
	if len(runs) > len("run\n") {
		s.t.Errorf("the command ran more than once: %q", runs)
	}
	if !bytes.HasPrefix(input, stdout.Bytes()) {
		s.t.Errorf("stdout holds what the command did not write")
	}
}

func (s *scenario) files(i int) {
	for what, size := range map[string]int{"small": 1000, "medium": 100_000, "large": 600_000} {
		name := fmt.Sprintf("%s-%d", what, i)
		content := random(s.seed+uint64(i), size)
		_, err := s.c.WriteFile(s.ctx, name, io.MultiReader(bytes.NewReader(content)), env.WriteOptions{})
		on, readErr := os.ReadFile(filepath.Join(s.dir, name))
		if s.ok("WriteFile "+what, err) {
			s.equal("what was written", on, content)
		} else if readErr == nil {
			s.equal("what was written after all", on, content)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			s.t.Fatal(err)
		}
		if got, err := env.ReadFile(s.ctx, s.c, name, 1<<20); s.ok("ReadFile "+what, err) {
			s.equal("what was read", got, content)
		}
		if info, err := s.c.Stat(s.ctx, name); s.ok("Stat", err) && info.Size() != int64(size) {
			s.t.Errorf("Stat: %d bytes, want %d", info.Size(), size)
		}
		_, err = s.c.WriteFile(s.ctx, name, strings.NewReader("x"), env.WriteOptions{MustNotExist: true})
		if err == nil || !allowed(err) {
			s.t.Errorf("WriteFile of a file that exists: %v", err)
		}
		if err := s.c.Remove(s.ctx, name, env.RemoveOptions{}); s.ok("Remove", err) {
			if _, err := os.Lstat(filepath.Join(s.dir, name)); !errors.Is(err, fs.ErrNotExist) {
				s.t.Errorf("after Remove: %v", err)
			}
		}
	}
}

func (s *scenario) trees(i int) {
	dir := fmt.Sprintf("tree-%d", i)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	want := make(map[string][]byte)
	for j := range 20 {
		name := fmt.Sprintf("file-%02d", j)
		want[name] = append([]byte("needle\n"), random(uint64(j), 1000*j)...)
		// a buffer takes everything
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(want[name]))})
		_, _ = w.Write(want[name])
	}
	_ = w.Close()
	content := archive.Bytes()
	err := s.c.CopyIn(s.ctx, dir, bytes.NewReader(content))
	if s.ok("CopyIn", err) {
		for name, data := range want {
			on, err := os.ReadFile(filepath.Join(s.dir, dir, name))
			if err != nil {
				s.t.Error(err)
			}
			s.equal("a file from an archive", on, data)
		}
	}
	for name, data := range want { // so that all files exist
		if err := errors.Join(os.MkdirAll(filepath.Join(s.dir, dir), 0o700),
			os.WriteFile(filepath.Join(s.dir, dir, name), data, 0o600)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.copyOut(dir, want)
	s.search(dir, len(want))
}

func (s *scenario) copyOut(dir string, want map[string][]byte) {
	r, err := s.c.CopyOut(s.ctx, dir)
	if !s.ok("CopyOut", err) {
		return
	}
	defer func() { _ = r.Close() }() // an error of reading counts
	in := tar.NewReader(r)
	for count := 0; ; count++ {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			if count != len(want) {
				s.t.Errorf("an archive of %d files, want %d", count, len(want))
			}
			return
		}
		if !s.ok("reading an archive", err) {
			return
		}
		if header.Typeflag == tar.TypeDir {
			count--
			continue
		}
		data, err := io.ReadAll(in)
		if !s.ok("reading an archive", err) {
			return
		}
		s.equal("a file in an archive", data, want[header.Name])
	}
}

func (s *scenario) search(dir string, files int) {
	var names []string
	err := s.c.Walk(s.ctx, dir, search.WalkOptions{}, func(e search.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	if s.ok("Walk", err) && (len(names) != files || !slices.IsSorted(names)) {
		s.t.Errorf("Walk: %q", names)
	}
	lines := 0
	stats, err := s.c.Grep(s.ctx, search.GrepOptions{Pattern: "^needle$", Path: dir, NoIgnore: true},
		func(m search.GrepMatch) error {
			if m.Line == 1 {
				lines++
			}
			return nil
		})
	if s.ok("Grep", err) && (lines+stats.SkippedBinary != files) {
		s.t.Errorf("Grep: %d lines, %+v", lines, stats)
	}
	if entries, err := s.c.Glob(s.ctx, search.GlobOptions{Pattern: "file-*", Dir: dir}); s.ok("Glob",
		err) && len(entries) != files {
		s.t.Errorf("Glob: %d entries", len(entries))
	}
	if entries, err := s.c.ReadDir(s.ctx, dir); s.ok("ReadDir", err) && len(entries) != files {
		s.t.Errorf("ReadDir: %d entries", len(entries))
	}
}

// TestBrokenAgainAndAgain runs everything over streams that break after a random number of bytes.
func TestBrokenAgainAndAgain(t *testing.T) {
	seeds := []uint64{3, 4, 7}
	if !testing.Short() { // the others wait for many reconnections
		seeds = append(seeds, 0, 1, 2, 5, 6)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			s := &scenario{t: t, ctx: ctx, dir: t.TempDir(), seed: seed}
			p := serveLocal(t, s.dir, nil)
			numbers := rand.New(rand.NewPCG(seed, 1))
			streams := 0
			p.between = func(client, server net.Conn) (io.ReadWriteCloser, io.ReadWriteCloser) {
				streams++
				// Frames of HTTP/2 count when they are whole, and have up to 256 KiB.
				return newBrittle(client, 3000+numbers.Int64N(30_000<<(4*numbers.IntN(2)))), server
			}
			s.c = p.open(t, func(cfg *client.Config) { cfg.Redial = 30 * time.Second })
			for i := range 4 {
				s.exec(i)
				s.files(i)
				s.trees(i)
			}
			if s.fine < s.lost {
				t.Errorf("%d calls gave an error, and only %d did not", s.lost, s.fine)
			}
			t.Logf("%d streams, %d calls without an error, %d with one", streams, s.fine, s.lost)
		})
	}
}

// TestBlackHole has the stream go silent in the middle of a command.
func TestBlackHole(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p := serveLocal(t, t.TempDir(), nil)
	var hole atomic.Bool
	hole.Store(true)
	first := true
	p.between = func(client, server net.Conn) (io.ReadWriteCloser, io.ReadWriteCloser) {
		if !first {
			return client, server
		}
		first = false
		b := newBrittle(client, 300_000)
		b.hole = &hole
		return b, server
	}
	c := p.open(t, func(cfg *client.Config) {
		cfg.Redial, cfg.PingEvery = 30*time.Second, 100*time.Millisecond
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	count := &counting{}
	result, err := c.Exec(ctx, env.Command{
		Argv:   []string{"sh", "-c", "seq 200000; exit 7"},
		Stdout: count,
	})
	if err != nil || result.ExitCode != 7 {
		t.Errorf("Exec: %+v, %v", result, err)
	}
	want := sha256.New()
	for i := range 200_000 {
		fmt.Fprintln(want, i+1)
	}
	if got := count.sum(); got != fmt.Sprintf("%x", want.Sum(nil)) {
		t.Errorf("the output has hash %s after %d bytes", got, count.n)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// counting is a writer that keeps a hash.
type counting struct {
	data bytes.Buffer
	n    int
}

func (c *counting) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.data.Write(p)
}

func (c *counting) sum() string { return fmt.Sprintf("%x", sha256.Sum256(c.data.Bytes())) }
